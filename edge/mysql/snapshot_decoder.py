"""The decoder of a source that is copied from: puts chunks between transactions, and reports changes to the window.

A watermark is a place that the binlog had reached when it was queried. It comes back between the first two transactions of the
stream behind that place; on an idle server at once, or with a heartbeat. What was sent before is ahead of that place, or at
it with other ordinals (`SnapshotOrdinals`): no position is used twice. A chunk is a transaction of its own, without
a GTID; on reading the log again it is not there.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from edge.mysql import envelope, events
from edge.mysql.careful_rows import Undecodable
from edge.mysql.checkpoint import MysqlGtids, file_name
from edge.mysql.ddl import Kind, Name
from edge.mysql.decoder import Decoder
from edge.mysql.envelope import Transaction
from edge.mysql.rows import Table
from edge.mysql.snapshot_reader import Seen, Watermark
from edge.mysql.snapshot_reader import Transaction as MomentTransaction
from edge.mysql.table_cache import Copied
from edge.records import envelope as envelope_of_all
from edge.records.column_policy import UNDECODABLE
from edge.snapshot.plan import LogTable
from edge.snapshot.ports import Chunk, DedupWindow, Moved, Put
from headrace import files
from headrace.errors import CorruptInput, NeedsOperator
from headrace.formats import SNAPSHOT_PLACE, UNREADABLE
from headrace.position import Position
from headrace.schema import TableSchema

#: Statements that change no table.
_PLAIN = frozenset({
    Kind.BEGIN, Kind.COMMIT, Kind.ROLLBACK, Kind.XA_START, Kind.XA_END, Kind.XA_COMMIT, Kind.XA_ROLLBACK,
})  # fmt: skip
#: Ordinals that are taken beyond what is needed, so that the file is written seldom; and all that a place has.
_AHEAD = 1 << 18
_MOST = 1 << 32


class _Taken(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    place: int = -1
    #: The first ordinal that was never used there.
    free: int = 0
    version: int = SNAPSHOT_PLACE.version


class SnapshotOrdinals:
    """The ordinals of a state folder: for rows that are put where the log has no transaction, each only once at a place."""

    def __init__(self, folder: Path, *sent: Position) -> None:
        """Begin behind what was taken, and behind positions that were sent."""
        self._path = folder / "snapshot-place.json"
        self._taken = self._read()
        self._sent = sent
        self._place, self._next = -1, 0

    def take(self, place: int, count: int) -> int:
        """Return the first of so many ordinals at a place, none of them used before."""
        first = self._next
        if place != self._place:
            behind = [position.ordinal + 1 for position in self._sent if position.commit == place]
            first = max([self._taken.free if self._taken.place == place else 0, *behind])
        after = first + count
        if after > _MOST:
            raise NeedsOperator(
                f"more rows were copied at one place of the log, {place:016x}, than it has positions",
                hint="Let the source commit something; then start the edge again.",
            )
        if self._taken.place != place or after > self._taken.free:
            taken = _Taken(place, min(after + _AHEAD, _MOST))
            files.write_private(self._path, msgspec.json.encode(taken))
            self._taken = taken
        self._place, self._next = place, after
        return first

    def _read(self) -> _Taken:
        try:
            data = self._path.read_bytes()
            SNAPSHOT_PLACE.check_json(data, str(self._path))
            return msgspec.json.decode(data, type=_Taken)
        except FileNotFoundError:
            return _Taken()
        except OSError as error:
            raise files.problem(self._path, "read", error) from error
        except UNREADABLE as error:
            raise NeedsOperator(
                f"{self._path} is damaged",
                hint="Stop the edge, move the file to another folder, and start it when the source has committed something.",
            ) from error


def _nobody(_content: bytes) -> None:
    """Wait for no watermark."""


class SnapshotDecoder(Decoder):
    """A decoder that chunks can be put into."""

    #: Called with the content of each watermark, at its place in the log.
    on_watermark: Callable[[bytes], None]

    def __init__(self, *, ordinals: SnapshotOrdinals, server_id: int, **options: Any) -> None:
        super().__init__(**options)
        #: Called with the content of each watermark, at its place in the stream.
        self.on_watermark: Callable[[bytes], None] = _nobody
        #: Watermarks that are waited for, oldest first; the snapshot's thread adds to it.
        self.watermarks: deque[Watermark] = deque()
        self._ordinals, self._server_id = ordinals, server_id
        self._sends_ends = options["records"].transactions
        self._clock_ms = 0
        # What this session decoded: the newest place, and with MySQL the transactions; readers may not see some of them yet.
        self._decoded: tuple[int, MysqlGtids] = 0, MysqlGtids({})
        # The same ahead of the window.
        self._before = self._decoded
        self._watched: tuple[str, str] | None = None
        self._window: DedupWindow | None = None
        # Whether the watched table has no key.
        self._of_moment = False

    def feed_and_arrive(self, event: bytes, end: int, now_ms: int) -> None:
        """Decode an event, and then come to the watermarks that it leads to."""
        self.feed(event, end, now_ms)
        self.arrive(now_ms)

    def arrive(self, now_ms: int) -> None:
        """Come to the watermarks whose place is reached, between transactions."""
        while self.watermarks and not self.in_transaction and self.passed >= self.watermarks[0].place:
            watermark = self.watermarks.popleft()
            self._now_ms = self._writer.now_ms = now_ms
            self._clock_ms = watermark.now_ms
            self.on_watermark(watermark.content)

    def follow(self, tables: Collection[LogTable], moved: Moved) -> None:
        """Follow nothing: every row image has all columns."""

    def watch(self, table: Copied, window: DedupWindow) -> None:
        """Report every change of a table to a window from here on."""
        self._watched, self._window = (table.table.schema.schema, table.table.schema.table), window
        self._of_moment = not table.source.key

    def unwatch(self) -> None:
        """Report to no window any more."""
        self._watched = self._window = None

    def window_opened(self) -> None:
        """Note which transactions a chunk has to see that is read from here on."""
        self._before = self._decoded

    def truncate(self, table: Copied) -> Position:
        """Put a truncate of the table here."""
        held = self._tables.current_table(table)
        with self._writer.copy_begins():
            return self._put(held, [None], lambda to, first: [held.truncate(to, first, self._now_ms, 1, 1)])

    def mark_copy(self, table: Copied, mark: str) -> Position:
        """Put a mark of the table's copy here."""
        held = self._tables.current_table(table)
        return self._mark(held.schema, held.envelope, mark)

    def schema_of(self, table: Copied) -> TableSchema:
        """Return the schema that a mark of the table's copy has here."""
        return self._tables.current_table(table).schema

    def mark_copy_of_gone(self, schema: TableSchema, mark: str) -> Position:
        """Put a mark of the copy of a table here that does not exist any more."""
        return self._mark(schema, self._tables.shared(schema.schema, schema.table), mark)

    def _mark(self, schema: TableSchema, shared: envelope.Table, mark: str) -> Position:
        first, _ = self._begin_own(1)
        self._writer.add_copy_mark(schema, shared, mark)
        self._writer.end(self.passed)
        return Position(self._epoch, self.passed, first)

    def fits(self, chunk: Chunk, window: DedupWindow) -> bool:
        """Whether the table was not altered, and the chunk saw every transaction that is ahead of its window."""
        if window.altered or chunk.seen is None:
            # The moment of a table without a key was found to fit at its first chunk.
            return not window.altered
        if chunk.is_unsure is not None and any(chunk.is_unsure(transaction) for transaction, _, _ in window.kept):
            return False
        seen = chunk.seen.certain if isinstance(chunk.seen, Seen) else chunk.seen
        place, transactions = self._before
        if isinstance(seen, MysqlGtids):
            return seen.covers(transactions)
        return bool(seen >= place)

    def put(self, chunk: Chunk, window: DedupWindow) -> Put:
        """Put the rows here that the window keeps."""
        copied: Copied = chunk.table
        last = self._put_lacking(chunk, window)
        read, keeps = copied.rows.read, window.keeps
        lacking: dict[int, Undecodable] = {}
        try:
            pairs = [(key, row) for key, row in map(read, chunk.rows) if key is None or keeps(key)]
        except UNDECODABLE as error:
            if not self._writer.can_replace:
                raise self._undecodable(copied) from error
            pairs = self._read_carefully(chunk, window, lacking)
        if not pairs:
            return Put(last, [])
        table, rows = self._tables.current_table(copied), [row for _, row in pairs]

        def values(to: Transaction, first: int) -> list[bytes | None]:
            records = table.copied(rows, to, first, self._now_ms)
            for number, lacks in lacking.items():
                whole = records[number]
                assert whole is not None
                instead = envelope_of_all.Undecodable(lacks.size, lacks.column)
                records[number] = self._writer.fitted(table, whole, first + number, instead)
            return records

        return Put(self._put(table, [key for key, _ in pairs], values), [])

    def _read_carefully(
        self, chunk: Chunk, window: DedupWindow, lacking: dict[int, Undecodable]
    ) -> list[tuple[bytes | None, bytes]]:
        """Return keys and rows that the window keeps, and note by their numbers what rows lack that cannot be decoded."""
        copied: Copied = chunk.table
        pairs: list[tuple[bytes | None, bytes]] = []
        for packet in chunk.rows:
            try:
                key, row, lacks = copied.rows.read_carefully(packet)
            except UNDECODABLE as error:
                raise self._undecodable(copied) from error
            if lacks is not None and lacks.in_key:
                self._writer.leave_out_copied(copied.table, lacks.column)
            elif key is None or window.keeps(key):
                if lacks is not None:
                    lacking[len(pairs)] = lacks
                pairs.append((key, row))
        return pairs

    @staticmethod
    def _undecodable(copied: Copied) -> CorruptInput:
        name = f"{copied.table.schema.schema}.{copied.table.schema.table}"
        return CorruptInput(
            f"a row of {name} that the server selected cannot be decoded",
            hint="Cancel the table's snapshot (headrace edge snapshot --cancel), and report what columns it has.",
        )

    def _put_lacking(self, chunk: Chunk, window: DedupWindow) -> Position | None:
        """Put what the log has ahead of this place, and the moment that is copied lacks, as a part of the copy.

        Return the last position; None where there is nothing.
        """
        last: Position | None = None
        if chunk.lacks is None:
            return last
        for transaction, (table, kind, images), _ in window.kept:
            if chunk.lacks(transaction):
                lacking = [
                    None if new is None else lacks
                    for *_, new, lacks in table.changes(kind, images, 0, len(images), careful=True)
                ]
                make = partial(self._values_lacking, table, kind, images, lacking)
                last = self._put(table, [None] * len(lacking), make)
        return last

    def _values_lacking(
        self, table: Table, kind: int, images: bytes, lacking: list[Any], to: Transaction, first: int
    ) -> list[bytes | None]:
        """Return the values of changes as a part of a copy; dead letters of those with values that cannot be decoded."""
        values = table.copied_changes(kind, images, to, first, self._now_ms)
        for number, lacks in enumerate(lacking):
            if isinstance(lacks, Undecodable) and (value := values[number]) is not None:
                instead = envelope_of_all.Undecodable(lacks.size, lacks.column)
                values[number] = self._writer.fitted(table, value, first + number, instead)
        return values

    def _put(
        self, table: Table, keys: list[bytes | None], make: Callable[[Transaction, int], list[bytes | None]]
    ) -> Position:
        """Put a transaction of our own here, and return its last position."""
        first, transaction = self._begin_own(len(keys))
        self._writer.add_rows(table, keys, make(transaction, first))
        self._writer.end(self.passed)
        return Position(self._epoch, self.passed, first + len(keys) - 1)

    def _begin_own(self, count: int) -> tuple[int, Transaction]:
        """Begin a transaction of our own here; return the ordinal of its first change, and the transaction."""
        # Where END records are sent, they have positions of their own.
        first = self._ordinals.take(self.passed, count + self._sends_ends)
        transaction = self._transaction(
            epoch=self._epoch,
            commit=self.passed,
            commit_us=self._clock_ms * 1000,
            server_id=self._server_id,
            gtid=None,
            file=file_name(self._base, self.passed >> 32),
            first=first,
        )
        self._writer.begin(transaction, first)
        return first, transaction

    def _end(self, event: bytes, end: int = 0) -> None:
        super()._end(event, end)
        newest, transactions = self.marks[-1], self._decoded[1]
        self._decoded = newest.place, transactions if self._mariadb else transactions.with_group(newest.group)

    def _rows(self, event: bytes, end: int) -> None:
        super()._rows(event, end)
        window = self._window
        if window is None or not window.is_open or (self._of_moment and not window.keeps_changes):
            return
        for table, kind, images, start, until in self._locate(event, end):
            if (table.schema.schema, table.schema.table) != self._watched:
                return
            if self._of_moment:
                transaction = self._writer.transaction
                assert transaction is not None
                assert self._group is not None
                change = table, kind, images[start:until]
                window.keep(MomentTransaction(transaction.commit, self._group), change, until - start)
                continue
            for key in table.keys(images, start, until):
                if key is None:
                    window.alter()
                else:
                    window.change(key)

    def _note_moved(self, tables: Iterable[Name], reason: str, *, recurs: bool = False) -> None:
        names = set(tables)
        super()._note_moved(names, reason, recurs=recurs)
        # What any transaction may have would keep the copy from its end; the table is marked beyond that.
        if self._window is not None and self._watched in names and not recurs:
            self._window.alter()

    def _query(self, event: bytes, end: int) -> None:
        window, watched = self._window, self._watched
        if window is not None and watched is not None:
            query = events.query(event, end, compressed=event[4] == events.QUERY_COMPRESSED)
            text, statement = self._tables.statement(query)
            lower = text.lower()
            # Whatever names the table may empty it, alter it, or put another one in its place.
            if statement.kind not in _PLAIN and any(name.lower().replace("`", "``") in lower for name in watched):
                window.alter()
        super()._query(event, end)
