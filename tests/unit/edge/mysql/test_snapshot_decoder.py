"""Chunks beside a binlog: where they are put into the stream, and what of them is left out or read again."""

import json
import struct
from dataclasses import replace

import pytest

from edge.mysql.checkpoint import MariadbGtids, MysqlGtids, place
from edge.mysql.coverage import Chosen
from edge.mysql.snapshot_decoder import SnapshotDecoder, SnapshotOrdinals
from edge.mysql.snapshot_reader import Watermark
from edge.mysql.snapshot_rows import Catalogued
from edge.mysql.table_cache import TableCache
from edge.records.batcher import Batcher
from edge.records.cloud_events import CloudEvents
from edge.records.column_policy import Policy
from edge.snapshot.ports import Chunk, DedupWindow
from edge.snapshot.table_history import TableHistory
from headrace.batch import decode
from headrace.configuration.edge import Policy as Section
from headrace.configuration.edge import Records
from headrace.errors import CorruptInput
from headrace.position import Position
from headrace.schema import COPY_BEGINS, COPY_ENDS, TableSchema, copy_mark
from tests.unit.edge.mysql import events
from tests.unit.edge.mysql.chunks import ID, NOTE, packet, table, without_key

# GTID sets.


def test_a_set_covers_another():
    maria, mysql = MariadbGtids.parse, MysqlGtids.parse
    uuid = events.SERVER_UUID

    assert maria("0-1-5,2-1-9").covers(maria("0-2-5"))
    assert not maria("0-1-5").covers(maria("0-1-6"))
    assert not maria("0-1-5").covers(maria("1-1-1"))
    assert mysql(f"{uuid}:1-9:20-30").covers(mysql(f"{uuid}:2-3:20-30"))
    assert not mysql(f"{uuid}:1-9:20-30").covers(mysql(f"{uuid}:9-20"))


# The stream.

FIELDS = (
    events.Column("id", 3, unsigned=False),
    events.Column("note", 252, b"\2", collation=45),
)


class Stream:
    """A decoder at place 7:4, with a table's chunks put by `chunk`."""

    def __init__(self, folder, mariadb=True, history=None, **records):
        policy = Policy(Section())
        events_of = CloudEvents("jakarta/bank") if records.get("cloudevents") else None
        self.batcher = Batcher(source="jakarta/bank", tail=Position.start(1), events=events_of)
        self.tables = TableCache(
            connector="mariadb" if mariadb else "mysql",
            source="jakarta/bank",
            chosen=Chosen([], [], policy),
            policy=policy,
            records=Records(),
            charset_of=events.CHARSETS.__getitem__,
            kinds_of=lambda _database, _table: {},
            type_of=lambda _database, _table: "BASE TABLE",
        )
        self.decoder = SnapshotDecoder(
            prepared_reader=events.EmptyLog(),
            ordinals=SnapshotOrdinals(folder),
            server_id=5,
            epoch=1,
            base="binlog",
            after=place(7, 4),
            batcher=self.batcher,
            tables=self.tables,
            mariadb=mariadb,
            largest=1 << 20,
            records=Records(**records),
            history=history,
        )
        self.window = DedupWindow()
        self.copied = self.tables.copied(table())
        self.marked = []
        self.decoder.on_watermark = self.marked.append

    def feed(self, *found):
        for each in found:
            self.decoder.feed_and_arrive(each, len(each), events.NOW_MS)

    def change(self, number, id_, begins, ends, kind=23):
        """Feed a transaction with an insert."""
        image = b"\0" + struct.pack("<i", id_) + struct.pack("<H", 1) + b"s"
        self.feed(
            events.mariadb_gtid(number, begins),
            events.table_map(*FIELDS),
            events.rows(kind, 2, image),
            events.xid(ends),
        )

    def chunk(self, *rows, seen=7 << 32 | 4):
        return Chunk(table=self.copied, rows=[packet(*row) for row in rows], size=1, last=None, end=True, seen=seen)

    def reported(self):
        return [value for value in self.batcher.values if value and b'"op"' in value]


def test_a_watermark_comes_back_between_the_first_transactions_behind_its_place(tmp_path):
    stream = Stream(tmp_path)
    stream.decoder.watermarks.append(Watermark(b"w", place(7, 150), 1))

    stream.change(1, 1, 46, 140)
    before = list(stream.marked)
    stream.feed(events.mariadb_gtid(2, 182), events.table_map(*FIELDS))
    within = list(stream.marked)
    stream.feed(events.xid(220))

    assert (before, within, stream.marked) == ([], [], [b"w"])


def test_a_watermark_at_a_place_that_is_reached_comes_back_without_an_event(tmp_path):
    stream = Stream(tmp_path)
    stream.decoder.watermarks.append(Watermark(b"w", place(7, 4), 1))

    stream.decoder.arrive(events.NOW_MS)

    assert stream.marked == [b"w"]


def test_chunks_at_one_place_have_positions_of_their_own_and_a_last_row_each(tmp_path):
    stream = Stream(tmp_path)
    first = stream.decoder.put(stream.chunk((b"1", b"a"), (b"2", None)), stream.window)
    second = stream.decoder.put(stream.chunk((b"3", b'"\xc3\xbc')), stream.window)

    assert first.position == Position(1, place(7, 4), 1)
    assert second.position == Position(1, place(7, 4), 2)
    one, two, three = stream.reported()
    assert b'"after":{"id":1,"note":"a"}' in one
    assert b'"note":null' in two
    assert b'"note":"\\"\xc3\xbc"' in three
    assert [b'"last":true' in value for value in (one, two, three)] == [False, True, True]
    assert b'"snapshot":"incremental"' in one
    assert b'"gtid":null,"file":"binlog.000007","pos":4,"row":1' in two
    assert b'"transaction":{"id":"binlog.000007:4:2","total_order":1,' in three


def test_rows_that_the_log_told_in_the_window_are_left_out(tmp_path):
    stream = Stream(tmp_path)
    stream.decoder.watch(stream.copied, stream.window)
    stream.window.open()
    stream.change(1, 2, 46, 140)

    put = stream.decoder.put(stream.chunk((b"1", b"a"), (b"2", b"b")), stream.window)

    assert put.position == Position(1, place(7, 140), 0)
    assert [b'"id":2' in value for value in stream.reported()] == [True, False]
    assert len([value for value in stream.batcher.values if b"tableChanges" in value]) == 1


def test_a_chunk_that_missed_a_transaction_ahead_of_its_window_is_read_again(tmp_path):
    stream = Stream(tmp_path)
    stream.change(1, 2, 46, 140)
    stream.decoder.window_opened()

    assert not stream.decoder.fits(stream.chunk(seen=place(7, 4)), stream.window)
    assert stream.decoder.fits(stream.chunk(seen=place(7, 140)), stream.window)


def test_a_chunk_of_mysqls_that_missed_a_transaction_is_read_again(tmp_path):
    stream = Stream(tmp_path, mariadb=False)
    stream.feed(events.mysql_gtid(3, 80), events.query("BEGIN", 120), events.xid(140))
    stream.decoder.window_opened()

    def seen(gtids):
        return stream.chunk(seen=MysqlGtids.parse(f"{events.SERVER_UUID}:{gtids}"))

    assert not stream.decoder.fits(seen("1-2"), stream.window)
    assert stream.decoder.fits(seen("1-3"), stream.window)


def test_a_chunk_of_mysqls_that_missed_a_transaction_long_ago_is_read_again(tmp_path):
    stream = Stream(tmp_path, mariadb=False)
    for number in range(5000):
        end = 80 + 60 * number
        stream.feed(events.mysql_gtid(number + 1, end), events.query("BEGIN", end + 20), events.xid(end + 40))
    stream.decoder.window_opened()

    def seen(gtids):
        return stream.chunk(seen=MysqlGtids.parse(f"{events.SERVER_UUID}:{gtids}"))

    assert not stream.decoder.fits(seen("1-9:11-5000"), stream.window)
    assert stream.decoder.fits(seen("1-5000"), stream.window)


@pytest.mark.parametrize(
    ("words", "fits"),
    [
        ("ALTER TABLE `Accounts` ADD x int", False),
        ("truncate bank.accounts", False),
        ("create table other (i int)", True),
    ],
)
def test_a_statement_that_names_the_table_has_the_chunk_read_again(tmp_path, words, fits):
    stream = Stream(tmp_path)
    stream.decoder.watch(stream.copied, stream.window)
    stream.window.open()

    stream.feed(events.mariadb_gtid(1, 46, standalone=True), events.query(words, 140, database="bank"))

    assert stream.decoder.fits(stream.chunk(), stream.window) is fits


def test_a_row_that_is_none_is_damage_of_its_table(tmp_path):
    stream = Stream(tmp_path)
    with pytest.raises(CorruptInput, match=r"bank\.accounts"):
        stream.decoder.put(stream.chunk((b"1",)), stream.window)


def test_a_copied_row_that_cannot_be_decoded_is_a_dead_letter(tmp_path):
    """M2: it ended the edge."""
    history = TableHistory(tmp_path, "jakarta/bank")
    history.begin(1, 0)
    stream = Stream(tmp_path, history=history)
    swe7 = NOTE._replace(charset="swe7", collation="swe7_bin")
    copied = stream.tables.copied(table(columns=(ID, swe7)))
    rows = [packet(b"1", None), packet(b"2", b"secret"), packet(b"3", None)]

    stream.decoder.put(Chunk(table=copied, rows=rows, size=1, last=None, end=True, seen=None), stream.window)

    first, second, third = [json.loads(value) for value in stream.batcher.values[1:]]
    assert (first["after"]["id"], third["after"]["id"], second["op"]) == (1, 3, "r")
    assert (second["after"], second["too_large"]["column"]) == ({"id": 2}, "note")
    assert b"secret" not in b"".join(stream.batcher.values)
    assert "note" in history.warnings["bank.accounts"]


def test_bytes_that_are_no_characters_are_copied_as_the_stream_has_them(tmp_path):
    """M2."""
    stream = Stream(tmp_path)
    stream.decoder.put(stream.chunk((b"1", b"a\xff")), stream.window)

    assert '"a\ufffd"' in stream.batcher.values[-1].decode()


def test_a_chunk_begins_and_ends_as_other_transactions_do_where_that_is_told(tmp_path):
    stream = Stream(tmp_path, transactions=True)
    first = stream.decoder.put(stream.chunk((b"1", b"a"), (b"2", None)), stream.window)
    second = stream.decoder.put(stream.chunk((b"3", None)), stream.window)

    batch = stream.batcher.seal()
    reported = [json.loads(value) for value in decode(batch.properties, "zstd", batch.body).values]
    assert [value.get("status") or value.get("op", "schema") for value in reported] == [
        "BEGIN", "schema", "r", "r", "END", "BEGIN", "r", "END",
    ]  # fmt: skip
    assert [value["event_count"] for value in reported if value.get("status") == "END"] == [2, 1]
    assert (first.position.ordinal, second.position.ordinal) == (1, 3)
    assert [value["id"] for value in reported if "status" in value] == ["binlog.000007:4:0"] * 2 + [
        "binlog.000007:4:3"
    ] * 2


def test_a_mark_is_counted_at_its_transactions_end_and_is_of_no_table(tmp_path):
    """L34."""
    stream = Stream(tmp_path, transactions=True)
    stream.decoder.mark_copy(stream.copied, COPY_BEGINS)
    put = stream.decoder.put(stream.chunk((b"1", b"a")), stream.window)

    records = [json.loads(value) for value in stream.batcher.values if value]
    assert [value.get("status") or value.get("op", "schema") for value in records] == [
        "BEGIN", "schema", "END", "BEGIN", "schema", "r", "END",
    ]  # fmt: skip
    assert (records[2]["event_count"], records[2]["data_collections"]) == (1, [])
    assert put.position.ordinal == 2


def test_a_copys_marks_are_schema_records_with_positions_of_their_own(tmp_path):
    """L34."""
    stream = Stream(tmp_path)
    begins = stream.decoder.mark_copy(stream.copied, COPY_BEGINS)
    stream.decoder.put(stream.chunk((b"1", b"a")), stream.window)
    ends = stream.decoder.mark_copy(stream.copied, COPY_ENDS)

    assert (begins.ordinal, ends.ordinal) == (0, 2)
    marks = [value for value in stream.batcher.values if value and b"_in_data_collection" in value]
    assert [copy_mark(value) for value in marks] == [COPY_BEGINS, COPY_ENDS]
    for value, position in zip(marks, (begins, ends), strict=True):
        record = json.loads(value)
        assert record["source"]["position"] == str(position)
        assert "op" not in record
        assert (record["transaction"]["total_order"], record["transaction"]["last"]) == (1, True)
        assert TableSchema.parse(value) == stream.tables.current_table(stream.copied).schema


def test_an_undecodable_change_that_the_moment_of_a_table_without_a_key_lacks_is_a_dead_letter_of_the_copy(tmp_path):
    """M2, Q3."""
    history = TableHistory(tmp_path, "jakarta/bank")
    history.begin(1, 0)
    stream = Stream(tmp_path, history=history)
    day = Catalogued("day", "date", "date", "YES", None, None, None, None, None, None)
    copied = stream.tables.copied(without_key(table(columns=(ID, day))))
    fields = FIELDS[0], events.Column("day", 10)
    good, bad = ((2026 << 9 | month << 5 | 1).to_bytes(3, "little") for month in (11, 15))
    stream.window.keeps_changes = True
    stream.decoder.watch(copied, stream.window)
    stream.window.open()
    image = [b"\0" + struct.pack("<i", number) + value for number, value in enumerate((good, bad, good), 1)]

    def commit(number, kind, images):
        described = events.table_map(*fields, key=())
        begins = events.mariadb_gtid(number, 100 * number)
        stream.feed(begins, described, events.rows(kind, 2, images), events.xid(100 * number + 90))

    commit(1, 23, b"".join(image))
    commit(2, 24, image[1] + image[0])
    commit(3, 25, image[1])
    before = len(stream.reported())
    chunk = Chunk(table=copied, rows=[packet(b"9", None)], size=1, last=None, end=True, seen=1, lacks=lambda _: True)
    put_rows = stream.decoder.put(chunk, stream.window)

    put = [json.loads(value) for value in stream.reported()[before:]]
    assert str(put_rows.position) == put[-1]["source"]["position"]
    assert [(it["op"], (it.get("too_large") or {}).get("column")) for it in put] == [
        ("r", None), ("r", "day"), ("r", None), ("u", None), ("d", None), ("r", None),
    ]  # fmt: skip
    assert [it["after"] for it in put[:3]] == [
        {"id": 1, "day": "2026-11-01"}, {}, {"id": 3, "day": "2026-11-01"},
    ]  # fmt: skip
    assert "day" in history.warnings["bank.accounts"]
    # A first chunk without rows is not acknowledged ahead of them.
    put_lacking = stream.decoder.put(replace(chunk, rows=[]), stream.window)
    assert (
        str(put_lacking.position) == json.loads(stream.reported()[-1])["source"]["position"] != str(put_rows.position)
    )
    assert stream.decoder.put(replace(chunk, rows=[], lacks=lambda _: False), stream.window).position is None
