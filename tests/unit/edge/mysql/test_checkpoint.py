"""GTID sets, as the servers write them and as they are sent (M16), and in the checkpoint: whole at its place, whatever happened
(E3)."""

import contextlib
import errno
import os

import msgspec
import pytest

from edge.delivery.outbox import Outbox
from edge.mysql.checkpoint import GtidProgress, MariadbGtids, Mark, MysqlCheckpoint, MysqlGtids, listed_gtid, place
from edge.mysql.events import Group
from edge.progress.checkpoint import Progress, State
from edge.records.batcher import Batcher
from headrace.errors import CorruptInput, NeedsOperator, NoSpace
from headrace.position import Position

A, B = "3e11fa47-71ca-11e1-9e33-c80aa9429562", "5e11fa47-71ca-11e1-9e33-c80aa9429562"


@pytest.mark.parametrize(
    "text",
    ["", f"{A}:1-9", f"{A}:1-9:12,{B}:4", f"{A}:1-3:heartbeat:1-2:5:nightly:1", f"{A}:heartbeat:7,{B}:1:x_1:2-4"],
)
def test_a_set_is_read_and_written_as_the_server_writes_it(text):
    assert str(MysqlGtids.parse(text)) == text


def test_ranges_and_tags_in_any_order_are_one_set():
    result = MysqlGtids.parse(f"{A}:X:3,\n{A.upper()}:2:1:x:1-2")

    assert str(result) == f"{A}:1-2:x:1-3"
    assert result.has(Group(0, f"{A}:x", 3))
    assert not result.has(Group(0, A, 3))
    assert str(result.with_group(Group(0, f"{A}:x", 4))) == f"{A}:1-2:x:1-4"
    assert result.covers(MysqlGtids.parse(f"{A}:x:2"))
    assert not result.covers(MysqlGtids.parse(f"{A}:y:2"))


@pytest.mark.parametrize(
    "text", [A, f"{A}:", f"{A}:x", f"{A}:1-2:x", f"{A}:9x:1", f"{A}:{'x' * 33}:1", "0-1-2", f"{A}:{'9' * 25}"]
)
def test_what_is_no_set_is_refused(text):
    with pytest.raises(CorruptInput, match="is no GTID set"):
        MysqlGtids.parse(text)


@pytest.mark.parametrize("number", ["9" * 21, "9" * 5000, "\u0663"])
def test_a_number_that_no_server_has_is_refused(number):
    """`int` takes no more than 4300 digits, and other digits than ours."""
    for text in (f"0-5-{number}", f"{number}-5-1"):
        with pytest.raises(CorruptInput, match="is no GTID"):
            MariadbGtids.parse(text)
    with pytest.raises(CorruptInput, match="is no GTID set"):
        MysqlGtids.parse(f"{A}:{number}")


def test_without_tags_a_set_is_sent_as_every_server_reads_it():
    whole = bytes.fromhex(A.replace("-", ""))
    assert MysqlGtids.parse(f"{A}:1-9").encoded() == (
        (1).to_bytes(8, "little") + whole + b"".join(part.to_bytes(8, "little") for part in (1, 1, 10))
    )


def test_with_tags_each_origin_is_sent_with_its_own():
    whole = bytes.fromhex(A.replace("-", ""))
    assert MysqlGtids.parse(f"{A}:1-9:tag:5").encoded() == (
        b"\x01\x02\x00\x00\x00\x00\x00\x01"
        + whole + b"\x00" + b"".join(part.to_bytes(8, "little") for part in (1, 1, 10))
        + whole + b"\x06tag" + b"".join(part.to_bytes(8, "little") for part in (1, 5, 6))
    )  # fmt: skip


@pytest.mark.parametrize(
    ("left", "expected"),
    [("0-1-9,5-1-2", True), ("0-1-9", True), ("5-1-2", True), ("0-1-8", False), ("0-1-9,6-1-1", False), ("", False)],
)
def test_domains_may_be_deleted_from_a_log_and_nothing_else(left, expected):
    assert MariadbGtids.parse(left).is_left_of(MariadbGtids.parse("0-1-9,5-1-2")) is expected


def test_a_log_without_any_transaction_is_that_of_an_empty_set():
    assert MariadbGtids.parse("").is_left_of(MariadbGtids.parse(""))
    assert not MariadbGtids.parse("").is_left_of(MysqlGtids.parse(""))


def test_what_another_server_lacks_is_the_last_of_each_domain_that_it_has():
    known = MariadbGtids.parse("0-1-9,5-1-2,7-1-1")
    assert known.missing_in(MariadbGtids.parse("0-2-8,5-1-3")) == "0-1-9"
    assert known.missing_in(MariadbGtids.parse("0-1-9,5-1-2,7-1-1")) == ""
    assert str(MariadbGtids.parse("0-1-9,5-1-2").joined(MariadbGtids.parse("0-2-8,5-1-3,7-1-1"))) == "0-1-9,5-1-3,7-1-1"


@pytest.mark.parametrize(
    ("kind", "info", "expected"),
    [
        ("Gtid", f"SET @@SESSION.GTID_NEXT= '{A}:7'", f"{A}:7"),
        ("Gtid_tagged_log_event", f"SET @@SESSION.GTID_NEXT= '{A}:rds:7'", f"{A}:rds:7"),
        ("Gtid", "BEGIN GTID 0-1-7 cid=22", "0-1-7"),
        ("Gtid", "XA START X'78',X'',1 GTID 3-1-7", "3-1-7"),
        ("Gtid_list", "[0-1-7]", None),
        ("Query", f"select '{A}:7'", None),
    ],
)
def test_an_event_that_begins_a_transaction_shows_its_gtid(kind, info, expected):
    result = listed_gtid(kind, info)
    assert (None if result is None else str(result)) == expected


UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
SOURCE = "jakarta/bank"


def start(engine, gtids):
    return MysqlCheckpoint(
        source=SOURCE, stage="made", acknowledged=str(Position(7, place(1, 500), 0)), engine=engine, gtids=gtids,
        file="binlog.000001", offset=600, server_id=1, server="x",
    )  # fmt: skip


class Edge:
    """Window, progress and checkpoint of an edge, without its server and its far side."""

    def __init__(self, folder, engine="mariadb", gtids="0-1-10"):
        self.engine = engine
        checkpoint = start(engine, gtids)
        self.state = State(folder, MysqlCheckpoint)
        self.state.write(checkpoint)
        self.gtids = GtidProgress()
        self.outbox = Outbox(limit_bytes=1 << 20, tail=checkpoint.position, confirmed=checkpoint.confirmed)
        self.progress = Progress(self.state, checkpoint, self.outbox, self.gtids.advanced)
        self.batcher = Batcher(source=SOURCE, tail=checkpoint.position)

    def read(self, number, end):
        """Read a transaction that ends at an offset, send it, and have it acknowledged."""
        self.batcher.begin(place(1, end - 100), 1)
        self.batcher.keys.append(b"k")
        self.batcher.values.append(b"{}")
        self.batcher.commit(place(1, end))
        self.gtids.marks.append(Mark(place(1, end), Group(0, "1" if self.engine == "mariadb" else UUID, number)))
        self.outbox.put([self.batcher.seal()])
        delivery, _ = self.outbox.take()
        self.outbox.accepted(delivery)

    @property
    def durable(self):
        """GTID set and offset as they are on disk."""
        result = self.state.read(SOURCE)
        return result.gtids, result.offset


@pytest.fixture
def full_disk(monkeypatch):
    """Return a context in which the disk of the state folder takes nothing."""

    def full(_descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    @contextlib.contextmanager
    def context():
        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", full)
            yield

    return context


@pytest.mark.parametrize(
    ("engine", "begin", "end"), [("mariadb", "0-1-10", "0-1-11"), ("mysql", f"{UUID}:1-10", f"{UUID}:1-11")]
)
def test_a_write_that_failed_leaves_no_transaction_out_of_the_next_one(tmp_path, full_disk, engine, begin, end):
    edge = Edge(tmp_path, engine, begin)
    edge.read(11, 900)

    with full_disk():
        edge.progress.save_now()
        edge.progress.save_now()
    assert edge.durable == (begin, 600)
    edge.progress.save_now()

    assert edge.durable == (end, 900)


def test_transactions_that_are_acknowledged_while_the_disk_is_full_are_all_in_the_set(tmp_path, full_disk):
    edge = Edge(tmp_path, "mysql", f"{UUID}:1-10")

    with full_disk():
        for number in range(11, 16):
            edge.read(number, number * 100)
            edge.progress.save_now()
    edge.read(17, 1700)
    edge.progress.save_now()

    assert edge.durable == (f"{UUID}:1-15:17", 1700)


def test_a_session_that_follows_a_full_disk_starts_after_what_the_former_one_had_acknowledged(tmp_path, full_disk):
    edge = Edge(tmp_path)
    edge.read(11, 900)

    with full_disk(), pytest.raises(NoSpace):
        edge.progress.restart()
    edge.progress.restart()

    assert edge.durable == ("0-1-11", 900)


def test_what_is_read_and_not_acknowledged_is_in_no_set_and_is_forgotten_by_the_next_session(tmp_path):
    edge = Edge(tmp_path)
    edge.gtids.marks.append(Mark(place(1, 900), Group(0, "1", 11)))
    edge.progress.restart()
    edge.gtids.restart()
    edge.read(11, 900)
    edge.progress.save_now()

    assert edge.durable == ("0-1-11", 900)
    assert edge.progress.checkpoint.place == "0-1-11 (binlog.000001:900)"


def test_a_long_time_without_a_write_takes_no_memory_for_each_transaction(tmp_path, full_disk):
    edge = Edge(tmp_path)

    with full_disk():
        for number in range(11, 2011):
            edge.read(number, number * 100)
            edge.progress.save_now()

    assert len(edge.gtids.marks) == 0
    edge.progress.save_now()
    assert edge.durable == ("0-1-2010", 201000)


@pytest.mark.parametrize(
    ("engine", "gtids", "offset"), [("mariadb", "0-5=9", 4), ("mysql", f"{UUID[:-2]}:1-9", 4), ("mysql", "", -1)]
)
def test_a_checkpoint_whose_set_or_place_is_none_is_damage(tmp_path, engine, gtids, offset):
    """Found by fuzzing: the set was read only when the log was, and its error named no file."""
    state = State(tmp_path, MysqlCheckpoint)
    state.write(msgspec.structs.replace(start(engine, gtids), offset=offset))
    with pytest.raises(NeedsOperator, match=r"checkpoint .* is damaged"):
        state.read(SOURCE)


def test_the_time_at_which_a_file_was_begun_is_that_of_the_checkpoints_file():
    gtids, first = GtidProgress(), msgspec.structs.replace(start("mariadb", "0-1-10"), file_created=50)
    moved = gtids.advanced(first, first.position, place(1, 700))
    gtids.created[2] = 60
    next_file = gtids.advanced(moved, first.position, place(2, 300))
    unread = gtids.advanced(next_file, first.position, place(3, 4))

    assert [each.file_created for each in (moved, next_file, unread)] == [50, 60, msgspec.UNSET]
