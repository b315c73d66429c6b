"""The batch: the contract between edge and bridge, and the body of one AMQP message (design decisions 2 and 3).

A batch carries finished Kafka records of one source, in position order, and names the position that it follows. The bridge
never looks into a record.

Message properties (application properties, all text but the two numbers):

    version   1; 2 for a batch with headers, 3 for one with records in Avro, 4 for one with a wide commit number, so that an edge
              without them writes what older bridges read
    source    region/name
    follows   position of the change before this batch; the start of the epoch for the first batch of an epoch
    first     position of its first record; equals `last` in an empty batch
    last      position of its last record; equals `follows` in an empty batch
    count     how many records

Body: zstd, with its own checksum of the content, of MessagePack `[segments, keys, values, figures]`, in version 2 with `headers`
behind them:

    segments  [[commit, ordinal, count], ...]: the next `count` records are of the transaction that commits at `commit`,
              with ordinals from `ordinal` on, one each. A schema record has a segment of its own, with the position of the
              change that it goes ahead of; so has a tombstone, with that of its delete, and a delete that goes ahead
              of a record of the same change (`[records] key_change`). A commit number above 64 bits is a binary of 16 bytes, in
              version 4.
    keys      a binary or nil for each record
    values    a binary or nil for each record; nil is a tombstone
    figures   what the edge reports of itself: {name: number or text}
    headers   of the records that have any, by their index: {index: [[name, value], ...]}; from version 2 on
    written   from version 3 on: what its records in Avro were written with, `[[number, schema, table, key, value], ...]`: a
              number of the batch's own, the table, the Avro schema of its keys (nil for a table without a key) and that of its
              values, as JSON whose names begin with `@prefix.` in place of the prefix of the stream's topics

A value in Avro begins with a byte of 0 and the number, in four bytes, of what it was written with; so does its key, and that of
its tombstone. All other values are JSON, whose first byte is another one.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import msgspec
import zstandard
from msgspec import Meta

from headrace.errors import CorruptInput
from headrace.formats import BATCH, UNREADABLE
from headrace.position import Position

CONTENT_TYPE = "application/vnd.headrace.batch+msgpack"
CONTENT_ENCODING = "zstd"
#: No body may grow beyond this when it is unpacked, in bytes: a small hostile message must not fill the memory.
LARGEST_BODY = 256 * 1024 * 1024
#: A batch has no more records, and so no more segments: an edge's hold 4 MB of values, or a single change.
MOST_RECORDS = 128 * 1024
#: Tables that a batch in Avro may name, the characters of their names, and of a schema.
_MOST_TABLES, _LONGEST_NAME, _LONGEST_SCHEMA = 4096, 256, 2 << 20
_MOST_FIGURES, _LONGEST_FIGURE = 200, 4096
#: Headers of a record, and of a batch; and the bytes of the smallest one.
_MOST_HEADERS, _MOST_HEADERS_OF_ALL, _SMALLEST_HEADER = 64, 2 * MOST_RECORDS, 5

Segment = tuple[int, int, int]
Figures = dict[str, int | float | str]
#: Kafka headers of records, by the record's index.
Headers = dict[int, list[tuple[str, bytes]]]

#: The first byte of a value in Avro, and of its key.
AVRO_MARK = b"\0"
_ABOVE_AVRO = b"\1"

_LEVEL = 1
#: A position has ordinals below this; MessagePack's numbers are below that.
_ORDINALS, _NUMBERS = 1 << 32, 1 << 64


class WrittenWith(NamedTuple):
    """The Avro schemas of a table's records in a batch."""

    #: What the records have in place of an id of the registry.
    number: int
    #: The table, as schema records name it.
    schema: str
    table: str
    #: None for a table without a key.
    key: str | None
    value: str

    @property
    def mark(self) -> bytes:
        """The first five bytes of the table's values and keys in the batch."""
        return AVRO_MARK + self.number.to_bytes(4, "big")

    @property
    def name(self) -> str:
        """The table, `schema.table`."""
        return f"{self.schema}.{self.table}"


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """Records of one source in position order."""

    #: The source, `region/name`.
    source: str
    #: The position that the batch is chained to.
    follows: Position
    #: Of the first record, or `last` when there is none.
    first: Position
    #: Of the last record, or `follows` when there is none.
    last: Position
    #: Runs of positions: (commit, ordinal of the first, how many).
    segments: list[Segment]
    keys: list[bytes | None]
    values: list[bytes | None]
    #: The edge's own figures: how far it has read, its clock.
    figures: Figures = {}
    headers: Headers = {}
    #: What its records in Avro were written with; empty where there are none.
    written: list[WrittenWith] = []

    def __len__(self) -> int:
        """Return how many records the batch carries."""
        return len(self.values)

    @property
    def starts_epoch(self) -> bool:
        """Whether the batch is the first of its epoch."""
        return self.follows.is_start

    def positions(self) -> Iterator[Position]:
        """Yield the position of each record, in order."""
        epoch = self.last.epoch
        for commit, ordinal, count in self.segments:
            for offset in range(count):
                yield Position(epoch, commit, ordinal + offset)

    def index_after(self, tail: Position) -> int:
        """Return the index of the first record whose position is greater than `tail`; the length when there is none."""
        if tail.epoch != self.last.epoch:
            return 0 if tail.epoch < self.last.epoch else len(self.values)
        index = 0
        for commit, ordinal, count in self.segments:
            if (commit, ordinal + count - 1) <= (tail.commit, tail.ordinal):
                index += count
            elif commit == tail.commit and ordinal <= tail.ordinal:
                return index + tail.ordinal - ordinal + 1
            else:
                return index
        return index

    def part(self, indexes: Sequence[int]) -> "Batch":
        """Return a batch of some of the records, named by their indexes in ascending order; there must be one."""
        chosen = set(indexes)
        segments: list[Segment] = []
        at = 0
        for commit, ordinal, count in self.segments:
            # Those of one segment stay together where they were: others may have one position, and are apart for that.
            length = 0
            for number in range(count + 1):
                if number < count and at + number in chosen:
                    length += 1
                elif length:
                    segments.append((commit, ordinal + number - length, length))
                    length = 0
            at += count
        epoch, (commit, ordinal, count) = self.last.epoch, segments[-1]
        keys, values = ([each[index] for index in indexes] for each in (self.keys, self.values))
        heads = {(value or key or b"")[:5] for key, value in zip(keys, values, strict=True)}
        return msgspec.structs.replace(
            self,
            first=Position(epoch, *segments[0][:2]),
            last=Position(epoch, commit, ordinal + count - 1),
            segments=segments,
            keys=keys,
            values=values,
            figures={},
            headers={number: self.headers[index] for number, index in enumerate(indexes) if index in self.headers},
            written=[each for each in self.written if each.mark in heads],
        )


def encode(batch: Batch) -> tuple[dict[str, Any], bytes]:
    """Return the message properties and the body of a batch."""
    properties: dict[str, Any] = {
        "version": 4 if batch.last.commit >= _NUMBERS else 3 if batch.written else 2 if batch.headers else 1,
        "source": batch.source,
        "follows": str(batch.follows),
        "first": str(batch.first),
        "last": str(batch.last),
        "count": len(batch.values),
    }
    segments: list[Any] = [*batch.segments]
    if properties["version"] == 4:
        segments = [(each if each < _NUMBERS else each.to_bytes(16, "big"), *rest) for each, *rest in segments]
    parts = (segments, batch.keys, batch.values, batch.figures)
    if properties["version"] >= 3:
        body = msgspec.msgpack.encode((*parts, batch.headers, batch.written))
    else:
        body = msgspec.msgpack.encode((*parts, batch.headers) if batch.headers else parts)
    # TCP's sum lets a damaged packet through now and then; what is in a row must not change unseen, without TLS either.
    compressed = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True).compress(body)
    # What the compressor returns keeps the memory of what it could have become, as large as the content; a copy has its own size.
    return properties, bytes(memoryview(compressed))


class _WrittenWith(NamedTuple):
    """`WrittenWith` as it comes from an edge: bounded."""

    number: Annotated[int, Meta(ge=0, lt=1 << 32)]
    schema: Annotated[str, Meta(max_length=_LONGEST_NAME)]
    table: Annotated[str, Meta(max_length=_LONGEST_NAME)]
    key: Annotated[str, Meta(max_length=_LONGEST_SCHEMA)] | None
    value: Annotated[str, Meta(max_length=_LONGEST_SCHEMA)]


# What comes in is bounded where it is decoded: a length is compared before the list is made.
_Records = Annotated[list[bytes | None], Meta(max_length=MOST_RECORDS)]
_Number = Annotated[int, Meta(ge=0)]
_Ordinal = Annotated[int, Meta(ge=0, lt=_ORDINALS)]
_Segments = Annotated[list[tuple[_Number, _Ordinal, int]], Meta(max_length=MOST_RECORDS)]
_WideNumber = _Number | Annotated[bytes, Meta(min_length=16, max_length=16)]
_WideSegments = Annotated[list[tuple[_WideNumber, _Ordinal, int]], Meta(max_length=MOST_RECORDS)]
_Figures = Annotated[
    dict[Annotated[str, Meta(max_length=100)], int | float | Annotated[str, Meta(max_length=_LONGEST_FIGURE)]],
    Meta(max_length=_MOST_FIGURES),
]
_Name = Annotated[str, Meta(min_length=1, max_length=250)]
_Headers = dict[int, Annotated[list[tuple[_Name, bytes]], Meta(max_length=_MOST_HEADERS)]]
#: Headers by record, each record's as its bytes: a header of six bytes costs twenty times as much once it is decoded.
_RawHeaders = Annotated[dict[int, msgspec.Raw], Meta(max_length=MOST_RECORDS)]
_Written = Annotated[list[_WrittenWith], Meta(max_length=_MOST_TABLES)]
_BODY = msgspec.msgpack.Decoder(tuple[_Segments, _Records, _Records, _Figures])
_BODY_WITH_HEADERS = msgspec.msgpack.Decoder(tuple[_Segments, _Records, _Records, _Figures, msgspec.Raw])
_BODY_WITH_AVRO = msgspec.msgpack.Decoder(tuple[_Segments, _Records, _Records, _Figures, msgspec.Raw, _Written])
_WIDE_BODY = msgspec.msgpack.Decoder(tuple[_WideSegments, _Records, _Records, _Figures, msgspec.Raw, _Written])
_RAW_HEADERS, _HEADERS = msgspec.msgpack.Decoder(_RawHeaders), msgspec.msgpack.Decoder(_Headers)


def decode(
    properties: Mapping[str, Any] | None, content_encoding: str | None, body: bytes, largest: int = LARGEST_BODY
) -> Batch:
    """Return the batch of a message whose body unpacks to `largest` bytes at most.

    Raises CorruptInput, naming what is wrong, when it is none of ours, TooLarge above `largest`, and NeedsOperator for a version
    that this release does not read.
    """
    names = _names(properties)
    follows, first, last = (Position.parse(names[name]) for name in ("follows", "first", "last"))
    if content_encoding != CONTENT_ENCODING:
        raise CorruptInput(f"content-encoding is {content_encoding!r}, not {CONTENT_ENCODING!r}")
    try:
        raw = zstandard.ZstdDecompressor().decompress(_check_size(body, largest))
        headers: Headers = {}
        written: list[_WrittenWith] = []
        if names["version"] == 1:
            segments, keys, values, figures = _BODY.decode(raw)
        elif names["version"] == 2:
            segments, keys, values, figures, encoded = _BODY_WITH_HEADERS.decode(raw)
            headers = _decode_headers(encoded)
        else:
            if names["version"] == 3:
                segments, keys, values, figures, encoded, written = _BODY_WITH_AVRO.decode(raw)
            else:
                wide, keys, values, figures, encoded, written = _WIDE_BODY.decode(raw)
                segments = [(_commit(commit), ordinal, count) for commit, ordinal, count in wide]
            headers = _decode_headers(encoded)
    except (zstandard.ZstdError, *UNREADABLE) as error:
        raise CorruptInput("the body is truncated, damaged or not a batch") from error
    batch = Batch(
        source=names["source"],
        follows=follows,
        first=first,
        last=last,
        segments=segments,
        keys=keys,
        values=values,
        figures=figures,
        headers=headers,
        written=[WrittenWith(*each) for each in written],
    )
    _check(batch, names["count"])
    return batch


def _commit(number: int | bytes) -> int:
    return number if isinstance(number, int) else int.from_bytes(number, "big")


def unpacked_size(body: bytes) -> int:
    """Return the size in bytes that a body declares for its content; `decode` enforces it."""
    try:
        return max(0, zstandard.frame_content_size(body))
    except zstandard.ZstdError:
        return 0


_TYPES = {"version": int, "source": str, "follows": str, "first": str, "last": str, "count": int}


def _names(properties: Mapping[str, Any] | None) -> Mapping[str, Any]:
    given = properties if isinstance(properties, Mapping) else {}
    version = given.get("version")
    if isinstance(version, int):
        BATCH.check(version, f"a batch of {str(given.get('source'))[:100]}")
    for name, kind in _TYPES.items():
        if not isinstance(given.get(name), kind):
            raise CorruptInput(f"the message has no usable property {name!r}: it is not a Headrace batch")
    return given


class TooLarge(CorruptInput):
    """A body unpacks to more than its reader takes."""


def _check_size(body: bytes, largest: int) -> bytes:
    size = zstandard.frame_content_size(body)
    if size < 0:
        raise CorruptInput("the body does not declare the size of its content")
    if size > min(largest, LARGEST_BODY):
        raise TooLarge(f"the body unpacks to {size} bytes, the limit is {min(largest, LARGEST_BODY)}")
    return body


def _check(batch: Batch, count: int) -> None:
    """Raise CorruptInput unless counts, ends and order of the batch agree with each other."""
    if not len(batch.keys) == len(batch.values) == count == sum(segment[2] for segment in batch.segments):
        raise CorruptInput("the counts of a batch disagree")
    _check_headers(batch.headers, count)
    # What begins with a zero byte is less than a byte of one: the least of many is looked for at C's speed.
    if not batch.written and any(
        min(filter(None, parts), default=_ABOVE_AVRO) < _ABOVE_AVRO for parts in (batch.keys, batch.values)
    ):
        raise CorruptInput("a record of a batch is marked as Avro, and the batch has no schemas")
    if not batch.segments:
        if not batch.first == batch.last == batch.follows:
            raise CorruptInput("an empty batch does not end where it begins")
        return
    if any(segment[2] < 1 for segment in batch.segments):
        raise CorruptInput("a segment of a batch is empty")
    epoch = batch.last.epoch
    commit, ordinal, length = batch.segments[-1]
    first, last = Position(epoch, *batch.segments[0][:2]), Position(epoch, commit, ordinal + length - 1)
    if first != batch.first or last != batch.last:
        raise CorruptInput("the ends of a batch are not those in its properties")
    before = (0, -1)
    for commit, ordinal, length in batch.segments:
        if (commit, ordinal) < before or ordinal + length > _ORDINALS:
            raise CorruptInput("the records of a batch are out of order")
        before = (commit, ordinal + length - 1)
    if batch.follows.epoch != epoch or batch.follows >= batch.first:
        raise CorruptInput("a batch does not follow what comes before it")


def _decode_headers(encoded: msgspec.Raw) -> Headers:
    """Return the headers of a batch, whose number is looked at before lists of them are made."""
    if len(encoded) > _SMALLEST_HEADER * _MOST_HEADERS_OF_ALL:
        count = 0
        for each in _RAW_HEADERS.decode(encoded).values():
            count += _length(each)
            if count > _MOST_HEADERS_OF_ALL:
                raise CorruptInput(f"a batch has more than {_MOST_HEADERS_OF_ALL} headers")
    headers: Headers = _HEADERS.decode(encoded)
    return headers


def _length(encoded: msgspec.Raw) -> int:
    """Return the length that a list in MessagePack declares."""
    data = memoryview(encoded)
    size = {0xDC: 2, 0xDD: 4}.get(data[0], 0)
    return int.from_bytes(data[1 : 1 + size], "big") if size else data[0] & 15


def _check_headers(headers: Headers, count: int) -> None:
    if any(not 0 <= index < count for index in headers):
        raise CorruptInput("a header of a batch is of no record in it")
    if any("\0" in name for each in headers.values() for name, _ in each):
        raise CorruptInput("the name of a header in a batch has a zero byte")
