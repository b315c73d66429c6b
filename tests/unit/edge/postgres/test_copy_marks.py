"""Marks of a table's copy, where the watermark's transaction is in the log (L34)."""

from dataclasses import replace

import msgspec
import pytest

from edge.postgres.snapshot_decoder import SnapshotDecoder
from edge.snapshot.ports import Chunk, DedupWindow
from edge.snapshot.table_history import TableHistory
from headrace.schema import COPY_BEGINS, COPY_ENDS, TableSchema, copy_mark
from tests.unit.edge.postgres import messages
from tests.unit.edge.postgres.accounts import DEFAULT, primary_key
from tests.unit.edge.postgres.messages import INT8, Column, delete, insert, relation, update
from tests.unit.edge.snapshot.test_copies_after_alterations import snapshot_table

ACCOUNTS = relation(Column("id", INT8, key=True), Column("note", key=True), identity="f")
HUGE = "x" * (2 << 20)


class Copied(msgspec.Struct):
    """What the decoder needs of a table that is copied."""

    oid: int
    messages: tuple[bytes, ...]
    key: tuple[str, ...] = ("id",)


def test_marks_are_schema_records_with_positions_and_ends_of_their_own():
    log = messages.Log(kind=SnapshotDecoder, key_of=primary_key)
    table = Copied(oid=int.from_bytes(DEFAULT[1:5], "big"), messages=(DEFAULT,))

    log.feed(messages.begin(messages.COMMIT))
    begins = log.decoder.mark_copy(table, COPY_BEGINS)
    emptied = log.decoder.truncate(table)
    log.feed(messages.commit(messages.COMMIT, messages.END))
    log.feed(messages.begin(messages.END))
    ends = log.decoder.mark_copy(table, COPY_ENDS)
    log.feed(messages.commit(messages.END, messages.END + 1))

    records = log.records()
    assert [record.position for record in records if "transaction" in record.value] == [begins, emptied, ends]
    first, last = (record.value for record in records if "op" not in record.value and "transaction" in record.value)
    marks = [copy_mark(msgspec.json.encode(value)) for value in (first, last)]
    assert marks == [COPY_BEGINS, COPY_ENDS]
    assert ("last" in first["transaction"], last["transaction"]["last"]) == (False, True)
    assert TableSchema.parse(msgspec.json.encode(last)).key == ["id"]
    assert last["source"]["position"] == str(ends)


@pytest.mark.parametrize(
    ("change", "keys"),
    [
        (delete(old=(7, HUGE)), [7]),
        (update((7, HUGE), old=(7, "a")), [7]),
        (update((7, "a"), old=(7, HUGE)), [7]),
        (update((9, HUGE), old=(7, "a")), [7, 9]),
        (update((7, HUGE)), [7]),
    ],
    ids=["delete", "update", "old row", "another key", "new row alone"],
)
def test_a_change_too_large_for_a_record_leaves_its_rows_out_of_the_chunk_which_need_not_be_read_again(change, keys):
    """Q3: where such changes come steadily, a chunk that is read again for each of them would be read for ever."""
    log = messages.Log(kind=SnapshotDecoder, key_of=primary_key, largest_megabytes=1)
    log.feed(messages.begin(messages.COMMIT), ACCOUNTS, insert(6, "a"))
    window = DedupWindow()
    log.decoder.watch(Copied(oid=int.from_bytes(ACCOUNTS[1:5], "big"), messages=(ACCOUNTS,)), window)
    window.open()
    log.feed(insert(8, "b"))
    assert (window.altered, window.keeps(b'{"id":7}'), window.keeps(b'{"id":8}')) == (False, True, False)
    log.feed(change)
    assert not window.altered
    assert [key for key in (7, 9, 10) if not window.keeps(b'{"id":%d}' % key)] == keys


NO_KEY = relation(Column("id", INT8, key=True), Column("note", key=True), identity="f")


def watched_without_a_key(log):
    """Begin a transaction in the log, with an open window of a table without a key; return table and window."""
    table = replace(snapshot_table(NO_KEY), count=2, key=(), key_names=())
    window = DedupWindow()
    window.keeps_changes = True
    log.feed(messages.begin())
    log.decoder.watch(table, window)
    window.open()
    return table, window


@pytest.mark.parametrize(
    "change",
    [insert(7, HUGE), delete(old=(7, HUGE)), update((7, HUGE), old=(6, "a")), insert(7, b"secret \xff")],
    ids=["insert", "delete", "update", "undecodable"],
)
def test_of_a_table_without_a_key_it_is_kept_and_is_a_dead_letter_behind_the_beginning(change, tmp_path):
    """Q3: where such changes come steadily, no moment would be good enough; M2: what cannot be decoded is one as well."""
    history = TableHistory(tmp_path, "jakarta/bank")
    history.begin(messages.EPOCH, 0)
    log = messages.Log(kind=SnapshotDecoder, key_of=lambda _: [], largest_megabytes=1, history=history)
    table, window = watched_without_a_key(log)
    log.feed(NO_KEY, insert(1, "a"), change)
    assert not window.altered
    assert sum(size for _, _, size in window.kept) < 1 << 20
    chunk = Chunk(table=table, rows=[b"6\ta"], size=1, last=None, end=True, lacks=lambda _: True)
    assert log.decoder.fits(chunk, window)
    log.decoder.put(chunk, window)
    log.feed(messages.commit())

    changes = [it.value for it in log.changes()]
    streamed, put = ([it for it in changes if it["source"]["snapshot"] == kind] for kind in ("false", "incremental"))
    kept, copied = put[:-1], put[-1]
    assert [it["op"] for it in kept] == ["r", {"c": "r"}.get(streamed[1]["op"], streamed[1]["op"])]
    assert [kept[1]["too_large"].get(name) for name in ("sha256", "column")] == [
        streamed[1]["too_large"].get(name) for name in ("sha256", "column")
    ]
    assert kept[1]["after"] == (None if kept[1]["op"] == "d" else {})
    assert copied["after"] == {"id": 6, "note": "a"}


def test_a_first_chunk_without_rows_is_acknowledged_with_the_changes_that_the_moment_lacks():
    """Q3: it counted as acknowledged with the truncate ahead of it; after a kill the changes were in no record behind that."""
    log = messages.Log(kind=SnapshotDecoder, key_of=lambda _: [])
    table, window = watched_without_a_key(log)
    log.feed(NO_KEY, insert(1, "a"), insert(2, "b"))
    log.decoder.truncate(table)
    chunk = Chunk(table=table, rows=[], size=0, last=None, end=True, lacks=lambda _: True)
    put = log.decoder.put(chunk, window)
    none = log.decoder.put(replace(chunk, lacks=lambda _: False), window)
    log.feed(messages.commit())

    copied = [it.position for it in log.changes() if it.value["op"] == "r"]
    assert (len(copied), put.position, none.position) == (2, copied[-1], None)


def test_a_truncate_ahead_of_a_moments_first_rows_has_another_moment_chosen():
    decoder, window = object.__new__(SnapshotDecoder), DedupWindow()
    decoder._before = ()
    chunk = Chunk(table=None, rows=[], size=0, last=None, end=True, seen=None, lacks=lambda _: False)
    window.open()
    assert decoder.fits(chunk, window)
    window.truncate()
    assert not decoder.fits(chunk, window)
