"""Records that stand beside changes, for those who ask (docs/records.md): logical messages, and where transactions begin and end.

Their forms are Debezium's; `source` is that of changes, so that each has its position. Called by the decoder, never for a change.
"""

import struct
from binascii import b2a_base64
from collections.abc import Mapping
from hashlib import sha256
from typing import NamedTuple, Self

from msgspec import json

from edge.postgres import envelope
from edge.postgres.envelope import Around
from edge.postgres.relations import string

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


class TransactionMetadata:
    """What such records of one source share; their source names no table."""

    def __init__(self, *, source: str, database: str) -> None:
        self._source = envelope.Table(source=source, database=database, schema="", table="")

    def message(self, told: LogicalMessage, around: Around, *, largest: int) -> tuple[bytes, bytes]:
        """Return key and value; content too large for a record is left out, told by its size and SHA-256."""
        prefix = json.encode(told.prefix)
        content = b'"%b"' % b2a_base64(told.content, newline=False)
        left_out = b""
        if len(content) > largest:
            digest = sha256(told.content).hexdigest().encode()
            left_out = b'"too_large":{"bytes":%d,"sha256":"%b"},' % (len(told.content), digest)
            content = b"null"
        rest = self._source.rest(b"m", around)
        if not told.transactional:
            rest = rest.removesuffix(envelope.END) + b',"transaction":null}'
        return b'{"prefix":%b}' % prefix, b'{"message":{"prefix":%b,"content":%b},%b%b' % (
            prefix,
            content,
            left_out,
            rest,
        )

    @staticmethod
    def outside(told: LogicalMessage, epoch: int, now_ms: int) -> Around:
        """Return what surrounds a message that belongs to no transaction, whose place is right before its end."""
        place = b'null,"lsn":%d,"position":"%08x/%016x/' % (told.lsn, epoch, told.lsn - 1)
        return Around(b"%d" % now_ms, place, b"%08x" % 0, b"%d" % now_ms, b"")

    def begin(self, transaction: bytes, around: Around, now_ms: int) -> tuple[bytes, bytes]:
        """Return key and value of the record that goes ahead of a transaction's first change."""
        return self._status(b"BEGIN", transaction, b"null", b"null", around, now_ms)

    def end(
        self, transaction: bytes, changes: Mapping[bytes, int], count: int, around: Around, now_ms: int
    ) -> tuple[bytes, bytes]:
        """Return key and value of a transaction's last record; `changes` tells how many each table has, by its JSON name."""
        listed = b",".join(
            b'{"data_collection":%b,"event_count":%d}' % (table, number) for table, number in changes.items()
        )
        return self._status(b"END", transaction, b"%d" % count, b"[%b]" % listed, around, now_ms)

    def _status(
        self, status: bytes, transaction: bytes, count: bytes, collections: bytes, around: Around, now_ms: int
    ) -> tuple[bytes, bytes]:
        shared = self._source
        value = (
            b'{"status":"%b","id":"%b","event_count":%b,"data_collections":%b,%b%b%b%b%b"},"ts_ms":%d}'
            % (
                status, transaction, count, collections, shared.head, around.committed, shared.middle, around.place,
                around.ordinal, now_ms,
            )
        )  # fmt: skip
        return b'{"id":"%b"}' % transaction, value
