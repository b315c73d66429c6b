"""pgoutput, protocol version 1, from bytes to records (PostgreSQL manual, "Logical Replication Message Formats").

Sans-I/O: a session feeds one message at a time. Positions depend on the log alone: the ordinal counts the transaction's changes
and logical messages from 0, whether these are wanted or not. Whatever is not a message raises CorruptInput with the place in the
log, and nothing else; a change that cannot be decoded adds nothing to the batch. After an error, read the log again with a new
decoder and a new batcher.
"""

import logging
import struct
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from edge.postgres import errors, rows_compiled
from edge.postgres.careful_rows import find_large, without_undecodable
from edge.postgres.checkpoint import format_lsn
from edge.postgres.envelope import Around, DebeziumTransaction, LogicalMessage, MessageRecords, Transaction
from edge.postgres.relation_cache import RelationCache
from edge.postgres.relations import Relation
from edge.postgres.rows import PAD, Change, Table
from edge.postgres.rows_avro import AvroChanges
from edge.progress.notes import PREFIX, Passed
from edge.records.alterations import Catalog
from edge.records.batcher import Batcher
from edge.records.column_policy import UNDECODABLE, Policy
from edge.records.envelope import History, Undecodable
from edge.records.transaction_writer import Instead, TransactionWriter
from headrace.configuration.edge import Policy as Section
from headrace.configuration.edge import Records
from headrace.errors import CorruptInput, NeedsOperator
from headrace.position import Position

_log = logging.getLogger(__name__)

#: Prefix of the messages by which a reader at headquarters learns that all that was committed before has come.
MARKER = "headrace.marker"

_BEGIN = struct.Struct(">xQqI").unpack
_COMMIT = struct.Struct(">xBQQq").unpack
_INT32 = struct.Struct(">I").unpack_from
#: From 1970 to PostgreSQL's 2000, in microseconds.
_YEAR_2000 = 946_684_800_000_000
#: Ordinals and numbers of ordinary transactions, as records hold them.
_PLACES: Final = [(b"%08x" % ordinal, b"%d" % (ordinal + 1)) for ordinal in range(1000)]
_OF_ROWS: Final = frozenset({b"I", b"U", b"D"})
_NO_CHANGES: Mapping[bytes, Change] = {}
#: Messages that are larger, in bytes, may be views of the driver's memory; no smaller one is too large for a record.
VIEWED_BYTES: Final = 1 << 20
#: Bytes of a frame's start, end and time, which are ahead of a message that is fed with its place.
FRAME_PLACES = 24


class Decoder:
    """One source's messages, decoded into a batcher."""

    def __init__(
        self,
        *,
        source: str,
        database: str,
        epoch: int,
        batcher: Batcher,
        key_of: Callable[[Relation], list[str]],
        records: Records | None = None,
        policy: Policy | None = None,
        history: History | None = None,
        catalog_of: Callable[[Relation], Catalog | None] = lambda _: None,
        above_of: Callable[[Relation], Sequence[tuple[str, str]] | None] = lambda _: (),
        passed: Mapping[str, Passed] | None = None,
    ) -> None:
        """`passed`: the transactions that are passed over, by the LSN of their commit."""
        #: Position that the last transaction with records, fed whole, reaches to; None before there is one.
        self.committed: Position | None = None
        #: Where that transaction, or a later one without changes, ends in the log; 0 before there is one.
        self.end_lsn = 0
        #: Where commits ended and their times, until somebody takes them.
        self.commits: deque[tuple[int, int]] = deque(maxlen=1)
        self._source, self._database, self._epoch = source, database, epoch
        self._batcher = batcher
        self._records = records = records or Records()
        self._largest = records.largest_bytes
        self._history, self._over = history, passed or {}
        self._messages = MessageRecords(source=source, database=database)
        self._writer: TransactionWriter[Transaction] = TransactionWriter(
            batcher,
            epoch=epoch,
            largest=records.largest_bytes,
            records=records,
            no_table=self._messages.envelope,
            history=history,
        )
        self._announced = RelationCache(
            source=source,
            database=database,
            key_of=key_of,
            records=records,
            policy=policy or Policy(Section()),
            catalog_of=catalog_of,
            above_of=above_of,
        )
        self._tables = self._announced.tables
        #: Whether records have the LSN of their change: `feed_placed` then takes the place of `feed`.
        self.wants_places = records.envelope == "debezium"
        self._splits_keys = records.key_change == "delete-create"
        # Where the message that is fed begins in the log, where that is wanted.
        self._lsn = 0
        # Functions of tables whose schema record was sent; in use only within a transaction.
        self._fast: dict[bytes, Change] = {}
        self._changes = _NO_CHANGES
        self._avro_changes = AvroChanges()
        # Commit LSN of the newest transaction.
        self._commit = 0
        # Parts of the envelope, current within a transaction.
        self._committed = self._place = self._read = b""
        self._now_ms = -1
        self._others: dict[bytes, Callable[[bytes], None]] = {
            b"B": self._begin, b"C": self._end, b"R": self._announce, b"Y": self._announced.type, b"T": self._truncate,
            b"I": self._change, b"U": self._change, b"D": self._change, b"M": self._message, b"O": self._origin,
        }  # fmt: skip

    @property
    def present(self) -> str:
        """LSN of the commit of the transaction that is being decoded; empty for none."""
        return format_lsn(self._commit) if self.in_transaction else ""

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction has begun and its commit was not fed yet."""
        return self._writer.transaction is not None

    def feed(self, message: bytes, now_ms: int) -> None:
        """Decode one message, read at a time in milliseconds since 1970; raise CorruptInput when it is none.

        One above VIEWED_BYTES may be a view of bytes.
        """
        try:
            if len(message) > VIEWED_BYTES:
                if self._adds_large(message, now_ms):
                    return
                message = bytes(message)
            # Type, relation, kind of tuple and number of columns decide which function decodes a change.
            change = self._changes.get(message[:8])
            if now_ms != self._now_ms:
                self._read_at(now_ms)
            if change is None:
                self._others[message[:1]](message)
                return
            writer = self._writer
            ordinal = writer.ordinal
            number, count = _PLACES[ordinal] if ordinal < 1000 else (b"%08x" % ordinal, b"%d" % (ordinal + 1))
            try:
                key, value = change(message + PAD, self._committed, self._place, number, self._read, count)
            except UNDECODABLE:
                self._change(message)
                return
        except (struct.error, IndexError, KeyError, ValueError) as error:
            raise self._corrupt(message) from error
        batcher = self._batcher
        size = len(value)
        if size > batcher.free_bytes:
            value = writer.fitted(self._tables[_INT32(message, 1)[0]], value, ordinal)
            size = len(value)
            if size > batcher.free_bytes and batcher.values:
                batcher.cut(ordinal)
        batcher.keys.append(key)
        batcher.values.append(value)
        batcher.free_bytes -= size
        writer.ordinal = ordinal + 1

    def feed_placed(self, placed: bytes, now_ms: int) -> None:
        """Do the same with a message that has its frame's places and time ahead of it."""
        self._lsn = int.from_bytes(placed[:8], "big")
        self.feed(placed[FRAME_PLACES:], now_ms)

    def _corrupt(self, message: bytes) -> CorruptInput:
        place = (
            f"at position {Position(self._epoch, self._commit, self._writer.ordinal)}"
            if self.in_transaction
            else f"after position {self.committed}"
        )
        return errors.corrupt(
            bytes(message), is_known=bytes(message[:1]) in self._others, place=f"{place} of {self._source}"
        )

    def _read_at(self, now_ms: int) -> None:
        self._now_ms = self._writer.now_ms = now_ms
        if self._writer.transaction is not None:
            self._read = self._writer.transaction.read(now_ms)

    def _begin(self, message: bytes) -> None:
        """Byte1('B') Int64(final LSN) Int64(commit time) Int32(xid)."""
        commit, time, xid = _BEGIN(message)
        if self.in_transaction or commit <= self._commit:
            raise ValueError("a transaction begins within another or out of order")
        transaction = self._transaction(commit, time + _YEAR_2000, xid)
        self._committed, self._place = transaction.committed, transaction.place
        self._read = transaction.read(self._now_ms)
        self._commit = commit
        self._changes = self._fast
        self._writer.begin(transaction)
        if self._over and (passed := self._over.get(format_lsn(commit))) is not None:
            self._pass_over(passed)

    def _pass_over(self, passed: Passed) -> None:
        """Follow the present transaction to its end, and put a message in its place."""
        ordinary, largest, oids = self._others, self._largest, set[int]()
        undescribed = dict[int, str]()

        def change(message: bytes) -> None:
            if message[:1] == b"T":
                oids.update(_INT32(message, 6 + 4 * number)[0] for number in range(_INT32(message, 1)[0]))
            elif message[:1] in _OF_ROWS:
                oids.add(_INT32(message, 1)[0])

        def announce(message: bytes) -> None:
            try:
                ordinary[message[:1]](message)
            except (struct.error, IndexError, KeyError, ValueError, CorruptInput, NeedsOperator):
                # What it describes may be what cannot be decoded; the name of a table is ahead of that.
                if message[:1] == b"R":
                    schema, table = message[5:].split(b"\0", 2)[:2]
                    name = f"{schema.decode(errors='replace') or 'pg_catalog'}.{table.decode(errors='replace')}"
                    undescribed[_INT32(message, 1)[0]] = name

        def end(message: bytes) -> None:
            self._others, self._largest = ordinary, largest
            self._note_passed(passed, oids, undescribed)
            self._end(message)

        self._changes, self._largest = _NO_CHANGES, sys.maxsize
        kinds: dict[bytes, Callable[[bytes], None]] = dict.fromkeys(ordinary, change)
        self._others = kinds | {b"C": end, b"R": announce, b"Y": announce}

    def _note_passed(self, passed: Passed, oids: set[int], undescribed: dict[int, str]) -> None:
        """Add the message about a transaction that was passed; the tables that it changed, by OID, need a copy.

        `undescribed`: the names of those whose description could not be read.
        """
        if not oids <= self._tables.keys() | undescribed.keys():
            # Some table was not even named.
            oids = {*self._tables}
        touched = [self._tables[oid] for oid in oids if oid in self._tables and self._tables[oid].admitted]
        described = {f"{table.schema.schema}.{table.schema.table}" for table in touched}
        names = sorted(described | {undescribed[oid] for oid in oids & undescribed.keys()})
        if self._history is not None:
            self._history.move(names, passed.reason, self._commit)
        for table in touched:
            table.schema_sent = False
        for prefix in [prefix for prefix in self._fast if _INT32(prefix, 1)[0] in oids]:
            del self._fast[prefix]
        message = LogicalMessage(transactional=True, lsn=self._commit, prefix=PREFIX, content=passed.message(names))
        self._writer.add(None, *self._messages.record(message, self._around(), largest=self._records.largest_bytes))
        _log.warning("%s; %d tables need a copy", passed.reason, len(names))

    def _transaction(self, commit: int, commit_us: int, xid: int) -> Transaction:
        if self.wants_places:
            return DebeziumTransaction(
                epoch=self._epoch, commit=commit, commit_us=commit_us, xid=xid, last_end=self.end_lsn
            )
        return Transaction(epoch=self._epoch, commit=commit, commit_ms=commit_us // 1000, xid=xid)

    def _end(self, message: bytes) -> None:
        """Byte1('C') Int8(flags) Int64(commit LSN) Int64(end LSN) Int64(commit time)."""
        _flags, commit, end_lsn, time = _COMMIT(message)
        writer = self._writer
        if writer.transaction is None or commit != self._commit:
            raise ValueError("commit without its begin")
        self.end_lsn = end_lsn
        self.commits.append((end_lsn, time))
        self._changes = _NO_CHANGES
        if writer.end(end_lsn):
            self.committed = Position(self._epoch, self._commit, writer.ordinal - 1)

    def _change(self, message: bytes) -> None:
        """Decode a change that `feed` has no function for: a table's first ones, and those that other records accompany."""
        self._check_in_transaction()
        table = self._tables[_INT32(message, 1)[0]]
        if not table.admitted:
            self._writer.skip()
            return
        if table.changes is None:
            table.changes = rows_compiled.Changes(table)
        prefix, padded = message[:8], message + PAD
        has_old_row = prefix[:1] == b"U" and prefix[5:6] != b"N"
        splits = has_old_row and self._splits_keys and table.changes_key(padded)
        around = self._around(table.name)
        try:
            if splits:
                pair = table.key_change(padded, around, self._around(table.name, 1))
            else:
                change = table.changes[prefix]
                key, value = change(padded, *around)
        except UNDECODABLE:
            if not self._writer.passes_undecodable:
                raise
            self._add_repaired(table, message, splits=splits)
            return
        if splits:
            self._writer.add_key_change(table, *pair)
            return
        is_delete = message[:1] == b"D"
        self._writer.add(table, key, value, is_delete=is_delete)
        if (
            prefix in table.changes
            and table.schema_sent
            and not self._records.transactions
            and not self.wants_places
            and not (has_old_row and self._splits_keys)
            and not (self._records.tombstones and is_delete)
        ):
            self._fast[prefix] = self._in_avro(table, prefix, change)

    def _add_repaired(self, table: Table, message: bytes, *, splits: bool) -> None:
        """Add a change without what of it cannot be decoded, as a dead letter where its new row had that."""
        repaired = without_undecodable(table, message)
        if repaired.key_column is not None:
            self._writer.leave_out(table, repaired.key_column)
            for prefix in [prefix for prefix in self._fast if prefix[1:5] == message[1:5]]:
                del self._fast[prefix]
            return
        instead = Undecodable(len(message), repaired.column) if repaired.column is not None else None
        self._add_without(table, repaired.message, lambda _: instead, splits=splits)

    def _adds_large(self, message: bytes, now_ms: int) -> bool:
        """Add a message as `_add_large` does, where it is a change; whether that was done."""
        if len(message) <= self._largest or bytes(message[:1]) not in _OF_ROWS:
            return False
        if now_ms != self._now_ms:
            self._read_at(now_ms)
        return self._add_large(message)

    def _add_large(self, message: bytes) -> bool:
        """Add the dead letter of a change whose record would be too large, without decoding it; whether it is one.

        Raises NeedsOperator where the edge is to stop there.
        """
        self._check_in_transaction()
        table = self._tables[_INT32(message, 1)[0]]
        if not table.admitted:
            return False
        has_old_row = message[:1] == b"U" and message[5:6] != b"N"
        try:
            splits = has_old_row and self._splits_keys and table.changes_key(bytes(message) + PAD)
            if splits and message[5:6] != b"K":
                # Either row may be the large one.
                return False
            large = find_large(table, message, self._largest)
            if large is None:
                return False
            self._add_without(table, large.message, lambda value: large.too_large(value, table), splits=splits)
        except UNDECODABLE:
            # Nothing was added: what cannot be decoded is left out as of any other change.
            if not self._writer.passes_undecodable:
                raise
            return False
        return True

    def _add_without(
        self, table: Table, message: bytes, instead_of: Callable[[bytes], Instead], *, splits: bool
    ) -> None:
        """Add a change that lacks columns; `instead_of` returns what its value would be with them."""
        padded, around = message + PAD, self._around(table.name)
        if splits:
            deleted, created = table.key_change(padded, around, self._around(table.name, 1))
            self._writer.add_key_change(table, deleted, created, instead_of(created[1]))
            return
        key, value = {b"I": table.insert, b"U": table.update, b"D": table.delete}[message[:1]](padded, *around)
        self._writer.add(table, key, value, is_delete=message[:1] == b"D", instead_of=instead_of(value))

    def _in_avro(self, table: Table, prefix: bytes, change: Change) -> Change:
        """Return the function that makes Avro at once, where records are in Avro."""
        avro = self._batcher.avro
        if avro is None:
            return change
        return self._avro_changes.change(table, prefix, change, avro)

    def _message(self, message: bytes) -> None:
        """Byte1('M'): a logical message; one that is not wanted takes its ordinal all the same, so that positions last."""
        parsed = LogicalMessage.parse(message)
        prefixes = (parsed.prefix, "*")
        # Every role may write messages: what an edge reports of itself is none of theirs.
        wanted = parsed.prefix != PREFIX and any(prefix in self._records.messages for prefix in prefixes)
        wanted |= parsed.prefix == MARKER
        if parsed.transactional:
            self._check_in_transaction()
            if wanted:
                largest = self._records.largest_bytes
                self._writer.add(None, *self._messages.record(parsed, self._around(), largest=largest))
            else:
                self._writer.skip()
        elif wanted:
            self._message_outside(parsed)

    def _message_outside(self, message: LogicalMessage) -> None:
        """Add a message that belongs to no transaction, in its place in the log."""
        # Where it ends, a commit's record may begin.
        commit = message.lsn - 1
        if self.in_transaction or commit <= self._commit:
            raise ValueError("a message within a transaction or out of order")
        self._commit = commit
        around = MessageRecords.outside(message, self._epoch, self._now_ms, with_places=self.wants_places)
        record = self._messages.record(message, around, largest=self._records.largest_bytes)
        self._writer.add_outside(commit, *record, message.lsn)
        self.committed, self.end_lsn = Position(self._epoch, commit, 0), message.lsn

    def _truncate(self, message: bytes) -> None:
        """Byte1('T') Int32(how many) Int8(options) Int32(relation)..."""
        self._check_in_transaction()
        (count,) = _INT32(message, 1)
        if count < 1 or len(message) != 6 + 4 * count:
            raise ValueError("a truncate does not end where its relations do")
        tables = [self._tables[_INT32(message, 6 + 4 * number)[0]] for number in range(count)]
        for table in tables:
            if table.admitted and self._records.truncates:
                self._writer.add(table, None, table.truncate(self._around(table.name)))
            else:
                self._writer.skip()

    def _check_in_transaction(self) -> None:
        if self._writer.transaction is None:
            raise ValueError("a change outside a transaction")

    def _around(self, table: bytes = b"", further: int = 0) -> Around:
        """Return the parts of the next record, or of one behind it; `table` is its table's name, empty for a record of none."""
        writer, ordinal = self._writer, self._writer.ordinal
        if isinstance(writer.transaction, DebeziumTransaction):
            total, of_table = writer.next_numbers(table)
            return writer.transaction.around(
                lsn=self._lsn, ordinal=ordinal, read=self._read, total=total + further, of_table=of_table + further
            )
        return Around(self._committed, self._place, b"%08x" % ordinal, self._read, b"%d" % (ordinal + 1))

    def _announce(self, message: bytes) -> None:
        """Byte1('R'): a relation, new or as it is from now on."""
        if self._announced.relation(message) is not None:
            oid = message[1:5]
            for prefix in [prefix for prefix in self._fast if prefix[1:5] == oid]:
                del self._fast[prefix]

    def _origin(self, message: bytes) -> None:
        """Byte1('O'): an origin, which Debezium's envelope alone has."""
        if isinstance(self._writer.transaction, DebeziumTransaction):
            self._writer.transaction.set_origin(message)
