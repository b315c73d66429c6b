"""Batches that no edge makes, put together by hand, so that neither our encoder nor a checksum refuses them."""

from typing import Any

import msgspec
import zstandard

from bridge.model.delivery import Delivery
from headrace.batch import CONTENT_ENCODING
from headrace.position import Position

EPOCH = 1_700_000_000
SEGMENTS = [[1, 0, 1]]
KEY = b'{"id":1}'
#: A record of public.t.
VALUE = (
    b'{"before":null,"after":{"id":1},"source":{"version":"1","name":"a/one","ts_ms":1,"schema":"public","table":"t"}}'
)
AVRO_KEY, AVRO_VALUE = b"\0\0\0\0\1k", b"\0\0\0\0\1v"


def properties(version: int = 1, *, source: str = "a/one", epoch: int = EPOCH, count: int = 1, **more: Any) -> dict:
    """Return the properties of a batch of one record, the first of its epoch."""
    at = str(Position(epoch, 1, 0))
    return {
        "version": version, "source": source, "follows": str(Position.start(epoch)), "first": at, "last": at, "count": count,
    } | more  # fmt: skip


def packed(raw: bytes) -> bytes:
    """Return MessagePack as a body."""
    return zstandard.ZstdCompressor(level=3).compress(raw)


def body(*parts: Any) -> bytes:
    """Return values as a body."""
    return packed(msgspec.msgpack.encode(parts))


def of_json(value: bytes = VALUE, key: bytes | None = KEY) -> bytes:
    """Return the body of a batch of one record."""
    return body(SEGMENTS, [key], [value], {})


def of_avro(*written: Any, value: bytes = AVRO_VALUE) -> bytes:
    """Return the body of a batch of one record in Avro."""
    return body(SEGMENTS, [AVRO_KEY], [value], {}, {}, list(written))


def named(table: bytes, schema: bytes = b"public") -> bytes:
    """Return a record that names its table with these bytes."""
    return b'{"before":null,"source":{"version":"1","name":"a/one","ts_ms":1,"schema":"%b","table":"%b"}}' % (
        schema,
        table,
    )


def nested(depth: int) -> bytes:
    """Return MessagePack of lists in lists."""
    return b"\x91" * depth + b"\xc0"


def delivery(ticket: int, given: Any, content: bytes, encoding: Any = CONTENT_ENCODING) -> Delivery:
    """Return them as a delivery."""
    return Delivery(ticket, 1, given, encoding, content)


_ENVELOPE = '{"type":"record","namespace":"@prefix.public.t","name":"Envelope","fields":[]}'
_OTHERS_SCHEMA = '{"type":"record","namespace":"@prefix.public.accounts","name":"Envelope","fields":[]}'
_ONE = b"\x91\x93\x01\x00\x01\x91\xc4\x01k\x91\xc4\x01v"


def _many(count: int, item: bytes) -> bytes:
    return b"\xdd" + count.to_bytes(4, "big") + item * count


def _headers(count: int) -> bytes:
    """Return the body of a batch of records with 64 headers each, whose lists say their lengths in the longest form."""
    own = b"\xdd\0\0\0\x40" + b"\x92\xa2ab\xc4\0" * 64
    each = b"".join(b"\xce" + number.to_bytes(4, "big") + own for number in range(count))
    records = _many(count, b"\xc4\x01v")
    return packed(
        b"\x95\x91\x93\x01\0\xce"
        + count.to_bytes(4, "big")
        + records * 2
        + b"\x80\xdf"
        + count.to_bytes(4, "big")
        + each
    )


#: Properties and body by what is wrong with them.
BATCHES: dict[str, tuple[Any, bytes]] = {
    "properties are a list": (["a"], b""),
    "no properties": (None, of_json()),
    "properties have a list as a value": (properties(source=["a/one"]), of_json()),
    "version is no number": (properties(version="1"), of_json()),
    "version is huge": (properties(version=1 << 62), of_json()),
    "count is huge": (properties(count=(1 << 63) - 1), of_json()),
    "no zstd": (properties(), b"plain"),
    "size is not in the frame": (properties(), zstandard.ZstdCompressor(write_content_size=False).compress(b"\x90")),
    "no MessagePack": (properties(), packed(b"\xc1")),
    "nested": (properties(), packed(b"\x94" + nested(100_000))),
    "name of a figure is no UTF-8": (properties(), packed(b"\x94" + _ONE + b"\x81\xa1\xff\x01")),
    "text of a figure is no UTF-8": (properties(), packed(b"\x94" + _ONE + b"\x81\xa5state\xa1\xff")),
    "many figures": (properties(), body(SEGMENTS, [KEY], [VALUE], {str(n): n for n in range(1000)})),
    "a figure is a long text": (properties(), body(SEGMENTS, [KEY], [VALUE], {"warnings": "x" * 100_000})),
    "name of a header is no UTF-8": (properties(2), packed(b"\x95" + _ONE + b"\x80\x81\x00\x91\x92\xa1\xff\xc4\x01h")),
    "name of a header has a zero byte": (properties(2), body(SEGMENTS, [KEY], [VALUE], {}, {0: [("a\0b", b"h")]})),
    "many headers": (properties(2), body(SEGMENTS, [KEY], [VALUE], {}, {0: [("a", b"h")] * 10_000})),
    "headers without end (S7)": (properties(2, count=20_000, last=str(Position(EPOCH, 1, 19_999))), _headers(20_000)),
    "a header of no record": (properties(2), body(SEGMENTS, [KEY], [VALUE], {}, {-1: [("a", b"h")]})),
    "schema is no UTF-8": (properties(3), packed(b"\x96" + _ONE + b"\x80\x80\x91\x95\x01\xa1\xff\xa1t\xc0\xa2{}")),
    "schema is no JSON": (properties(3), of_avro([1, "public", "t", None, "no json"])),
    "schema is empty": (properties(3), of_avro([1, "public", "t", None, ""])),
    "schema is a list": (properties(3), of_avro([1, "public", "t", None, "[]"])),
    "schema has no namespace": (properties(3), of_avro([1, "public", "t", None, "{}"])),
    "schema is nested": (properties(3), of_avro([1, "public", "t", None, "[" * 100_000])),
    "schema is another table's (S5)": (properties(3), of_avro([1, "public", "t", None, _OTHERS_SCHEMA])),
    "number of a schema is 2**40": (properties(3), of_avro([1 << 40, "public", "t", None, "{}"], value=VALUE)),
    "number of a schema is negative": (properties(3), of_avro([-1, "public", "t", None, "{}"], value=VALUE)),
    "name of a table in Avro is long": (properties(3), of_avro([1, "public", "t" * 100_000, None, _ENVELOPE])),
    "many schemas": (properties(3), of_avro(*([n, "public", f"t{n}", None, _ENVELOPE] for n in range(50_000)))),
    "a value in Avro, in a batch of JSON (S4)": (properties(), of_json(b"\0\0\0\0\1v")),
    "a key in Avro, in a batch of JSON (S4)": (properties(), of_json(key=b"\0\0\0\0\1k")),
    "a key in Avro beside a value in JSON (S4)": (
        properties(3), body(SEGMENTS, [AVRO_KEY], [VALUE], {}, {}, [[1, "public", "t", None, _ENVELOPE]]),
    ),
    "a record in Avro names no schema": (properties(3), of_avro([2, "public", "t", None, _ENVELOPE])),
    "name of a table is no UTF-8": (properties(), of_json(named(b"\xff"))),
    "name of a table is half a character": (properties(), of_json(named(b"\\ud800"))),
    "name of a table is long": (properties(), of_json(named(b"t" * 100_000))),
    "record names no table": (properties(), of_json(b'{"source":{"version":"1"}}')),
    "source is another one (S3)": (properties(source="a/two"), of_json()),
    "epoch is in the future (S3)": (properties(epoch=0xFFFFFFFF), of_json()),
    "a position has a negative ordinal": (
        properties(last=str(Position(EPOCH, 3, 0)), count=3),
        body([[1, 0, 1], [2, -5, 1], [3, 0, 1]], [KEY] * 3, [VALUE] * 3, {}),
    ),
    "a position has an ordinal of 2**40": (
        properties(last=str(Position(EPOCH, 3, 0)), count=3),
        body([[1, 0, 1], [2, 1 << 40, 1], [3, 0, 1]], [KEY] * 3, [VALUE] * 3, {}),
    ),
    "a position has a commit of -1": (properties(), body([[-1, 0, 1]], [KEY], [VALUE], {})),
    "positions go back": (
        properties(last=str(Position(EPOCH, 3, 0)), count=3),
        body([[1, 0, 1], [5, 0, 1], [3, 0, 1]], [KEY] * 3, [VALUE] * 3, {}),
    ),
    "last is above its records (S3)": (properties(last=str(Position(EPOCH, (1 << 64) - 1, 0))), of_json()),
    "counts of segments cancel each other": (
        properties(count=1, last=str(Position(EPOCH, 2, 0))), body([[1, 0, 5], [2, 4, -4]], [KEY], [VALUE], {}),
    ),
    "segments without end (S7)": (properties(count=0), packed(b"\x94" + _many(2_000_000, b"\x93\x01\x00\x01") + b"\x90\x90\x80")),
    "values without end (S7)": (properties(), packed(b"\x94\x90\x90" + _many(8_000_000, b"\xc0") + b"\x80")),
    "unpacks to 200 MB (S7)": (properties(), packed(b"\x94" + bytes(200 << 20))),
}  # fmt: skip

_OWN, _OTHER = b'"source":{"name":"a/one"}', b'"source":{"name":"a/two"}'
#: Values that name another source, or can be read so, by how; refused where a stream has `check_source_names`.
NAMES: dict[str, bytes] = {
    "another source": b"{%b}" % _OTHER,
    "no source": b'{"after":{%b}}' % _OWN,
    "no name": b'{"source":{"position":"1"}}',
    "source twice, its own last": b"{%b,%b}" % (_OTHER, _OWN),
    "source twice, its own first": b"{%b,%b}" % (_OWN, _OTHER),
    "source twice, once with an escape": b"{%b,%b}" % (_OTHER.replace(b"so", b"\\u0073o"), _OWN),
    "source twice, once no object": b'{"source":"a/two",%b}' % _OWN,
    "name twice": b'{"source":{"name":"a/two","name":"a/one"}}',
    "name twice, once with an escape": b'{"source":{"name":"a/one","n\\u0061me":"a/two"}}',
    "source twice, once in another case": b"{%b,%b}" % (_OWN, _OTHER.replace(b"so", b"So")),
    "source twice, once in another case and no object": b'{%b,"SOURCE":null}' % _OWN,
    "source twice, once with a long s": b"{%b,%b}" % (_OWN, _OTHER.replace(b"so", "\u017fo".encode())),
    "source twice, once in another case with an escape": b"{%b,%b}" % (_OWN, _OTHER.replace(b"so", b"\\u0053o")),
    "name twice, once in another case": b'{"source":{"name":"a/one","Name":"a/two"}}',
    "two records in one": b"{%b}{%b}" % (_OWN, _OTHER),
    "no JSON": b'{%b,"after":{"id":nan}}' % _OWN,
}
