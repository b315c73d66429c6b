"""The decoder of a source that is copied from: puts chunks where their watermarks are, and reports changes to the window.

A chunk's rows become Insert messages of the relation and go through the code that decodes the log's, so a row has the same bytes
in both cases. They are the records of the watermark's transaction, numbered from 0; on reading the log again the
watermark has no meaning any more, and its transaction is empty. Only the tables that are copied in part pay for being watched.
"""

import struct
from collections.abc import Callable, Collection
from typing import Any

from edge.postgres import rows, rows_avro, rows_compiled, snapshot_reader
from edge.postgres.careful_rows import find_large, without_undecodable
from edge.postgres.envelope import CONNECTOR, LogicalMessage
from edge.postgres.pgoutput import Decoder
from edge.postgres.rows import HEADER, PAD, TEXT, Change, CopyRows, Table
from edge.postgres.snapshot_reader import PREFIX
from edge.postgres.snapshot_table import SnapshotTable
from edge.postgres.visibility import Unseen, hidden
from edge.progress.notes import Passed
from edge.records.column_policy import UNDECODABLE
from edge.records.envelope import AVRO_MARK, Undecodable
from edge.records.transaction_writer import Instead
from edge.snapshot.plan import Key, LogTable
from edge.snapshot.ports import Chunk, DedupWindow, Moved, Put
from headrace.position import Position
from headrace.schema import TableSchema

_XID = struct.Struct(">I").unpack_from
#: Marks a record whose row lacks columns; it is unescaped in no other.
_UNCHANGED = b',"unchanged":['


def _nobody(_content: bytes) -> None:
    """Wait for no watermark."""


class SnapshotDecoder(Decoder):
    """A decoder that chunks can be put into."""

    #: Called with the content of each watermark, at its place in the log.
    on_watermark: Callable[[bytes], None]

    def __init__(self, *, unseen: Unseen | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.on_watermark = _nobody
        self._unseen = unseen or Unseen()
        # The transaction that is decoded.
        self._xid = 0
        # Transactions that are ahead of the window.
        self._before: tuple[int, ...] = ()
        self._watched: SnapshotTable | None = None
        self._window: DedupWindow | None = None
        # By OID, the tables of which rows that move are reported.
        self._followed: dict[int, list[LogTable]] = {}
        self._moved: Moved = lambda _table, _key: None
        # A table, with its functions: from a row to a message, from that to key and value, and from a row to these at once.
        # Many rows are copied at once by a function in C; None where there is none, or records are not in JSON.
        self._reading: tuple[Table, Callable[[bytes], bytes], Change, Change, CopyRows | None] | None = None

    def follow(self, tables: Collection[LogTable], moved: Moved) -> None:
        """Report rows of these tables that move to another key without all of their columns, from here on."""
        self._followed, self._moved = {}, moved
        for table in tables:
            self._followed.setdefault(table.oid, []).append(table)
            self._forget(table.oid)

    def watch(self, table: SnapshotTable, window: DedupWindow) -> None:
        """Report every change of a table to a window from here on."""
        self._watched, self._window = table, window
        self._forget(table.oid)

    def unwatch(self) -> None:
        """Report to no window any more."""
        self._watched = self._window = self._reading = None

    def window_opened(self) -> None:
        """Note which transactions a chunk has to see that is read from here on."""
        self._before = self._unseen.xids

    def truncate(self, table: SnapshotTable) -> Position:
        """Put a truncate of a table here."""
        held = self._announced_now(table)
        with self._writer.copy_begins():
            self._writer.add(held, None, held.truncate(self._around(held.name)))
        return Position(self._epoch, self._commit, self._writer.ordinal - 1)

    def mark_copy(self, table: SnapshotTable, mark: str) -> Position:
        """Put a mark of a table's copy here; of a table that the log has announced since, with its present columns."""
        held = self._present(table)
        self._writer.add_copy_mark(held.schema, held.envelope, mark)
        return Position(self._epoch, self._commit, self._writer.ordinal - 1)

    def schema_of(self, table: SnapshotTable) -> TableSchema:
        """Return the schema that a mark of the table's copy has here."""
        return self._present(table).schema

    def mark_copy_of_gone(self, schema: TableSchema, mark: str) -> Position:
        """Put a mark of the copy of a table here that does not exist any more."""
        self._writer.add_copy_mark(schema, self._announced.shared(schema.schema, schema.table), mark)
        return Position(self._epoch, self._commit, self._writer.ordinal - 1)

    def fits(self, chunk: Chunk, window: DedupWindow) -> bool:
        """Whether the chunk has the table's present shape, and saw every transaction that is ahead of its window."""
        if chunk.lacks is not None and window.truncated:
            # Its rows were read ahead of the truncate: they would come behind it.
            return False
        if chunk.seen is None:
            # The moment that is copied was found to fit at its first chunk.
            return not window.altered
        return not window.altered and not hidden(chunk.seen, self._before)

    def put(self, chunk: Chunk, window: DedupWindow) -> Put:
        """Put the rows here that the window keeps."""
        chunk_table: SnapshotTable = chunk.table
        table = self._announced_now(chunk_table)
        batcher, writer = self._batcher, self._writer
        first, largest = writer.ordinal, self._largest
        self._put_lacking(chunk, window)
        # What the log has of a truncate is behind the rows.
        rows = [] if window.truncated else chunk.rows
        (read, copy_rows), changed = self._copied_of(table, chunk_table), self._changed_keys(window)
        committed, place, read_at = self._committed, self._place, self._read
        again: list[Key] = []
        alone, at = self._records.transactions or self.wants_places, 0
        keys, values, free, ordinal = batcher.keys, batcher.values, batcher.free_bytes, writer.ordinal
        while at < len(rows):
            if copy_rows is not None and table.schema_sent and not alone:
                before, around = at, (ordinal, committed, place, read_at)
                at, free = copy_rows(rows, at, free, largest, changed, keys, values, *around)
                ordinal += at - before
                if at == len(rows):
                    break
            row = rows[at]
            at += 1
            if table.schema_sent and len(row) <= largest and not alone:
                try:
                    key, value = read(row, committed, place, b"%08x" % ordinal, read_at, b"%d" % (ordinal + 1))
                except UNDECODABLE:
                    size = free + 1
                else:
                    if key is not None and key in changed:
                        if window.must_reread(changed[key]):
                            again.append(snapshot_reader.key_of(row, chunk_table))
                        continue
                    size = len(value)
                if size <= free:
                    keys.append(key)
                    values.append(value)
                    free -= size
                    ordinal += 1
                    continue
            batcher.free_bytes, writer.ordinal = free, ordinal
            again += self._put_row(table, row, chunk_table, window)
            keys, values, free, ordinal = batcher.keys, batcher.values, batcher.free_bytes, writer.ordinal
        batcher.free_bytes, writer.ordinal = free, ordinal
        put = writer.ordinal > first
        return Put(Position(self._epoch, self._commit, writer.ordinal - 1) if put else None, again)

    def _put_row(self, table: Table, row: bytes, chunk_table: SnapshotTable, window: DedupWindow) -> list[Key]:
        """Put a row with what goes ahead of it, or its dead letter; return its key where it has to be read once more."""
        assert self._reading is not None
        _, message_of, insert, _, _ = self._reading
        message = message_of(row)
        large = find_large(table, message[: -len(PAD)], self._largest) if len(message) > self._largest else None
        if large is not None:
            message = large.message + PAD
        around = self._around(table.name)
        instead: Instead = None
        try:
            key, value = insert(message, *around)
        except UNDECODABLE:
            if not self._writer.passes_undecodable:
                raise
            repaired = self._read_repaired(table, message, insert, around)
            if repaired is None:
                return []
            key, value, instead = repaired
        if key is not None and not window.keeps(key):
            return [snapshot_reader.key_of(row, chunk_table)] if window.must_reread(key) else []
        if large is not None:
            instead = instead or large.too_large(value, table)
        self._writer.add(table, key, value, instead_of=instead)
        return []

    def _changed_keys(self, window: DedupWindow) -> dict[bytes, bytes]:
        """Return the keys of rows that changed, as a chunk's may be, with their forms in JSON."""
        changed = {key: key for key in window.changed}
        avro, table = self._batcher.avro, self._reading and self._reading[0]
        if avro is not None and table is not None and changed:
            written = avro.table(table.schema, CONNECTOR)
            changed |= {written.key(key): key for key in window.changed}
        return changed

    def _read_repaired(
        self, table: Table, message: bytes, read: Change, around: tuple[bytes, ...]
    ) -> tuple[bytes | None, bytes, Instead] | None:
        """Return key and value of a row without what cannot be decoded, and what it lacks; None where that is in the key."""
        repaired = without_undecodable(table, message[: -len(PAD)])
        if repaired.key_column is not None:
            self._writer.leave_out_copied(table, repaired.key_column)
            return None
        instead = Undecodable(len(message), repaired.column) if repaired.column is not None else None
        return *read(repaired.message + PAD, *around), instead

    def _put_lacking(self, chunk: Chunk, window: DedupWindow) -> None:
        """Put what the log has ahead of this place, and the moment that is copied lacks, as a part of the copy."""
        if chunk.lacks is None:
            return
        table = self._present(chunk.table)
        changes = rows_compiled.Changes(table.for_snapshot())
        for xid, (change, too_large), _ in window.kept:
            if chunk.lacks(xid):
                change_of, around = changes[change[:8]], self._around(table.name)
                instead: Instead = None
                try:
                    key, value = change_of(change + PAD, *around)
                except UNDECODABLE:
                    repaired = without_undecodable(table, change)
                    key, value = change_of(repaired.message + PAD, *around)
                    if repaired.column is not None:
                        instead = Undecodable(len(change), repaired.column)
                if too_large is not None:
                    instead = too_large._replace(size=too_large.size + len(value))
                self._writer.add(table, key, value, is_delete=change[:1] == b"D", instead_of=instead)

    def _present(self, table: SnapshotTable) -> Table:
        """Return a table as the log has announced it; if it has not, as the catalog described it."""
        return self._tables.get(table.oid) or self._announced_now(table)

    def _announced_now(self, chunk_table: SnapshotTable) -> Table:
        """Announce a table as the log would, unless that is how it is known, and return it."""
        window, self._window = self._window, None
        for message in chunk_table.messages:
            self._others[message[:1]](message)
        self._window = window
        return self._tables[chunk_table.oid]

    def _copied_of(self, table: Table, chunk_table: SnapshotTable) -> tuple[Change, CopyRows | None]:
        """Return the function from a row, as COPY prints it, to key and value; and the one in C for many rows."""
        if self._reading is None or self._reading[0] is not table:
            reading, avro = table.for_snapshot(), self._batcher.avro
            message_of = snapshot_reader.insert(chunk_table.oid, chunk_table.count)
            insert = rows.plan_insert(reading) or rows_compiled.insert(reading)
            in_c = rows.plan_copied(reading) if avro is None else None

            def exact(row: bytes, *around: bytes) -> tuple[bytes | None, bytes]:
                return insert(message_of(row), *around)

            read = rows_compiled.copied(reading, exact)
            if avro is not None:
                read = rows_avro.copied(reading, read, avro)
            self._reading = table, message_of, insert, read, in_c
        return self._reading[3:]

    def _begin(self, message: bytes) -> None:
        super()._begin(message)
        self._xid = self._unseen.add(_XID(message, 17)[0])

    def _message(self, message: bytes) -> None:
        """Byte1('M'): watermarks are our own, and take no ordinal."""
        parsed = LogicalMessage.parse(message)
        if parsed.prefix != PREFIX or not parsed.transactional:
            super()._message(message)
            return
        self._check_in_transaction()
        self.on_watermark(parsed.content)

    def _change(self, message: bytes) -> None:
        skipped = self._writer.skipped
        super()._change(message)
        if self._writer.skipped > skipped:
            # It is in no record.
            return
        oid = _XID(message, 1)[0]
        watched, followed = self._watched, self._followed.get(oid, [])
        window = self._window if watched is not None and watched.oid == oid else None
        if (window is not None or followed) and self._tables[oid].admitted:
            # So that the next change comes here as well.
            self._forget(oid)
            self._report(self._tables[oid], followed, window, message)

    def _report(self, table: Table, followed: list[LogTable], window: DedupWindow | None, message: bytes) -> None:
        """Report a change that was added just now."""
        key, value = self._batcher.keys[-1], self._batcher.values[-1]
        if key is None:
            if window is not None and self._watched is not None and self._watched.key:
                window.alter()
            elif window is not None:
                window.keep(self._xid, (message, None), len(message))
            return
        # One in Avro lacks none: those that do are made in JSON.
        whole = value is None or value[0] == AVRO_MARK or _UNCHANGED not in value
        former: bytes | None = None
        if message[:1] == b"U" and message[5:6] != b"N":
            try:
                former = table.former_key(message + PAD)
            except UNDECODABLE:
                # The key can be decoded: the change would be in no record otherwise.
                former = table.former_key(without_undecodable(table, message).message + PAD)
            if former == key:
                former = None
        if window is not None:
            window.change(key, former, whole=whole)
        if former is not None and not whole:
            for log_table in followed:
                self._moved(log_table, _new_key(message + PAD, table, log_table.key))

    def _add_large(self, message: bytes) -> bool:
        added = super()._add_large(message)
        watched, window = self._watched, self._window
        if added and window is not None and window.is_open and watched is not None:
            oid = _XID(message, 1)[0]
            if watched.oid == oid:
                self._report_large(self._tables[oid], message, window)
        return added

    def _report_large(self, table: Table, message: bytes, window: DedupWindow) -> None:
        """Report a change that was added just now as a dead letter; of a table without a key it is kept without what is large."""
        assert self._watched is not None
        large = find_large(table, message, self._largest)
        if large is None or bool(self._watched.key) is not bool(table.key_columns):
            window.alter()
        elif not self._watched.key:
            if window.keeps_changes:
                kept = large.message, large.too_large(b"", table)
                window.keep(self._xid, kept, len(large.message))
        elif (key := self._batcher.keys[-1]) is not None:
            has_old_row = large.message[:1] == b"U" and large.message[5:6] != b"N"
            former = table.former_key(large.message + PAD) if has_old_row else None
            window.change(key, None if former == key else former, whole=message[:1] == b"D")

    def _note_passed(self, passed: Passed, oids: set[int], undescribed: dict[int, str]) -> None:
        super()._note_passed(passed, oids, undescribed)
        if self._window is not None and self._watched is not None:
            self._window.alter()

    def _truncate(self, message: bytes) -> None:
        super()._truncate(message)
        watched = self._watched
        if watched is not None and self._window is not None:
            oids = (_XID(message, 6 + 4 * number)[0] for number in range(_XID(message, 1)[0]))
            if watched.oid in oids:
                self._window.truncate()

    def _announce(self, message: bytes) -> None:
        oid = _XID(message, 1)[0]
        former = self._tables.get(oid)
        super()._announce(message)
        watched, window = self._watched, self._window
        altered = former is not self._tables[oid] and watched is not None and message != watched.messages[-1]
        if altered and watched is not None and watched.oid == oid and window is not None:
            window.alter()

    def _forget(self, oid: int) -> None:
        number = oid.to_bytes(4, "big")
        for prefix in [prefix for prefix in self._fast if prefix[1:5] == number]:
            del self._fast[prefix]


def _new_key(message: bytes, table: Table, names: tuple[str, ...]) -> Key | None:
    """Return the key in the new tuple of an Update message that has an old one as well; None when it has no such columns."""
    columns = [column.name for column in table.relation.columns]
    if not set(names) <= set(columns):
        return None
    _, offset = _texts(message, 8, len(columns))
    texts, _ = _texts(message, offset + 3, len(columns))
    return [texts[columns.index(name)].decode() for name in names]


def _texts(message: bytes, offset: int, count: int) -> tuple[list[bytes], int]:
    """Return a tuple's columns, empty for those that are null or absent, and the offset behind it."""
    texts = []
    for _ in range(count):
        kind, length = HEADER(message, offset)
        offset += 1
        if kind != TEXT:
            texts.append(b"")
            continue
        offset += 4 + length
        texts.append(message[offset - length : offset])
    return texts, offset
