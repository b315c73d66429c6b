"""Copied rows in a history: the checker passes right ones beside the stream, and objects to each way of being wrong."""

import copy
import json

import pytest

from tests.history.checker import check
from tests.history.records import record
from tests.history.state import check_state
from tests.history.transactions import Change, Number, Transaction

SOURCE, TABLE = "jakarta/bank", "public.stock"
KEYS = {TABLE: ("id",)}
#: One row is changed beside the copy; the watermark's transaction has no changes of its own.
COMMITTED = [
    Transaction(700, 1000, 90, 120, (Change(TABLE, "u", None, {"id": Number("2"), "n": Number("9")}),)),
    Transaction(701, 1001, 200, 240, ()),
    Transaction(702, 1002, 300, 340, (Change(TABLE, "d", {"id": Number("3")}, None),)),
]
STORED = {TABLE: [{"id": Number(str(key)), "n": Number(str(n))} for key, n in ((1, 1), (2, 9), (4, 4))]}


def entry(op, xid, commit, ordinal, row, *, last):
    source = {"name": SOURCE, "schema": "public", "table": "stock", "txId": xid, "lsn": commit, "ts_ms": 300 + xid}
    source |= {"position": f"{7:08x}/{commit:016x}/{ordinal:08x}", "snapshot": "incremental" if op == "r" else "false"}
    if op == "schema":
        columns = [{"name": "id"}, {"name": "n"}]
        return [
            None,
            {"source": source, "tableChanges": [{"table": {"primaryKeyColumnNames": ["id"], "columns": columns}}]},
        ]
    order = {"id": f"{xid}:{commit}", "total_order": ordinal + 1} | ({"last": True} if last else {})
    key = {"id": row["id"]}
    after, before = (None, key) if op == "d" else (row, None)
    return [key, {"before": before, "after": after, "source": source, "op": op, "transaction": order}]


@pytest.fixture
def history():
    """A change, a chunk of three rows, and another change."""
    return [
        entry("schema", 700, 100, 0, None, last=False),
        entry("u", 700, 100, 0, {"id": 2, "n": 9}, last=True),
        *(entry("r", 701, 220, place, {"id": key, "n": key}, last=key == 4) for place, key in enumerate((1, 3, 4))),
        entry("d", 702, 320, 0, {"id": 3}, last=True),
    ]


def mark(kind, xid, commit):
    """Return a mark of the table's copy, alone in its transaction."""
    key, value = entry("schema", xid, commit, 0, None, last=False)
    order = {"id": f"{xid}:{commit}", "total_order": 1, "last": True}
    return [key, value | {"source": value["source"] | {"snapshot": kind}, "transaction": order}]


def topic(entries):
    return [
        record(0, offset, json.dumps(key).encode() if key else None, json.dumps(value).encode())
        for offset, (key, value) in enumerate(entries)
    ]


def kinds(entries):
    records = topic(entries)
    result = check(SOURCE, COMMITTED, records, partition=0, keys=KEYS) + check_state(SOURCE, records, STORED, KEYS)
    return {difference.kind for difference in result}


def test_right_history_with_copied_rows_passes(history):
    assert kinds(history) == set()


def test_a_chunk_that_was_cut_short_passes_when_its_rows_come_again(history):
    cut = copy.deepcopy(history[2:4])
    for _, value in cut:
        value["source"]["position"] = value["source"]["position"].replace(f"{220:016x}", f"{160:016x}")
        value["source"]["txId"] = 7011
    history[2:2] = cut

    assert kinds(history) == set()


def test_the_marks_of_a_copy_are_no_schemas_ahead_of_a_change(history):
    """L34."""
    history[5:5] = [mark("last_in_data_collection", 704, 280)]
    history[2:2] = [mark("first_in_data_collection", 703, 180)]
    passes = kinds(history)
    del history[2][1]["transaction"]

    assert (passes, kinds(history)) == (set(), {"schema"})


def test_a_copied_row_that_is_missing_is_found(history):
    del history[2]

    assert {"state", "half"} == kinds(history)


def test_a_copied_row_that_is_older_than_the_log_is_found(history):
    # Given the changed row as it was before, behind its change.
    history[2:5] = [
        entry("r", 701, 220, place, {"id": key, "n": key}, last=key == 4) for place, key in enumerate((1, 2, 3, 4))
    ]

    assert kinds(history) == {"state"}


def test_a_copied_row_that_was_deleted_is_found(history):
    history.append(history.pop(3))
    history[-1][1]["source"]["position"] = f"{7:08x}/{400:016x}/{0:08x}"

    assert "state" in kinds(history)


def test_a_mark_of_the_last_row_that_comes_too_early_is_found(history):
    history[2][1]["transaction"]["last"] = True

    assert kinds(history) == {"last"}


def test_copied_rows_out_of_order_are_found(history):
    history[2], history[3] = history[3], history[2]

    assert "order" in kinds(history)


def test_a_copied_row_within_a_transaction_of_the_source_is_found(history):
    history[2][1]["source"]["txId"] = 702

    assert "foreign" in kinds(history)


def test_a_copied_row_that_does_not_say_so_is_found(history):
    history[2][1]["source"]["snapshot"] = "false"

    assert kinds(history) == {"altered"}


def test_a_column_that_was_never_told_is_found(history):
    del history[4][1]["after"]["n"]

    assert kinds(history) == {"state"}
