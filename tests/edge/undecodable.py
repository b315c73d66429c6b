"""Steps of tests with a value that cannot be decoded, the same at MariaDB and MySQL."""

from tests.edge.fix_edge import arrive
from tests.integration.edge.snapshots import copy


def go_on_behind_what_cannot_be_decoded(edge, database, interconnect):
    """Change and copy rows of a character set that no codec has: they are dead letters, and all else arrives."""
    database.execute("create table odd (id int primary key, note varchar(20) character set swe7)")
    with edge.running() as running:
        database.execute("insert into odd values (1, 'hidden'), (2, null)")
        database.execute("insert into t values (1, 'a')")
        arrive(interconnect, 3)
        copy(edge, f"{database.name}.odd")
        arrive(interconnect, 5)
        database.execute("update odd set note = null where id = 1")
        database.execute("delete from odd where id = 1")
        arrive(interconnect, 7)
        (words,) = [words for words in running.figures.warnings if "needs a copy" in words]

    assert [(it["op"], it["after"], it.get("too_large", {}).get("column")) for it in interconnect.changes] == [
        ("c", {"id": 1}, "note"), ("c", {"id": 2, "note": None}, None), ("c", {"id": 1, "note": "a"}, None),
        ("r", {"id": 1}, "note"), ("r", {"id": 2, "note": None}, None),
        ("u", {"id": 1, "note": None}, None), ("d", None, None),
    ]  # fmt: skip
    assert interconnect.changes[5]["before"] == {"id": 1}
    assert "values of column note cannot be decoded" in words
    assert "hidden" not in str(interconnect.records)
