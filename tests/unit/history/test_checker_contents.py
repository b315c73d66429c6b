"""The checker is checked: it objects to records that are in their places and are not what was committed."""

import pytest

from tests.unit.history.right import at, kinds


def test_swapped_contents_are_found(history):
    first, second = history[at(history, 703, 1)], history[at(history, 703, 3)]
    first[2]["after"], second[2]["after"] = second[2]["after"], first[2]["after"]

    assert kinds(history) == {"altered"}


@pytest.mark.parametrize(
    ("where", "held"),
    [
        (("after", "balance"), "11.01"),
        (("after", "balance"), 11.0),
        (("after", "balance"), None),
        (("after", "extra"), 1),
        (("after",), None),
        (("before",), {"id": 1}),
        (("op",), "c"),
        (("source", "lsn"), 1),
        (("source", "ts_ms"), 3001),
        (("source", "table"), "history"),
        (("transaction", "id"), "703:1"),
        (("transaction", "total_order"), 2),
        (("unchanged",), ["balance"]),
    ],
)
def test_altered_change_is_found(history, where, held):
    value = history[at(history, 703, 0)][2]
    *path, name = where
    for step in path:
        value = value[step]
    value[name] = held

    assert "altered" in kinds(history)


def test_value_that_is_missing_is_found(history):
    del history[at(history, 703, 0)][2]["after"]["balance"]

    assert kinds(history) == {"altered"}


@pytest.mark.parametrize("key", [None, {"id": 2}, {"id": 1, "balance": "11.00"}])
def test_altered_key_is_found(history, key):
    history[at(history, 703, 0)][1] = key

    assert kinds(history) == {"altered"}


def test_half_a_transaction_is_found(history):
    del history[at(history, 703, 2) : at(history, 703, 3) + 1]

    assert {"half", "lost"} == kinds(history)


def test_missing_last_is_found(history):
    del history[at(history, 703, 3)][2]["transaction"]["last"]

    assert kinds(history) == {"last"}


def test_last_in_the_middle_is_found(history):
    history[at(history, 703, 1)][2]["transaction"]["last"] = True

    assert kinds(history) == {"last"}


def test_position_that_is_not_the_commits_is_found(history):
    source = history[at(history, 702, 0)][2]["source"]
    source["position"] = f"{7:08x}/{440:016x}/{0:08x}"

    assert "position" in kinds(history)


def test_epoch_that_moves_within_a_transaction_is_found(history):
    source = history[at(history, 703, 3)][2]["source"]
    source["position"] = source["position"].replace("00000007", "00000008")

    assert "position" in kinds(history)


@pytest.mark.parametrize("table", ["accounts", "history"])
def test_missing_schema_record_is_found(history, table):
    (place,) = [
        place
        for place, (_, _, value) in enumerate(history)
        if "tableChanges" in value and value["source"]["table"] == table
    ]
    del history[place]

    assert kinds(history) == {"schema"}


def test_schema_record_behind_its_change_is_found(history):
    history[0], history[1] = history[1], history[0]

    assert kinds(history) == {"schema"}


def test_schema_record_with_another_key_is_found(history):
    history[0][2]["tableChanges"][0]["table"]["primaryKeyColumnNames"] = ["balance"]

    assert kinds(history) == {"schema"}


def test_schema_record_without_a_column_is_found(history):
    del history[0][2]["tableChanges"][0]["table"]["columns"][1]

    assert kinds(history) == {"schema"}
