"""From the engine's records to transactions in the batcher.

A transaction is kept until its end is read, in memory or, where it is large, in a file. Its place, from which its position is
made, is that of its end, or with a binlog, which is read again from a beginning alone, one behind that of its beginning. `commit`
is that place less one: above all places before it and below its own, and the same whenever the log is read again. Guarantees that
nothing of a transaction is sent whose end was not read, and that a place is reported only once all before it is in the batcher.
"""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from edge.debezium.checkpoint import BINLOGS, DebeziumCheckpoint, Mark, Marks, has_read, place_of, restart_offset
from edge.debezium.connectors import source_place, was_read
from edge.debezium.frames import (
    MALFORMED,
    RECORD,
    SCHEMA,
    TOPIC_AT,
    Change,
    EngineRecord,
    FrameFile,
    TransactionStatus,
)
from edge.debezium.rows import Rows, Table
from edge.records.transaction_writer import TransactionWriter
from headrace.configuration.databases import UNPROVEN
from headrace.errors import CorruptInput, NeedsOperator
from headrace.formats import UNREADABLE

#: Changes, and their bytes, that are put into batches in one round.
ROUND, ROUND_BYTES = 1000, 4 << 20
#: Size of changes that get there at once.
_RUN_BYTES: Final = 128 << 10
#: After so many seconds in which nothing came a place of Db2's log is whole: it has no heartbeats but those behind changes. Where
#: more time is between two looks, something may have come in it.
_WHOLE_SECONDS, _LOOK_SECONDS = 30.0, 5.0
#: Debezium's topics for what is no change.
TRANSACTION_TOPIC, HEARTBEAT_TOPIC = "headrace.transaction", "__debezium-heartbeat.headrace"
_NO_CHANGES = TRANSACTION_TOPIC.encode(), HEARTBEAT_TOPIC.encode()


class Opened(NamedTuple):
    """A transaction whose end was not read yet."""

    id: str
    changes: FrameFile
    #: The mark of its beginning.
    mark: Mark | None

    def is_at(self, mark: Mark) -> bool:
        """Whether it begins at this place."""
        return self.mark is not None and self.mark.place == mark.place


class Run:
    """Changes of one table in a row, which get into batches at once."""

    def __init__(self, writer: TransactionWriter[Any]) -> None:
        self._writer = writer
        self.table: Table | None = None
        self.are_deletes = False
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        #: Their size; and the first one's number in the transaction.
        self.bytes = self.number = 0

    def begin(self, table: Table, *, are_deletes: bool) -> None:
        """Put what is there into batches, and go on with changes of this table."""
        self.write()
        self.table, self.are_deletes, self.number = table, are_deletes, self._writer.next_numbers(table.name)[0]

    def write(self) -> None:
        """Put what is there into batches."""
        if self.table is not None and self.values:
            self._writer.add_rows(self.table, self.keys, self.values, are_deletes=self.are_deletes)
        self.table, self.keys, self.values, self.bytes = None, [], [], 0


class EngineStream:
    """Takes frames of one process in their order, and writes transactions in rounds."""

    def __init__(
        self, checkpoint: DebeziumCheckpoint, folder: Path, rows: Rows, writer: TransactionWriter[Any], marks: Marks
    ) -> None:
        """The log is read from the checkpoint on."""
        assert checkpoint.offset is not None
        self._connector, self._epoch = checkpoint.connector, checkpoint.position.epoch
        self._folder, self._rows, self._writer, self._run = folder, rows, writer, Run(writer)
        self._marks = marks
        self._is_binlog, self._is_unproven = self._connector in BINLOGS, self._connector in UNPROVEN
        self._offset: dict[str, Any] = msgspec.json.decode(checkpoint.offset[1])
        #: How many heartbeats came behind the newest change.
        self._heartbeats = 0
        #: Since when nothing has come, and when that was last seen, by the monotonic clock.
        self._silent_since = self._looked_at = -math.inf
        #: Its number, and the place where the newest transaction of a binlog begins.
        self._number = self._begun = 0
        self._open: Opened | None = None
        self._writing: Iterator[int] | None = None
        #: Where all is read and in the batcher.
        self.reached = self._began = checkpoint.confirmed
        #: When what is written was read, in milliseconds since 1970.
        self.now_ms = 0

    @property
    def is_writing(self) -> bool:
        """Whether a transaction is put into batches that is not wholly there; take no frame meanwhile."""
        return self._writing is not None

    def write(self) -> int:
        """Put a round of the transaction into batches; return how many changes that were."""
        assert self._writing is not None
        size = count = 0
        while count < ROUND and size < ROUND_BYTES:
            count += 1
            written = next(self._writing, None)
            if written is None:
                self._writing = None
                break
            size += written
        return count

    def take(self, content: bytes) -> None:
        """Take a record's frame; raise CorruptInput for what the engine would not write."""
        self._number += 1
        if self._open is not None and self._is_of_open(self._open, content):
            self._open.changes.add(RECORD, content)
            return
        record = EngineRecord.parse(content)
        if self._is_unproven:
            self._take_of_place(record, content)
        elif record.topic == HEARTBEAT_TOPIC:
            if self._open is None:
                self._reach(self._mark_of(record))
        elif record.topic == TRANSACTION_TOPIC:
            self._take_status(record)
        elif (change := self._rows.parse(record)) is not None and change.op == "t" and self._is_binlog:
            self._take_truncate(record, content)
        elif self._open is not None:
            self._open.changes.add(RECORD, content)
        elif change is not None:
            raise self._without_place(
                "a row of a snapshot" if change.op == "r" else "a change outside of a transaction"
            )

    def _is_of_open(self, opened: Opened, content: bytes) -> bool:
        """Whether a record can only be a change of the transaction that is open; it is parsed when that is written."""
        if self._is_unproven or (self._is_binlog and not opened.changes.count):
            return False
        if not content.startswith(_NO_CHANGES, TOPIC_AT):
            return True
        # Tables may have names that only begin so.
        return EngineRecord.parse(content).topic not in {TRANSACTION_TOPIC, HEARTBEAT_TOPIC}

    def look(self, now: float, *, heard: bool) -> None:
        """Learn whether anything came, be it a part of a frame, at a time of the monotonic clock."""
        if heard or now - self._looked_at > _LOOK_SECONDS:
            self._silent_since = now
        self._looked_at = now
        if self._connector == "db2" and now - self._silent_since > _WHOLE_SECONDS:
            self._end_place()

    @staticmethod
    def _without_place(kind: str) -> NeedsOperator:
        return NeedsOperator(
            f"Debezium's engine sent {kind}, which has no place in its log",
            hint="Leave signals and snapshots of Debezium's out of [source.debezium] properties.",
        )

    def _take_of_place(self, record: EngineRecord, content: bytes) -> None:
        """Take a record of a log whose transactions have no end: what is of one place is one (edge/debezium/connectors.py)."""
        if record.topic == HEARTBEAT_TOPIC:
            self._heartbeats += 1
            mark = self._mark_of(record)
            if self._open is None or self._open.mark is None:
                # What is at its place may still come, unless it was sent.
                self._reach(mark._replace(place=mark.place - 1))
            elif mark.place > self._open.mark.place or (self._heartbeats > 1 and self._connector != "mongodb"):
                self._end_place()
            return
        change = None if record.topic == TRANSACTION_TOPIC else self._rows.parse(record)
        if change is None:
            return
        if change.op == "r":
            raise self._without_place("a row of a snapshot")
        self._heartbeats = 0
        mark, offset = self._mark_of(record), msgspec.json.decode(record.offset or b"{}")
        former = self._open.mark if self._open is not None else None
        try:
            place = source_place(change.source, mark.place)
            if place <= self._began and was_read(change.source, offset, self._offset):
                return
            newest = former if former is not None and former.place == place else None
            # SQL Server's changes of a commit may be out of the order by which Debezium passes over them.
            is_before = newest is not None and was_read(change.source, offset, msgspec.json.decode(newest.offset[1]))
        except MALFORMED as error:
            raise CorruptInput(f"a change of {record.topic} names no place in the log") from error
        if self._open is None or newest is None:
            if place <= max(self.reached, former.place if former is not None else 0):
                raise CorruptInput(
                    f"a change of {record.topic} comes behind those of a later place of the log, or when its place was sent",
                    hint="Report it with the source block. To go on, move the checkpoint to another folder, and run 'headrace "
                    "edge init': a new epoch begins, with a new copy.",
                )
            self._end_place()
            self._open = Opened(str(place), FrameFile(self._folder), None)
        self._open.changes.add(RECORD, content)
        # From the newest change on the log is read again: Debezium passes over what its offset has.
        restart = newest.offset if newest is not None and is_before else mark.offset
        self._open = self._open._replace(mark=Mark(place, mark.number, restart))

    def _end_place(self) -> None:
        opened, self._open = self._open, None
        if opened is not None and opened.mark is not None:
            self._end(opened.changes, opened.mark)

    def _take_status(self, record: EngineRecord) -> None:
        try:
            status = msgspec.json.decode(record.value or b"", type=TransactionStatus)
        except UNREADABLE as error:
            raise CorruptInput(
                "a record of Debezium's engine is neither a beginning nor an end of a transaction"
            ) from error
        if status.status == "BEGIN":
            self._begin(record, status)
            return
        if self._open is None or self._open.id != status.transaction:
            raise CorruptInput(f"transaction {status.id} of Debezium's engine ends and has not begun")
        opened, self._open = self._open, None
        changes = opened.changes
        if opened.mark is not None:
            mark = opened.mark._replace(place=opened.mark.place + 1, number=self._number)
        else:
            mark = self._mark_of(record)
        if mark.place < self._began and not self._is_binlog:
            raise NeedsOperator(
                f"transaction {status.id} ends at a place before the checkpoint's: this is another log",
                hint="Did the source fail over? Move the checkpoint to another folder, and run 'headrace edge init': a new epoch "
                "begins.",
            )
        if mark.place > self.reached and status.event_count != changes.count:
            raise CorruptInput(f"transaction {status.id} has {status.event_count} changes, and {changes.count} came")
        self._end(changes, mark)

    def _begin(self, record: EngineRecord, status: TransactionStatus) -> None:
        mark, former = self._mark_of(record) if self._is_binlog else None, self._open
        if mark is not None:
            if mark.place < self._begun:
                # In a file above 4 GB offsets begin again.
                raise CorruptInput(f"transaction {status.id} of Debezium's engine begins ahead of the one before it")
            # Debezium's offset has the transaction as read where it connects again behind the GTID: it would be passed over.
            if not has_read(self._connector, mark.offset[1], status.id):
                self._reach(mark)
            self._begun = mark.place
            if former is not None and former.is_at(mark):
                mark = former.mark
            elif former is not None and former.changes.count:
                # Of tables without transactions, in one that was rolled back.
                raise CorruptInput(f"transaction {former.id} of Debezium's engine has changes and no end")
        self.close()
        self._open = Opened(status.transaction, FrameFile(self._folder), mark)

    def _take_truncate(self, record: EngineRecord, content: bytes) -> None:
        """Take a truncate of a binlog, which is a transaction of its own, without an end, and in MySQL without a beginning."""
        changes = FrameFile(self._folder)
        changes.add(RECORD, content)
        begun = self._open.mark if self._open is not None else None
        # What begins in MariaDB stays open: until the next one begins, heartbeats have an offset within it.
        self._end(changes, self._mark_of(record) if begun is None else begun._replace(place=begun.place + 1))

    def _end(self, changes: FrameFile, mark: Mark) -> None:
        if mark.place <= self.reached:
            # The log is read again: it is in the batcher, or acknowledged, already.
            changes.close()
        else:
            self._writing = self._transaction(changes.frames(), mark, self._rows)

    def write_copy(self, frames: Iterator[tuple[int, bytes]], offset: tuple[str, str], rows: Rows) -> None:
        """Begin with the rows that Debezium copied when the source was made, as one transaction ahead of the log's."""
        # What the log has of that place is in the copy.
        self._began = place_of(self._connector, offset[1])
        self._writing = self._transaction(frames, Mark(self._began, 0, offset), rows)

    def _reach(self, mark: Mark) -> None:
        """Note that all before a mark's record is in the batcher."""
        if mark.place > self.reached:
            self.reached = mark.place
            self._marks.add(mark)

    def _mark_of(self, record: EngineRecord) -> Mark:
        if record.offset is None:
            raise CorruptInput(f"a record of {record.topic} has no offset")
        try:
            offset, key = restart_offset(self._connector, record.offset), record.offset_key.decode()
        except UNREADABLE as error:
            raise CorruptInput(f"an offset of {record.topic} cannot be read") from error
        if offset is None:
            raise CorruptInput("Debezium's engine copies rows again")
        return Mark(place_of(self._connector, offset), self._number, (key, offset))

    def _transaction(self, frames: Iterator[tuple[int, bytes]], mark: Mark, rows: Rows) -> Iterator[int]:
        """Write a transaction, change by change; yield their sizes in bytes."""
        writer = self._writer
        commit = mark.place - 1
        for kind, content in frames:
            if kind == SCHEMA:
                rows.add_schema(content)
                continue
            record = EngineRecord.parse(content)
            change = rows.read(record)
            if writer.transaction is None:
                source = change.source if change is not None else None
                writer.begin(rows.connector.transaction(self._epoch, commit, source, self.now_ms))
            writer.now_ms = self.now_ms
            self._add(record, change, rows)
            yield len(content)
        self._run.write()
        if writer.transaction is not None:
            writer.end(mark.place)
        self.reached = mark.place
        self._marks.add(mark)

    def _add(self, record: EngineRecord, change: Change | None, rows: Rows) -> None:
        writer, run = self._writer, self._run
        table: Table | None = rows.table(record, change) if change is not None else None
        if change is None or table is None or not table.admitted:
            run.write()
            writer.skip()
            return
        are_deletes = change.op == "d"
        if run.table is not table or run.are_deletes is not are_deletes or run.bytes > _RUN_BYTES:
            run.begin(table, are_deletes=are_deletes)
        count = len(run.values)
        try:
            key, value = rows.record(
                record, table, change, writer.transaction, writer.ordinal + count, run.number + count, self.now_ms
            )
        except MALFORMED as error:
            raise CorruptInput(f"a row of {record.topic} is not of its schema") from error
        run.keys.append(key)
        run.values.append(value)
        run.bytes += len(value)

    def close(self) -> None:
        """Forget a transaction whose end was not read."""
        if self._open is not None:
            self._open.changes.close()
            self._open = None
