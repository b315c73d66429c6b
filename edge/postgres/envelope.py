"""The envelope around a row (docs/records.md), apart into what table, transaction and change know of it.

    {"before":B,"after":A, + table.head + Transaction.committed + table.middle + Transaction.place + ORDINAL
    + "},"op":"u","ts_ms": + Transaction.read(now) + NUMBER + }}

Every part but ORDINAL and NUMBER is made once and placed many times.

What Debezium's envelope has in addition (`[records] envelope = "debezium"`): each change's own place in the log, and times in
microseconds and nanoseconds.
Logical messages, which `pg_logical_emit_message` wrote, and their records (docs/records.md).
"""

import struct
from binascii import b2a_base64
from copy import copy
from hashlib import sha256
from typing import Final, NamedTuple, Self

from msgspec import json

from edge.postgres.relations import string
from edge.records.envelope import END, TableNames

#: The engine, as records name it.
CONNECTOR = "postgresql"
_TRANSACTION = b'"txId":'


class Around(NamedTuple):
    """What a record takes from its transaction and its place there, in the order in which it is in the record."""

    committed: bytes
    place: bytes
    ordinal: bytes
    read: bytes
    number: bytes


class Transaction:
    """What all records of one transaction share."""

    __slots__ = ("_read", "commit", "commit_ms", "committed", "id", "place")

    def __init__(self, *, epoch: int, commit: int, commit_ms: int, xid: int) -> None:
        self.commit = commit
        self.commit_ms = commit_ms
        self.committed = b"%d" % commit_ms
        self.place = b'%d,"lsn":%d,"position":"%08x/%016x/' % (xid, commit, epoch, commit)
        #: As JSON.
        self.id = b'"%d:%d"' % (xid, commit)
        self._read = b',"transaction":{"id":%b,"total_order":' % self.id

    def read(self, now_ms: int) -> bytes:
        """Return what a record holds from the time when it was read on, up to its number."""
        return b"%d%b" % (now_ms, self._read)


class Table(TableNames):
    """What all records of one table share."""

    def __init__(self, *, source: str, database: str, schema: str, table: str) -> None:
        super().__init__(connector=CONNECTOR, source=source, database=database, schema=schema, table=table)
        #: What a record of a row that was not there has as its `op`.
        self.created = b"c"
        self.middle = self.streamed + _TRANSACTION

    def for_snapshot(self) -> Self:
        """Return the same for rows that a snapshot reads."""
        other = copy(self)
        other.created = b"r"
        other.middle = self.copied + _TRANSACTION
        return other

    def rest(self, op: bytes, around: Around) -> bytes:
        """Return what comes after the rows of a record."""
        committed, place, ordinal, read, number = around
        return b'%b%b%b%b%b"},"op":"%b","ts_ms":%b%b}}' % (
            self.head, committed, self.middle, place, ordinal, op, read, number,
        )  # fmt: skip

    def source(self, transaction: Transaction, ordinal: int) -> bytes:
        """Return the source block up to and including the ordinal."""
        return b"%b%b%b%b%08x" % (self.head, transaction.committed, self.middle, transaction.place, ordinal)


NO_ORIGIN: Final = b'"origin":null,"origin_lsn":null'


class DebeziumTransaction(Transaction):
    """What all records of one transaction share, and what each has of its own."""

    __slots__ = ("_commit_us", "_epoch", "_last_end", "_origin", "_xid")

    def __init__(self, *, epoch: int, commit: int, commit_us: int, xid: int, last_end: int) -> None:
        """`last_end` is where the transaction before ends in the log, 0 where it was not read; times are of 1970."""
        super().__init__(epoch=epoch, commit=commit, commit_ms=commit_us // 1000, xid=xid)
        self._epoch, self._xid, self._commit_us = epoch, xid, commit_us
        self._last_end = b'\\"%d\\"' % last_end if last_end else b"null"
        self._origin = NO_ORIGIN
        self.place = self.place_at(commit)

    def place_at(self, lsn: int) -> bytes:
        """Return what comes between a table's names and the ordinal, of a change at an LSN."""
        return place(b"%d" % self._xid, lsn, self._last_end, self._commit_us, self._epoch, self.commit, self._origin)

    def set_origin(self, message: bytes) -> None:
        """Byte1('O') Int64(LSN of the commit at the origin) String(name): where a change that was replicated comes from."""
        name, end = string(message, 9)
        if end != len(message):
            raise ValueError("an origin does not end where its name does")
        self._origin = b'"origin":%b,"origin_lsn":%d' % (json.encode(name), int.from_bytes(message[1:9], "big"))
        self.place = self.place_at(self.commit)

    def read(self, now_ms: int) -> bytes:
        """Return what a record holds from the time when it was read on, up to its number."""
        return b"%b%b" % (read_at(now_ms), self._read)

    def around(self, *, lsn: int, ordinal: int, read: bytes, total: int, of_table: int) -> Around:
        """Return the parts of one record: its number in the transaction, and among those of its table, both from 1."""
        number = b'%d,"data_collection_order":%d' % (total, of_table)
        return Around(self.committed, self.place_at(lsn), b"%08x" % ordinal, read, number)


def place(
    xid: bytes, lsn: int, last_end: bytes, commit_us: int, epoch: int, commit: int, origin: bytes = NO_ORIGIN
) -> bytes:
    """Return what comes between a table's names and the ordinal; `xid` and `last_end` as JSON, the latter inside of a text."""
    times = b'"ts_us":%d,"ts_ns":%d' % (commit_us, commit_us * 1000)
    return b'%b,"lsn":%d,"sequence":"[%b,\\"%d\\"]",%b,"xmin":null,%b,"position":"%08x/%016x/' % (
        xid, lsn, last_end, lsn, times, origin, epoch, commit,
    )  # fmt: skip


def read_at(now_ms: int) -> bytes:
    """Return when a record was read; by a clock of milliseconds."""
    return b'%d,"ts_us":%d,"ts_ns":%d' % (now_ms, now_ms * 1000, now_ms * 1_000_000)


_FLAGS_AND_LSN = struct.Struct(">xBQ").unpack_from
_LENGTH = struct.Struct(">I").unpack_from
_TRANSACTIONAL = 1


class LogicalMessage(NamedTuple):
    """What `pg_logical_emit_message` wrote."""

    transactional: bool
    #: Where the message ends in the log.
    lsn: int
    prefix: str
    content: bytes

    @classmethod
    def parse(cls, message: bytes) -> Self:
        """Byte1('M') Int8(flags) Int64(LSN) String(prefix) Int32(length) Byten(content)."""
        flags, lsn = _FLAGS_AND_LSN(message)
        prefix, offset = string(message, 10)
        (length,) = _LENGTH(message, offset)
        content = message[offset + 4 :]
        if flags > _TRANSACTIONAL or len(content) != length:
            raise ValueError("a logical message does not end where its content does")
        return cls(bool(flags), lsn, prefix, content)


class MessageRecords:
    """Makes the records of one source's logical messages; their source names no table."""

    def __init__(self, *, source: str, database: str) -> None:
        self.envelope = Table(source=source, database=database, schema="", table="")

    def record(self, message: LogicalMessage, around: Around, *, largest: int) -> tuple[bytes, bytes]:
        """Return key and value; content too large for a record is left out, and replaced by its size and SHA-256."""
        prefix = json.encode(message.prefix)
        content = b'"%b"' % b2a_base64(message.content, newline=False)
        left_out = b""
        if len(content) > largest:
            digest = sha256(message.content).hexdigest().encode()
            left_out = b'"too_large":{"bytes":%d,"sha256":"%b"},' % (len(message.content), digest)
            content = b"null"
        rest = self.envelope.rest(b"m", around)
        if not message.transactional:
            rest = rest.removesuffix(END) + b',"transaction":null}'
        return b'{"prefix":%b}' % prefix, b'{"message":{"prefix":%b,"content":%b},%b%b' % (
            prefix,
            content,
            left_out,
            rest,
        )

    @staticmethod
    def outside(message: LogicalMessage, epoch: int, now_ms: int, *, with_places: bool = False) -> Around:
        """Return the parts of a record for a message that belongs to no transaction; its position is right before its end."""
        if with_places:
            where = place(b"null", message.lsn, b"null", now_ms * 1000, epoch, message.lsn - 1)
            return Around(b"%d" % now_ms, where, b"%08x" % 0, read_at(now_ms), b"")
        where = b'null,"lsn":%d,"position":"%08x/%016x/' % (message.lsn, epoch, message.lsn - 1)
        return Around(b"%d" % now_ms, where, b"%08x" % 0, b"%d" % now_ms, b"")
