"""Marks of a table's copy, where the watermark's transaction is in the log (L34)."""

import msgspec
import pytest

from edge.postgres.snapshot_decoder import SnapshotDecoder
from edge.snapshot.ports import Chunk, DedupWindow
from headrace.configuration.records import Records
from headrace.schema import COPY_BEGINS, COPY_ENDS, TableSchema, copy_mark
from tests.unit.edge.postgres import messages
from tests.unit.edge.postgres.accounts import DEFAULT, primary_key
from tests.unit.edge.postgres.messages import INT8, Column, delete, insert, relation, update

ACCOUNTS = relation(Column("id", INT8, key=True), Column("note", key=True), identity="f")
HUGE = "x" * (2 << 20)


class Copied(msgspec.Struct):
    """What the decoder needs of a table that is copied."""

    oid: int
    messages: tuple[bytes, ...]
    key: tuple[str, ...] = ("id",)


def test_marks_are_schema_records_with_positions_and_ends_of_their_own():
    log = messages.Log()
    log.decoder = SnapshotDecoder(
        source="jakarta/bank",
        database="bank",
        epoch=messages.EPOCH,
        batcher=log.batcher,
        key_of=primary_key,
        records=Records(),
        policy=None,
    )
    table = Copied(oid=int.from_bytes(DEFAULT[1:5], "big"), messages=(DEFAULT,))

    log.feed(messages.begin(messages.COMMIT))
    begins = log.decoder.mark_copy(table, COPY_BEGINS)
    emptied = log.decoder.truncate(table)
    log.feed(messages.commit(messages.COMMIT, messages.END))
    log.feed(messages.begin(messages.END))
    ends = log.decoder.mark_copy(table, COPY_ENDS)
    log.feed(messages.commit(messages.END, messages.END + 1))

    found = log.records()
    assert [record.position for record in found if "transaction" in record.value] == [begins, emptied, ends]
    first, last = (record.value for record in found if "op" not in record.value and "transaction" in record.value)
    marks = [copy_mark(msgspec.json.encode(value)) for value in (first, last)]
    assert marks == [COPY_BEGINS, COPY_ENDS]
    assert ("last" in first["transaction"], last["transaction"]["last"]) == (False, True)
    assert TableSchema.parse(msgspec.json.encode(last)).key == ["id"]
    assert last["source"]["position"] == str(ends)


@pytest.mark.parametrize(
    "change",
    [delete(old=(7, HUGE)), update((7, HUGE), old=(7, "a")), update((7, HUGE))],
    ids=["delete", "update", "new row alone"],
)
def test_a_change_too_large_for_a_record_has_the_chunk_that_may_be_older_read_again(change):
    log = messages.Log()
    log.decoder = SnapshotDecoder(
        source="jakarta/bank",
        database="bank",
        epoch=messages.EPOCH,
        batcher=log.batcher,
        key_of=primary_key,
        records=Records(largest_megabytes=1),
        policy=None,
    )
    log.feed(messages.begin(messages.COMMIT), ACCOUNTS, insert(6, "a"))
    window = DedupWindow()
    log.decoder.watch(Copied(oid=int.from_bytes(ACCOUNTS[1:5], "big"), messages=(ACCOUNTS,)), window)
    window.open()
    log.feed(insert(8, "b"))
    assert (window.altered, window.keeps(b'{"id":7}'), window.keeps(b'{"id":8}')) == (False, True, False)
    log.feed(change)
    assert window.altered or not window.keeps(b'{"id":7}')


def test_a_truncate_ahead_of_a_moments_first_rows_has_another_moment_chosen():
    decoder, window = object.__new__(SnapshotDecoder), DedupWindow()
    decoder._before = ()
    chunk = Chunk(table=None, rows=[], size=0, last=None, end=True, seen=None, lacks=lambda _: False)
    window.open()
    assert decoder.fits(chunk, window)
    window.truncate()
    assert not decoder.fits(chunk, window)
