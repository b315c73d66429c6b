"""pgoutput, protocol version 1, from bytes to records (PostgreSQL manual, "Logical Replication Message Formats").

Sans-I/O: a session feeds one message at a time. Positions depend on the log alone: the ordinal counts the transaction's changes
and logical messages from 0, whether these are wanted or not. Whatever is not a message raises CorruptInput with the place in the
log, and nothing else; a change that cannot be decoded adds nothing to the batch. After an error, read the log again with a new
decoder and a new batcher.
"""

import logging
import struct
from collections.abc import Callable, Mapping
from typing import Final

from edge.postgres import decode_errors, envelope, rows_compiled
from edge.postgres.envelope import Around, Transaction
from edge.postgres.relation_cache import RelationCache
from edge.postgres.relations import Relation
from edge.postgres.rows import PAD, Change, Table
from edge.postgres.transaction_metadata import LogicalMessage, TransactionMetadata
from edge.records.batcher import Batcher
from edge.records.column_policy import Policy
from headrace.configuration.policy import Policy as Section
from headrace.configuration.records import Records
from headrace.errors import CorruptInput
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
_NO_CHANGES: Mapping[bytes, Change] = {}


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
    ) -> None:
        #: Position that the last transaction with records, fed whole, reaches to; None before there is one.
        self.committed: Position | None = None
        #: Where that transaction, or a later one without changes, ends in the log; 0 before there is one.
        self.end_lsn = 0
        self._source, self._database, self._epoch = source, database, epoch
        self._batcher = batcher
        self._records = records = records or Records()
        self._largest = records.largest_bytes
        batcher.limit_values(self._largest)
        self._announced = RelationCache(
            source=source, database=database, key_of=key_of, records=records, policy=policy or Policy(Section())
        )
        self._tables = self._announced.tables
        self._beside = TransactionMetadata(source=source, database=database)
        # Of the tables whose schema record went ahead; looked at only within a transaction.
        self._told: dict[bytes, Change] = {}
        self._changes = _NO_CHANGES
        self._transaction: Transaction | None = None
        # Of the present transaction: the next change's ordinal, how many before it were left out, and changes by table.
        self._commit = self._ordinal = self._skipped = 0
        self._counts: dict[bytes, int] = {}
        # Parts of the envelope, current within a transaction.
        self._committed = self._place = self._read = b""
        self._now_ms = -1
        self._others: dict[bytes, Callable[[bytes], None]] = {
            b"B": self._begin, b"C": self._end, b"R": self._announce, b"Y": self._announced.type, b"T": self._truncate,
            b"I": self._change, b"U": self._change, b"D": self._change, b"M": self._message, b"O": self._nothing,
        }  # fmt: skip

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction has begun and its commit was not fed yet."""
        return self._transaction is not None

    def feed(self, message: bytes, now_ms: int) -> None:
        """Decode one message, read at a time in milliseconds since 1970; raise CorruptInput when it is none."""
        try:
            # Type, relation, kind of tuple and number of columns decide which function decodes a change.
            change = self._changes.get(message[:8])
            if now_ms != self._now_ms:
                self._read_at(now_ms)
            if change is None:
                self._others[message[:1]](message)
                return
            ordinal = self._ordinal
            number, count = _PLACES[ordinal] if ordinal < 1000 else (b"%08x" % ordinal, b"%d" % (ordinal + 1))
            key, value = change(message + PAD, self._committed, self._place, number, self._read, count)
        except (struct.error, IndexError, KeyError, ValueError) as error:
            raise self._corrupt(message) from error
        batcher = self._batcher
        size = len(value)
        if size > batcher.room:
            value = self._fitted(self._tables[_INT32(message, 1)[0]], message, value)
            size = len(value)
            if size > batcher.room and batcher.values:
                batcher.cut(ordinal)
        batcher.keys.append(key)
        batcher.values.append(value)
        batcher.room -= size
        self._ordinal = ordinal + 1

    def _corrupt(self, message: bytes) -> CorruptInput:
        place = (
            f"at position {Position(self._epoch, self._commit, self._ordinal)}"
            if self._transaction
            else f"after position {self.committed}"
        )
        return decode_errors.corrupt(message, is_known=message[:1] in self._others, place=f"{place} of {self._source}")

    def _read_at(self, now_ms: int) -> None:
        self._now_ms = now_ms
        if self._transaction is not None:
            self._read = self._transaction.read(now_ms)

    def _begin(self, message: bytes) -> None:
        """Byte1('B') Int64(final LSN) Int64(commit time) Int32(xid)."""
        commit, time, xid = _BEGIN(message)
        if self._transaction is not None or commit <= self._commit:
            raise ValueError("a transaction begins within another or out of order")
        commit_ms = (time + _YEAR_2000) // 1000
        self._transaction = transaction = Transaction(epoch=self._epoch, commit=commit, commit_ms=commit_ms, xid=xid)
        self._committed, self._place = transaction.committed, transaction.place
        self._read = transaction.read(self._now_ms)
        self._commit, self._ordinal, self._skipped = commit, 0, 0
        self._counts = {}
        self._changes = self._told
        self._batcher.begin(commit, commit_ms)

    def _end(self, message: bytes) -> None:
        """Byte1('C') Int8(flags) Int64(commit LSN) Int64(end LSN) Int64(commit time)."""
        _flags, commit, end_lsn, _time = _COMMIT(message)
        transaction = self._transaction
        if transaction is None or commit != self._commit:
            raise ValueError("commit without its begin")
        if self._ordinal > self._skipped:
            self._finish(transaction)
        self.end_lsn = end_lsn
        self._transaction = None
        self._changes = _NO_CHANGES
        self._batcher.commit(end_lsn)

    def _finish(self, transaction: Transaction) -> None:
        """Let the transaction's last change say that it is, and tell the end if that is wanted."""
        values = self._batcher.values
        # A tombstone follows its delete.
        newest = -1 if values[-1] is not None else -2
        last = values[newest]
        assert last is not None
        values[newest] = last.removesuffix(envelope.END) + envelope.LAST_END
        if self._records.transactions:
            count = self._ordinal - self._skipped
            self._put(*self._beside.end(transaction.identity, self._counts, count, self._around(), self._now_ms))
        self.committed = Position(self._epoch, self._commit, self._ordinal - 1)

    def _change(self, message: bytes) -> None:
        """Decode a change that `feed` has no function for: one of a table's first, or one that others stand beside."""
        self._check_in_transaction()
        table = self._tables[_INT32(message, 1)[0]]
        if not table.admitted:
            self._skip()
            return
        if table.changes is None:
            table.changes = rows_compiled.Changes(table)
        prefix = message[:8]
        change = table.changes[prefix]
        key, value = change(message + PAD, *self._around())
        self._add(table, key, self._fitted(table, message, value))
        tombstones = self._records.tombstones
        if tombstones and key is not None and message[:1] == b"D":
            self._batcher.add_tombstone(key, self._ordinal - 1)
        if (
            prefix in table.changes
            and table.schema_sent
            and not self._records.transactions
            and not (tombstones and prefix[:1] == b"D")
        ):
            self._told[prefix] = change

    def _fitted(self, table: Table, message: bytes, value: bytes) -> bytes:
        """Return the value, or what takes its place when it is larger than a record may be; raise NeedsOperator to stop there."""
        size = len(value)
        if size <= self._largest:
            return value
        name = f"{table.relation.schema}.{table.relation.table}"
        problem = decode_errors.too_large(name, Position(self._epoch, self._commit, self._ordinal), size, self._largest)
        if self._records.on_too_large == "stop":
            raise problem
        _log.warning("%s: a dead letter takes its place", problem.message)
        self._batcher.dead_letters += 1
        return table.without_row(message + PAD, size, *self._around())

    def _message(self, message: bytes) -> None:
        """Byte1('M'): a logical message; one that is not wanted takes its ordinal all the same, so that positions last."""
        told = LogicalMessage.parse(message)
        wanted = told.prefix in self._records.messages or "*" in self._records.messages or told.prefix == MARKER
        if told.transactional:
            self._check_in_transaction()
            if wanted:
                key, value = self._beside.message(told, self._around(), largest=self._largest)
                self._add(None, key, value)
            else:
                self._skip()
        elif wanted:
            self._outside(told)

    def _skip(self) -> None:
        """Leave a change or message out; it takes its ordinal all the same."""
        self._ordinal += 1
        self._skipped += 1
        self._batcher.skip(self._ordinal)

    def _outside(self, told: LogicalMessage) -> None:
        """Add a message that belongs to no transaction, in its place in the log."""
        # Where it ends, a commit's record may begin.
        commit = told.lsn - 1
        if self._transaction is not None or commit <= self._commit:
            raise ValueError("a message within a transaction or out of order")
        self._commit, self._ordinal = commit, 0
        batcher = self._batcher
        key, value = self._beside.message(
            told, TransactionMetadata.outside(told, self._epoch, self._now_ms), largest=self._largest
        )
        if batcher.values and len(value) > batcher.room:
            batcher.cut(0)
        batcher.begin(commit, self._now_ms)
        self._put(key, value)
        batcher.commit(told.lsn)
        self.committed, self.end_lsn = Position(self._epoch, commit, 0), told.lsn

    def _truncate(self, message: bytes) -> None:
        """Byte1('T') Int32(how many) Int8(options) Int32(relation)..."""
        self._check_in_transaction()
        (count,) = _INT32(message, 1)
        if count < 1 or len(message) != 6 + 4 * count:
            raise ValueError("a truncate does not end where its relations do")
        tables = [self._tables[_INT32(message, 6 + 4 * number)[0]] for number in range(count)]
        for table in tables:
            if table.admitted:
                self._add(table, None, table.truncate(self._around()))
            else:
                self._skip()

    def _check_in_transaction(self) -> None:
        if self._transaction is None:
            raise ValueError("a change outside a transaction")

    def _around(self) -> Around:
        ordinal = self._ordinal
        return Around(self._committed, self._place, b"%08x" % ordinal, self._read, b"%d" % (ordinal + 1))

    def _add(self, table: Table | None, key: bytes | None, value: bytes) -> None:
        """Add a change, or a message, with what goes ahead of it and was not told yet, all in one batch."""
        batcher, ordinal, around = self._batcher, self._ordinal, self._around()
        ahead: list[tuple[bytes | None, bytes]] = []
        if self._records.transactions:
            if ordinal == self._skipped and self._transaction is not None:
                ahead.append(self._beside.begin(self._transaction.identity, around, self._now_ms))
            if table is not None:
                self._counts[table.name] = self._counts.get(table.name, 0) + 1
        if table is not None and not table.schema_sent:
            ahead.append((None, table.schema_record(around, self._now_ms)))
            table.schema_sent = not batcher.repeats_schema
        if batcher.values and len(value) + sum(len(glued) for _, glued in ahead) > batcher.room:
            batcher.cut(ordinal)
        for glued_key, glued in ahead:
            batcher.add_ahead(glued, ordinal, glued_key)
        self._put(key, value)

    def _put(self, key: bytes | None, value: bytes) -> None:
        self._batcher.keys.append(key)
        self._batcher.values.append(value)
        self._batcher.room -= len(value)
        self._ordinal += 1

    def _announce(self, message: bytes) -> None:
        """Byte1('R'): a relation, anew or as it is from now on."""
        if self._announced.relation(message) is not None:
            oid = message[1:5]
            for prefix in [prefix for prefix in self._told if prefix[1:5] == oid]:
                del self._told[prefix]

    def _nothing(self, message: bytes) -> None:
        """Byte1('O'): origins are not part of the stream."""
