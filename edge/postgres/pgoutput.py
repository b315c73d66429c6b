"""pgoutput, protocol version 1, from bytes to records (PostgreSQL manual, "Logical Replication Message Formats").

Sans-I/O: edge/capture.py feeds one message at a time. Positions depend on the log alone: the ordinal counts the transaction's
changes from 0, schema records not among them. Whatever is not a message raises CorruptInput with the place in the log, and
nothing else; a change that cannot be decoded adds nothing to the batch. After an error the decoder and its batcher are of no
more use: read the log again with new ones.
"""

import logging
import struct
from collections.abc import Callable, Mapping
from typing import Final

from edge.batcher import Batcher
from edge.postgres import envelope, generated
from edge.postgres.envelope import Around, Transaction
from edge.postgres.relation import Relation, string, table_schema
from edge.postgres.table import PAD, Table
from headrace.errors import CorruptInput
from headrace.position import Position

_log = logging.getLogger(__name__)

_BEGIN = struct.Struct(">xQqI").unpack
_COMMIT = struct.Struct(">xBQQq").unpack
_INT32 = struct.Struct(">I").unpack_from
#: From 1970 to PostgreSQL's 2000, in microseconds.
_YEAR_2000 = 946_684_800_000_000
#: Ordinals and numbers of ordinary transactions, as records hold them.
_PLACES: Final = [(b"%08x" % ordinal, b"%d" % (ordinal + 1)) for ordinal in range(1000)]
_NO_CHANGES: Mapping[bytes, generated.Change] = {}


class Decoder:
    """One source's messages, decoded into a batcher."""

    def __init__(
        self, *, source: str, database: str, epoch: int, batcher: Batcher, key_of: Callable[[Relation], list[str]]
    ) -> None:
        #: Position of the last change of the last transaction that was fed whole; None before there is one.
        self.committed: Position | None = None
        #: Where that transaction, or a later one without changes, ends in the log; 0 before there is one.
        self.end_lsn = 0
        self._source, self._database, self._epoch = source, database, epoch
        self._batcher, self._key_of = batcher, key_of
        self._tables: dict[int, Table] = {}
        self._types: dict[int, str] = {}
        # Of the tables whose schema record went ahead; looked at only within a transaction.
        self._told: dict[bytes, generated.Change] = {}
        self._changes = _NO_CHANGES
        self._transaction: Transaction | None = None
        self._commit = self._ordinal = 0
        # Parts of the envelope, current within a transaction.
        self._committed = self._place = self._read = b""
        self._now_ms = -1
        self._others: dict[bytes, Callable[[bytes], None]] = {
            b"B": self._begin, b"C": self._end, b"R": self._announce, b"Y": self._name_type, b"T": self._truncate,
            b"I": self._first_change, b"U": self._first_change, b"D": self._first_change,
            b"O": self._nothing, b"M": self._nothing,
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
        kind = message[:1]
        wrong = "cannot be decoded" if kind in self._others else "is of an unknown type"
        return CorruptInput(
            f"a message of type {kind!r}, {len(message)} bytes long, {wrong}, {place} of {self._source}",
            hint="Nothing was skipped or confirmed: the log still holds it. Start the edge again; if it stops there again, "
            "look whether the server and its publication are of a kind that this release reads, and report it.",
        )

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
        self._commit, self._ordinal = commit, 0
        self._changes = self._told
        self._batcher.begin(commit, commit_ms)

    def _end(self, message: bytes) -> None:
        """Byte1('C') Int8(flags) Int64(commit LSN) Int64(end LSN) Int64(commit time)."""
        _flags, commit, end_lsn, _time = _COMMIT(message)
        if self._transaction is None or commit != self._commit:
            raise ValueError("commit without its begin")
        if self._ordinal:
            values = self._batcher.values
            last = values[-1]
            assert last is not None
            values[-1] = last.removesuffix(envelope.END) + envelope.LAST_END
            self.committed = Position(self._epoch, commit, self._ordinal - 1)
        self.end_lsn = end_lsn
        self._transaction = None
        self._changes = _NO_CHANGES
        self._batcher.commit(end_lsn)

    def _first_change(self, message: bytes) -> None:
        """Decode a table's first change since it was announced, and make the functions by which `feed` decodes the next."""
        self._check_in_transaction()
        table = self._tables[_INT32(message, 1)[0]]
        changes = generated.changes(table)
        self._add(table, *changes[message[:8]](message + PAD, *self._around()))
        self._told.update(changes)

    def _truncate(self, message: bytes) -> None:
        """Byte1('T') Int32(how many) Int8(options) Int32(relation)..."""
        self._check_in_transaction()
        (count,) = _INT32(message, 1)
        if count < 1 or len(message) != 6 + 4 * count:
            raise ValueError("a truncate does not end where its relations do")
        tables = [self._tables[_INT32(message, 6 + 4 * number)[0]] for number in range(count)]
        for table in tables:
            self._add(table, None, table.truncate(self._around()))

    def _check_in_transaction(self) -> None:
        if self._transaction is None:
            raise ValueError("a change outside a transaction")

    def _around(self) -> Around:
        ordinal = self._ordinal
        return Around(self._committed, self._place, b"%08x" % ordinal, self._read, b"%d" % (ordinal + 1))

    def _add(self, table: Table, key: bytes | None, value: bytes) -> None:
        """Add a change, with the schema record ahead of it when that was not told yet, both in one batch."""
        batcher, ordinal = self._batcher, self._ordinal
        schema = None if table.told else table.schema_record(self._around(), self._now_ms)
        if batcher.values and len(value) + len(schema or b"") > batcher.room:
            batcher.cut(ordinal)
        if schema is not None:
            batcher.glue(schema, ordinal)
            table.told = True
        batcher.keys.append(key)
        batcher.values.append(value)
        batcher.room -= len(value)
        self._ordinal = ordinal + 1

    def _announce(self, message: bytes) -> None:
        """Note a relation, anew or as it is from now on."""
        relation = Relation.parse(message)
        schema = table_schema(relation, self._key(relation), self._types)
        known = self._tables.get(relation.oid)
        if known is not None and known.relation == relation and known.schema == schema:
            return
        shared = envelope.Table(
            source=self._source, database=self._database, schema=relation.schema, table=relation.table
        )
        table = Table(relation, schema, shared)
        table.told = known is not None and known.told and known.schema == schema
        self._tables[relation.oid] = table
        oid = message[1:5]
        for prefix in [prefix for prefix in self._told if prefix[1:5] == oid]:
            del self._told[prefix]

    def _key(self, relation: Relation) -> list[str]:
        if relation.identity not in "fn":
            return [column.name for column in relation.columns if column.identity]
        key = self._key_of(relation)
        if not {column.name for column in relation.columns}.issuperset(key):
            # The answer is that of now. Stopping would not help: the log holds the table as it was.
            _log.warning(
                "the key of %s.%s was altered after the changes that are read now were written: they have no key",
                relation.schema,
                relation.table,
            )
            return []
        return key

    def _name_type(self, message: bytes) -> None:
        """Byte1('Y') Int32(oid) String(namespace) String(name)."""
        (oid,) = _INT32(message, 1)
        _, offset = string(message, 5)
        name, offset = string(message, offset)
        if offset != len(message):
            raise ValueError("a type does not end where its name does")
        self._types[oid] = name

    def _nothing(self, message: bytes) -> None:
        """Byte1('O') origins and Byte1('M') messages are not part of the stream."""
