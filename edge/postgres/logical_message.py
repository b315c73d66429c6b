"""Logical messages, which `pg_logical_emit_message` wrote, and their records (docs/records.md).

Their form is Debezium's; `source` is that of changes, so that each has its position. Called by the decoder.
"""

import struct
from binascii import b2a_base64
from hashlib import sha256
from typing import NamedTuple, Self

from msgspec import json

from edge.postgres import debezium_envelope, envelope
from edge.postgres.envelope import Around
from edge.postgres.relations import string
from edge.records.envelope import END

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
        self.envelope = envelope.Table(source=source, database=database, schema="", table="")

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
            where = debezium_envelope.place(b"null", message.lsn, b"null", now_ms * 1000, epoch, message.lsn - 1)
            return Around(b"%d" % now_ms, where, b"%08x" % 0, debezium_envelope.read_at(now_ms), b"")
        place = b'null,"lsn":%d,"position":"%08x/%016x/' % (message.lsn, epoch, message.lsn - 1)
        return Around(b"%d" % now_ms, place, b"%08x" % 0, b"%d" % now_ms, b"")
