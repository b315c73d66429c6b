"""MySQL's compressed transactions (`binlog_transaction_compression`): the events that one holds.

Transaction_payload_event: packed kind, packed length, value, until kind 0: 1 the payload's size, 2 how it is compressed (0 zstd,
255 not at all), 3 its size before; then the payload. Raises ValueError for what is none.
"""

from collections.abc import Iterator

import zstandard

from edge.mysql import events as event
from edge.mysql.table_map import packed

_ZSTD, _PLAIN = 0, 255
_LARGEST = 1 << 30


def events(body: bytes) -> Iterator[bytes]:
    """Yield the events, which have no checksums."""
    fields = {2: _PLAIN, 3: 0}
    kind, at = packed(body, 0)
    while kind:
        length, at = packed(body, at)
        fields[kind], _ = packed(body[at : at + length], 0)
        at += length
        kind, at = packed(body, at)
    data = body[at:]
    if fields[2] == _ZSTD:
        if not 0 < fields[3] <= _LARGEST:
            raise ValueError("a compressed transaction unpacks to an impossible size")
        try:
            data = zstandard.ZstdDecompressor().decompress(data, max_output_size=fields[3])
        except zstandard.ZstdError as error:
            raise ValueError("a compressed transaction is damaged") from error
    elif fields[2] != _PLAIN:
        raise ValueError("a transaction is compressed in an unknown way")
    at = 0
    while at < len(data):
        size = int.from_bytes(data[at + 9 : at + 13], "little")
        if size < event.HEADER_SIZE or at + size > len(data):
            raise ValueError("an event of a compressed transaction is cut short")
        yield data[at : at + size]
        at += size
