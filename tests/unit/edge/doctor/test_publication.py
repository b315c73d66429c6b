"""Whether `init` may make the publication: by the owners of the tables that it would have."""

from types import SimpleNamespace

from edge.doctor import tables

#: In SQL, `schema.table`, partitioned or not, refused, with a key, the user's own.
CHOSEN, FOREIGN = ("a.t", "a.t", False, [], True, True), ("a.u", "a.u", False, [], True, False)
LEFT_OUT = ("hidden.v", "hidden.v", False, ["hidden.v"], False, False)


class _Database:
    """A server whose user has no USAGE on the schema of a table that is left out: to look it up by its name fails."""

    def __init__(self, *candidates):
        self._candidates = candidates

    def value(self, statement, *_):
        return None

    def rows(self, statement, *arguments):
        if "to_regclass" in statement:
            assert not any("hidden.v" in listed for listed in arguments), "permission denied for schema hidden"
            return [(name,) for name, *_, owned in self._candidates if owned]
        return self._candidates


def findings(*candidates):
    names = SimpleNamespace(publication="p", tables=[], row_filters={}, user="edge")
    context = SimpleNamespace(database=_Database(*candidates), names=names, row=lambda _: (False, True))
    return [(it.level, it.text) for it in tables.may_make(context) if it.check == "publication"]


def test_the_owners_of_tables_that_are_left_out_are_not_asked_for():
    assert findings(CHOSEN, LEFT_OUT) == [("ok", "no p yet: 'headrace edge init' makes it for 1 tables")]
    ((level, text),) = findings(CHOSEN, FOREIGN, LEFT_OUT)
    assert (level, "edge does not own only a.u," in text) == ("wrong", True)
