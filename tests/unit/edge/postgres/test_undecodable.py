"""M2: a value that cannot be decoded concerns its row alone: a dead letter with table, place and column, never the value."""

from dataclasses import replace

import pytest

from edge.postgres.snapshot_decoder import SnapshotDecoder
from edge.snapshot.ports import Chunk, DedupWindow
from edge.snapshot.table_history import TableHistory
from headrace.configuration.edge import Records
from headrace.errors import CorruptInput, NeedsOperator
from tests.unit.edge.postgres.messages import EPOCH, INT8, Column, Log, begin, commit, delete, insert, relation, update
from tests.unit.edge.snapshot.test_copies_after_alterations import snapshot_table

COLUMNS = [Column("id", INT8, key=True), Column("data", 17), Column("note"), Column("day", 1082)]
TABLE = relation(*COLUMNS)
FULL = relation(*(column._replace(key=True) for column in COLUMNS), identity="f")
GOOD, NO_BYTES, NO_TEXT = (1, "\\x00ff", "ok", None), (2, "secret", "ok", None), (2, "\\x00", b"secret \xff", None)


@pytest.fixture
def history(tmp_path):
    table_history = TableHistory(tmp_path, "jakarta/bank")
    table_history.begin(EPOCH, 0)
    return table_history


def a_log(history, **options):
    return Log(history=history, key_of=lambda _: ["id"], **options)


def shown(changes):
    return [(it.value["op"], it.key, (it.value.get("too_large") or {}).get("column")) for it in changes]


@pytest.mark.parametrize("many", [1, 300], ids=["exact", "compiled"])
@pytest.mark.parametrize("envelope", ["headrace", "debezium"])
@pytest.mark.parametrize(("row", "column"), [(NO_BYTES, "data"), (NO_TEXT, "note")])
def test_a_value_that_cannot_be_decoded_is_a_dead_letter(history, caplog, many, envelope, row, column):
    log = a_log(history, envelope=envelope)
    log.transaction(TABLE, *[insert(*GOOD)] * many, insert(*row), update(row), insert(*GOOD))

    changes = log.changes()
    assert shown(changes[many:]) == [("c", {"id": 2}, column), ("u", {"id": 2}, column), ("c", {"id": 1}, None)]
    assert changes[many].value["after"] == {"id": 2}
    assert changes[many].value["unchanged"] == ["data", "note", "day"]
    assert changes[many].value["too_large"]["sha256"] == ""
    assert [change.position.ordinal for change in changes] == list(range(many + 3))
    assert changes[-1].value["transaction"]["last"] is True
    assert log.batcher.dead_letters == 2
    assert column in history.warnings["public.accounts"]
    assert f"(column {column})" in caplog.text
    assert "secret" not in caplog.text


def test_a_value_in_binary_form_ends_where_its_length_says(history):
    log = a_log(history)
    binary = insert(*GOOD).replace(b"t\0\0\0\2ok", b"b\0\0\0\2ok")
    log.transaction(TABLE, binary, insert(*GOOD))

    assert shown(log.changes()) == [("c", {"id": 1}, "note"), ("c", {"id": 1}, None)]


def test_a_row_that_is_put_right_or_deleted_needs_no_dead_letter(history):
    log = a_log(history)
    log.transaction(FULL, update(GOOD, old=(1, "secret", "ok", None)), delete(old=NO_BYTES))

    put_right, deleted = log.changes()
    assert put_right.value["before"] == {"id": 1, "note": "ok", "day": None}
    assert put_right.value["after"] == {"id": 1, "data": "AP8=", "note": "ok", "day": None}
    assert (deleted.value["op"], deleted.key) == ("d", {"id": 2})
    assert history.warnings == {}


def test_a_changed_key_is_a_delete_and_a_dead_letter(history):
    log = a_log(history, key_change="delete-create")
    log.transaction(TABLE, update(NO_BYTES, key=(1, None, None, None)))

    assert shown(log.changes()) == [("d", {"id": 1}, None), ("c", {"id": 2}, "data")]


def test_a_key_that_cannot_be_decoded_leaves_its_change_out_and_its_table_needs_a_copy(history):
    log = a_log(history)
    keyed = relation(Column("id", 17, key=True), Column("note"))
    log.transaction(keyed, insert("\\x00", "a"), insert("secret", "b"), insert("\\x01", "c"))

    values = [record.value for record in log.records()]
    assert [value.get("op", value.get("rewritten")) for value in values][1:] == ["c", values[2]["rewritten"], "c"]
    assert "column id, of the key" in values[2]["rewritten"][0]
    assert "column id" in history.warnings["public.accounts"]


@pytest.mark.parametrize("time", ["nanoseconds"])
def test_a_value_without_a_form_by_the_configuration_is_one_too(history, time):
    log = a_log(history, time=time)
    log.transaction(
        relation(Column("id", INT8, key=True), Column("at", 1114)), insert(1, "3026-01-01 00:00:00"), insert(2, None)
    )

    assert shown(log.changes()) == [("c", {"id": 1}, "at"), ("c", {"id": 2}, None)]


def test_of_a_row_whose_end_cannot_be_found_nothing_is_guessed(history):
    log = a_log(history)
    log.feed(begin(), TABLE)
    for message in (insert(*NO_BYTES)[:-1], insert(*NO_BYTES) + b"n", insert(*NO_BYTES).replace(b"n", b"?")):
        with pytest.raises(CorruptInput):
            log.feed(message)
    assert log.batcher.values == []


@pytest.mark.parametrize("row", [NO_BYTES, NO_TEXT])
def test_who_wants_the_source_to_stop_gets_that(history, row):
    log = a_log(history, on_too_large="stop")
    log.feed(begin(), TABLE)
    with pytest.raises((CorruptInput, NeedsOperator)):
        log.feed(insert(*row))


def test_a_copied_row_is_a_dead_letter_and_the_copy_goes_on(history):
    log = a_log(history, kind=SnapshotDecoder)
    table = replace(snapshot_table(TABLE), count=4)
    log.feed(begin())
    rows = [b"1\t\\\\x00ff\tok\t\\N", b"2\tsecret\tok\t\\N"]
    log.decoder.put(Chunk(table=table, rows=rows, size=1, last=None, end=True), DedupWindow())
    log.feed(commit())

    assert shown(log.changes()) == [("r", {"id": 1}, None), ("r", {"id": 2}, "data")]


def test_a_change_that_is_too_large_as_well_is_a_dead_letter(history):
    log = a_log(history, largest_megabytes=1)
    log.transaction(TABLE, insert(2, "secret", "x" * (2 << 20), None), insert(*GOOD))
    assert [key for _, key, column in shown(log.changes())] == [{"id": 2}, {"id": 1}]
    assert log.batcher.dead_letters == 1


@pytest.mark.parametrize("many", [1, 300], ids=["exact", "compiled"])
def test_an_old_row_that_cannot_be_decoded_does_not_stop_a_copy(history, many):
    log = a_log(history)
    log.decoder = SnapshotDecoder(
        source="jakarta/bank",
        database="bank",
        epoch=EPOCH,
        batcher=log.batcher,
        key_of=lambda _: ["id"],
        records=Records(),
        policy=None,
        history=history,
    )
    window = DedupWindow()
    log.feed(begin(), FULL, *[insert(*GOOD)] * many)
    log.decoder.watch(snapshot_table(FULL), window)
    window.open()
    log.feed(update((2, "\\x00", "ok", None), old=NO_BYTES), commit())
    assert not window.keeps(b'{"id":2}')
