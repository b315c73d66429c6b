"""Functions are made for the kinds of change that come often; the records do not show when."""

import pytest

from edge.postgres import rows_compiled
from tests.unit.edge.postgres.accounts import FULL, primary_key
from tests.unit.edge.postgres.messages import Column, Log, delete, insert, relation, update


@pytest.fixture
def made(monkeypatch):
    """Let the third change of a kind have a function; return the names of those that were made, with their relations."""
    names = []
    compiled = rows_compiled._compiled

    def noted(table, name, *rest):
        names.append((name, len(table.names)))
        return compiled(table, name, *rest)

    monkeypatch.setattr(rows_compiled, "_compiled", noted)
    monkeypatch.setattr(rows_compiled, "WORTH_MAKING", 2)
    return names


def test_a_kind_of_change_has_its_function_once_it_came_often(made):
    log = Log()
    log.transaction(
        FULL,
        *(insert(number, "a", None) for number in range(5)),
        update((0, "b", None), old=(0, "a", None)),
        delete(old=(0, "b", None)),
    )
    changes = log.changes()
    assert made == [("insert", 3)]
    assert [change.value["after"] for change in changes[:5]] == [
        {"id": number, "name": "a", "note": None} for number in range(5)
    ]
    first, *rest = (change.value for change in changes[:5])
    assert all(list(each) == list(first) for each in rest)
    assert [change.value["op"] for change in changes] == ["c"] * 5 + ["u", "d"]
    assert [change.position.ordinal for change in changes] == list(range(7))


def test_a_table_that_was_altered_begins_again(made):
    log = Log()
    wider = relation(*(Column(name) for name in ("id", "name", "note", "more")))
    log.transaction(
        FULL,
        *(insert(number, "a", None) for number in range(4)),
        wider,
        *(insert(number, "a", None, "x") for number in range(4, 6)),
    )
    assert made == [("insert", 3)]
    after = [change.value["after"] for change in log.changes()]
    assert [("more" in row) for row in after] == [False] * 4 + [True] * 2


@pytest.mark.parametrize("settings", [{"tombstones": True}, {"transactions": True}], ids=["tombstones", "transactions"])
def test_what_stands_beside_changes_does_so_before_and_after(made, settings):
    log = Log(key_of=primary_key, **settings)
    log.transaction(FULL, *(delete(old=(number, "a", None)) for number in range(5)))
    kinds = [record.value and record.value.get("op", "status" in record.value) for record in log.records()]
    assert made == [("delete", 3)]
    expected = ["d", None] * 5 if "tombstones" in settings else [True, *["d"] * 5, True]
    assert [kind for kind in kinds if kind is not False] == expected
