"""pgoutput, protocol version 1, from bytes to records (PostgreSQL manual, "Logical Replication Message Formats").

Sans-I/O: the agent feeds one message at a time. Positions depend on the log alone: the ordinal counts the transaction's changes
from 0, schema records not among them. Whatever is not a message raises CorruptInput with the place in the log, and nothing else.
"""

import struct
from collections.abc import Callable

from msgspec import json

from edge.batcher import Batcher
from edge.postgres import envelope
from edge.postgres.relation import Relation, RelationColumn, table_schema
from edge.postgres.rows import Rows
from headrace.errors import CorruptInput
from headrace.position import Position
from headrace.schema import TableSchema

#: Seconds from 1970 to PostgreSQL's 2000, in microseconds.
_EPOCH_2000 = 946_684_800_000_000
_PAD = bytes(4)
_BEGIN = struct.Struct(">xQqI").unpack
_COMMIT = struct.Struct(">xBQQq").unpack
_HEAD = struct.Struct(">xIcH").unpack_from
_KIND_AND_WIDTH = struct.Struct(">cH").unpack_from
_INT32 = struct.Struct(">I").unpack_from
_INT16 = struct.Struct(">H").unpack_from
_COLUMN = struct.Struct(">Ii").unpack_from

#: What each change looks like around its rows: source up to the ordinal, tail, number in the transaction.
_INSERT = b'{"before":null,"after":%b,%b%08x"},"op":"c"%b%d}}'
_UPDATE = b'{"before":%b,"after":%b,%b%08x"},"op":"u"%b%d}}'
_PARTIAL_UPDATE = b'{"before":%b,"after":%b,"unchanged":%b,%b%08x"},"op":"u"%b%d}}'
_DELETE = b'{"before":%b,"after":null,%b%08x"},"op":"d"%b%d}}'
_TRUNCATE = b'{"before":null,"after":null,%b%08x"},"op":"t"%b%d}}'


class _Table:
    """What is known of an announced relation, and its parts of the envelope in the present transaction."""

    def __init__(self, relation: Relation, key: list[str], schema: TableSchema, constant: bytes) -> None:
        self.relation = relation
        self.schema = schema
        self.rows = Rows(relation, key)
        self.identity = [number for number, column in enumerate(relation.columns) if column.identity]
        self.constant = constant
        #: Whether its schema record went ahead.
        self.told = False
        self.transaction: envelope.Transaction | None = None
        self.source = b""


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
        self._tables: dict[int, _Table] = {}
        self._types: dict[int, str] = {}
        self._constant = envelope.constant(source)
        self._transaction: envelope.Transaction | None = None
        self._commit = self._ordinal = 0
        self._tail, self._tail_ms = b"", -1
        self._others = {
            b"B": self._begin, b"C": self._end, b"R": self._relation, b"Y": self._type, b"T": self._truncate,
            b"O": self._nothing, b"M": self._nothing,
        }  # fmt: skip

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction has begun and its commit was not fed yet."""
        return self._transaction is not None

    def feed(self, message: bytes, now_ms: int) -> None:
        """Decode one message, read at a time in milliseconds since 1970; raise CorruptInput when it is none."""
        kind = message[:1]
        try:
            if kind == b"I":
                self._insert(message, now_ms)
            elif kind == b"U":
                self._update(message, now_ms)
            elif kind == b"D":
                self._delete(message, now_ms)
            elif kind in self._others:
                self._others[kind](message, now_ms)
            else:
                raise CorruptInput(
                    f"message type {kind!r} is unknown{self._place()}", hint="Report it; the slot stays where it is."
                )
        except (struct.error, IndexError, ValueError, KeyError) as error:
            raise CorruptInput(f"a message of type {kind!r} cannot be decoded{self._place()}") from error

    def _place(self) -> str:
        place = Position(self._epoch, self._commit, self._ordinal)
        return f" at position {place}" if self._transaction else f" after position {self.committed}"

    def _begin(self, message: bytes, _now_ms: int) -> None:
        """Byte1('B') Int64(final LSN) Int64(commit time) Int32(xid)."""
        commit, time, xid = _BEGIN(message)
        if self._transaction is not None:
            raise ValueError("begin within a transaction")
        commit_ms = (time + _EPOCH_2000) // 1000
        self._transaction = envelope.Transaction(epoch=self._epoch, commit=commit, commit_ms=commit_ms, xid=xid)
        self._commit, self._ordinal, self._tail_ms = commit, 0, -1
        self._batcher.begin(commit, commit_ms)

    def _end(self, message: bytes, _now_ms: int) -> None:
        """Byte1('C') Int8(flags) Int64(commit LSN) Int64(end LSN) Int64(commit time)."""
        _flags, commit, end_lsn, _time = _COMMIT(message)
        if self._transaction is None or commit != self._commit:
            raise ValueError("commit without its begin")
        if self._ordinal:
            values = self._batcher.values
            last = values[-1]
            assert last is not None
            values[-1] = last[:-2] + b',"last":true}}'
            self.committed = Position(self._epoch, commit, self._ordinal - 1)
        self.end_lsn = end_lsn
        self._transaction = None
        self._batcher.commit(end_lsn)

    def _insert(self, message: bytes, now_ms: int) -> None:
        """Byte1('I') Int32(relation) Byte1('N') TupleData."""
        oid, new, width = _HEAD(message)
        table = self._ready(oid, len(message), now_ms)
        if new != b"N":
            raise ValueError("no new tuple")
        row, key, _ = self._whole(table, message + _PAD, 8, width, len(message))
        self._add(table, key, _INSERT, (row,))

    def _update(self, message: bytes, now_ms: int) -> None:
        """Byte1('U') Int32(relation) [Byte1('K' or 'O') TupleData] Byte1('N') TupleData."""
        oid, kind, width = _HEAD(message)
        table = self._ready(oid, len(message), now_ms)
        padded, end = message + _PAD, len(message)
        before, old, offset = b"null", None, 8
        if kind != b"N":
            rows = table.rows
            found = rows.fast(padded, 8) if kind == b"O" and width == rows.width else None
            if found is not None:
                before, _, offset = found
            else:
                old, offset = self._slow(table, padded, 8, width)
                before = self._before(table, kind, old)
            kind, width = _KIND_AND_WIDTH(padded, offset)
            offset += 3
        if kind != b"N":
            raise ValueError("no new tuple")
        fast = table.rows.fast(padded, offset) if width == table.rows.width else None
        if fast is not None:
            row, key, offset = fast
            unchanged = b""
        else:
            if before != b"null" and old is None:
                old = table.rows.slow(padded, 8).columns
            columns, offset = self._slow(table, padded, offset, width)
            if old is not None and table.relation.identity == "f":
                columns = [was if value is None else value for value, was in zip(columns, old, strict=True)]
            row, key = table.rows.row(columns), table.rows.key(columns)
            unchanged = table.rows.missing(columns)
        if offset != end:
            raise ValueError("a message does not end where its columns do")
        if unchanged:
            self._add(table, key, _PARTIAL_UPDATE, (before, row, unchanged))
        else:
            self._add(table, key, _UPDATE, (before, row))

    def _delete(self, message: bytes, now_ms: int) -> None:
        """Byte1('D') Int32(relation) Byte1('K' or 'O') TupleData."""
        oid, kind, width = _HEAD(message)
        table = self._ready(oid, len(message), now_ms)
        padded, end = message + _PAD, len(message)
        if kind == b"O":
            before, key, _ = self._whole(table, padded, 8, width, end)
        else:
            old, offset = self._slow(table, padded, 8, width)
            if offset != end:
                raise ValueError("a message does not end where its columns do")
            before, key = self._before(table, kind, old), table.rows.key(old)
        self._add(table, key, _DELETE, (before,))

    def _truncate(self, message: bytes, now_ms: int) -> None:
        """Byte1('T') Int32(how many) Int8(options) Int32(relation)..."""
        (count,) = _INT32(message, 1)
        if len(message) != 6 + 4 * count:
            raise ValueError("a truncate does not end where its relations do")
        for number in range(count):
            table = self._ready(_INT32(message, 6 + 4 * number)[0], 0, now_ms)
            self._add(table, None, _TRUNCATE, ())

    def _relation(self, message: bytes, _now_ms: int) -> None:
        """Byte1('R') Int32(oid) String(namespace) String(name) Int8(identity) Int16(columns) {Int8 String Int32 Int32}..."""
        (oid,) = _INT32(message, 1)
        schema, offset = _string(message, 5)
        name, offset = _string(message, offset)
        identity = chr(message[offset])
        (count,) = _INT16(message, offset + 1)
        offset += 3
        columns = []
        for _ in range(count):
            flags = message[offset]
            column, offset = _string(message, offset + 1)
            columns.append(RelationColumn(bool(flags & 1), column, *_COLUMN(message, offset)))
            offset += 8
        if offset != len(message) or identity not in "dnfi":
            raise ValueError("a relation does not end where its columns do")
        relation = Relation(
            oid=oid, schema=schema or "pg_catalog", table=name, identity=identity, columns=tuple(columns)
        )
        key = self._key_of(relation) if identity in "fn" else [column.name for column in columns if column.identity]
        described = table_schema(relation, key, self._types)
        known = self._tables.get(oid)
        if known is not None and known.schema == described and known.relation == relation:
            return
        table = _Table(relation, key, described, envelope.table(self._database, relation.schema, name))
        table.told = known is not None and known.told and known.schema == described
        self._tables[oid] = table

    def _type(self, message: bytes, _now_ms: int) -> None:
        """Byte1('Y') Int32(oid) String(namespace) String(name)."""
        (oid,) = _INT32(message, 1)
        _, offset = _string(message, 5)
        self._types[oid], _ = _string(message, offset)

    def _nothing(self, message: bytes, now_ms: int) -> None:
        """Byte1('O') origins and Byte1('M') messages are not part of the stream."""

    def _ready(self, oid: int, size: int, now_ms: int) -> _Table:
        """Return the relation's table: room made for so many bytes, schema record sent, envelope made."""
        table, transaction, batcher = self._tables[oid], self._transaction, self._batcher
        if transaction is None:
            raise ValueError("a change outside a transaction")
        if batcher.open_bytes and batcher.open_bytes + size > batcher.limit:
            batcher.cut(self._ordinal)
        if now_ms != self._tail_ms:
            self._tail, self._tail_ms = transaction.tail(now_ms), now_ms
        if table.transaction is not transaction:
            table.transaction = transaction
            table.source = transaction.source(self._constant, table.constant)
        if not table.told:
            batcher.glue(self._schema_record(table, now_ms), self._ordinal)
            table.told = True
        return table

    def _schema_record(self, table: _Table, now_ms: int) -> bytes:
        relation = table.relation
        return b'{%b%08x"},"ts_ms":%d,"databaseName":%b,"schemaName":%b,"ddl":null,"tableChanges":[%b]}' % (
            table.source,
            self._ordinal,
            now_ms,
            json.encode(self._database),
            json.encode(relation.schema),
            json.encode(table.schema.change()),
        )

    def _add(self, table: _Table, key: bytes | None, template: bytes, rows: tuple[bytes, ...]) -> None:
        ordinal, batcher = self._ordinal, self._batcher
        value = template % (*rows, table.source, ordinal, self._tail, ordinal + 1)
        batcher.keys.append(key)
        batcher.values.append(value)
        batcher.open_bytes += len(value) + (len(key) if key else 0)
        self._ordinal = ordinal + 1

    def _whole(
        self, table: _Table, padded: bytes, offset: int, width: int, end: int
    ) -> tuple[bytes, bytes | None, int]:
        """Return row, key and end of the last tuple of a message, all of whose columns are there."""
        rows = table.rows
        found = rows.fast(padded, offset) if width == rows.width else None
        if found is None:
            columns, offset = self._slow(table, padded, offset, width)
            found = rows.row(columns), rows.key(columns), offset
        if found[2] != end:
            raise ValueError("a message does not end where its columns do")
        return found

    @staticmethod
    def _slow(table: _Table, padded: bytes, offset: int, width: int) -> tuple[list[bytes | None], int]:
        if width != table.rows.width:
            raise ValueError("a tuple has another number of columns than its relation")
        return table.rows.slow(padded, offset)

    @staticmethod
    def _before(table: _Table, kind: bytes, old: list[bytes | None]) -> bytes:
        if kind == b"O":
            return table.rows.row(old)
        if kind == b"K":
            return table.rows.key_row(old, table.identity)
        raise ValueError("a tuple is neither old, key nor new")


def _string(message: bytes, offset: int) -> tuple[str, int]:
    end = message.index(0, offset)
    return message[offset:end].decode(), end + 1
