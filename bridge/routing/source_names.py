"""Whether each record of a batch names the source that the batch is of: for consumers that trust `source.name`; optional.

In JSON, a record is decoded by a type in which `source` is an object and its `name` this one text. A member that comes twice is
decoded each time: whichever of the two a consumer takes, and however the member's name is escaped, it is this source's. A member
`Source` is refused: readers that ignore case would take either. In Avro nothing is ambiguous: the name is at the place where an
edge's schema has it, and another schema is refused. Called by a source's part of a transaction.
"""

import re
from collections.abc import Callable
from functools import cached_property
from hashlib import sha256
from itertools import product
from typing import Annotated, Any, Final, Literal

import msgspec

from headrace.batch import AVRO_MARK, Batch
from headrace.errors import CorruptInput
from headrace.formats import UNREADABLE
from headrace.schema import TableSchema
from headrace.schemas.avro import envelope, source_fields
from headrace.schemas.avro_json.values import read_long, read_plain_text

#: Where what is behind the number of its schema begins in a record.
_HEAD: Final = 5
#: The header of a CloudEvent that names its source, and what is ahead of the name there (edge/records/cloud_events.py).
_EVENT_SOURCE, _EVENT_BEGIN = "ce_source", b"/headrace/"

# What an edge's Avro has ahead of a record's source, in regular expressions: no two readings of one text are possible.
_NUMBER: Final = rb"[\x80-\xff]{0,9}[\0-\x7f]"
#: A text of less than 64 bytes, whose length is one byte.
_LONG: Final = 64
_TEXT: Final = b"(?:%b)" % b"|".join(re.escape(bytes([2 * size])) + b".{%d}" % size for size in range(_LONG))


def _maybe(pattern: bytes) -> bytes:
    return b"(?:\0|\2%b)" % pattern


_TRANSACTION: Final = _maybe(_TEXT + _NUMBER + _maybe(_NUMBER))
#: Mark and number, operation, three times, the transaction; nothing unchanged, not too large; version and connector.
_AHEAD: Final = b".{5}" + _TEXT + _maybe(_NUMBER) * 3 + _TRANSACTION + b"\0\0" + _TEXT * 2

#: What no value is.
_NEVER: Final = Annotated[int, msgspec.Meta(gt=0, lt=1)]
#: Records in JSON that are looked at together for a member that differs from `source` in case alone, before each is decoded by a
#: type that has a field for every such name: that takes three times as long.
_TOGETHER: Final = 250
#: How a letter of a member's name may be escaped; and what is an s to Unicode where case is ignored.
_ESCAPE, _LONG_S = b"\\u", "\u017f"


def _in_other_case(name: str) -> list[tuple[str, Any, Any]]:
    """Return a field for each name that differs from this one in case alone, which no record may have."""
    letters = [(letter, letter.upper(), *([_LONG_S] if letter == "s" else [])) for letter in name]
    spelled = map("".join, product(*letters))
    return [
        (f"other{number}", _NEVER, msgspec.field(name=each, default=0))
        for number, each in enumerate(spelled)
        if each != name
    ]


#: The fields ahead of `source` in the schema of an edge's, and of `source` up to its name.
_FIELDS: Final = envelope(TableSchema(schema="", table="", key=[], columns=[]), "postgresql")["fields"][:7]
_SOURCE_FIELDS: Final = source_fields("postgresql")[:3]
#: Schemas whose verdict is remembered for a source.
_MOST_SCHEMAS: Final = 10_000


class SourceNames:
    """The check of one source's batches."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._named = msgspec.defstruct("Source", [("name", Literal[source]), *_in_other_case("name")], gc=False)
        self._decode = msgspec.json.Decoder(msgspec.defstruct("Record", [("source", self._named)], gc=False)).decode
        name = source.encode()
        self._is_named_in_avro = re.compile(_AHEAD + re.escape(_length(len(name)) + name), re.DOTALL).match
        self._event = _EVENT_BEGIN + name
        # By the digest of a schema: whether the name is where an edge's has it.
        self._schemas: dict[bytes, bool] = {}

    def check(self, batch: Batch, begin: int) -> None:
        """Raise CorruptInput for a batch with a record, from an index on, that does not name the source and it alone."""
        for written in batch.written:
            if not self._is_of_an_edge(written.value):
                raise CorruptInput(
                    f"the schema of {written.name} has the source's name at another place than an edge's"
                )
        try:
            parts = range(begin, len(batch), _TOGETHER)
            is_named = all(self._are_named(batch.values[at : at + _TOGETHER]) for at in parts)
        except (IndexError, *UNREADABLE):
            is_named = False
        if not is_named or (batch.headers and not self._events_are_named(batch, begin)):
            raise CorruptInput(
                f"a record between {batch.first} and {batch.last} does not name {self._source} as its source, and it alone",
                hint="It was not made by an edge of this source; the stream's check_source_names has the bridge look.",
            )

    @cached_property
    def _decode_any_case(self) -> Callable[[bytes], Any]:
        # Made when it is needed: it takes milliseconds, and there are many sources.
        record = msgspec.defstruct("Record", [("source", self._named), *_in_other_case("source")], gc=False)
        return msgspec.json.Decoder(record).decode

    def _are_named(self, values: list[bytes | None]) -> bool:
        decode: Callable[[bytes], Any] = self._decode if _has_no_other_case(values) else self._decode_any_case
        is_named_in_avro = self._is_named_in_avro
        for value in values:
            # A tombstone names nothing.
            if value is None:
                continue
            if value[:1] != AVRO_MARK:
                decode(value)
            elif not is_named_in_avro(value) and _name_in_avro(value) != self._source:
                return False
        return True

    def _events_are_named(self, batch: Batch, begin: int) -> bool:
        return all(
            text == self._event
            for index, headers in batch.headers.items()
            if index >= begin
            for name, text in headers
            if name == _EVENT_SOURCE
        )

    def _is_of_an_edge(self, schema: str) -> bool:
        digest = sha256(schema.encode(errors="surrogatepass")).digest()
        is_in_place = self._schemas.get(digest)
        if is_in_place is None:
            if len(self._schemas) >= _MOST_SCHEMAS:
                self._schemas.clear()
            is_in_place = self._schemas[digest] = _has_name_in_place(schema)
        return is_in_place


def _has_no_other_case(values: list[bytes | None]) -> bool:
    """Whether each of some records in JSON that has a `source` has no member beside it whose name is that in another case."""
    texts = [value for value in values if value is not None and value[:1] != AVRO_MARK]
    text = b"".join(texts)
    if (b"\\" in text and _ESCAPE in text) or (b"\xc5" in text and _LONG_S.encode() in text):
        return False
    return text.lower().count(b'"source"') == len(texts)


def _length(size: int) -> bytes:
    """Return the length of a text as Avro has it ahead of the text."""
    return bytes([2 * size]) if size < _LONG else bytes([2 * size & 0x7F | 0x80, 2 * size >> 7])


def _has_name_in_place(schema: str) -> bool:
    """Whether the schema of a table's values has all up to the source's name as an edge's has it."""
    try:
        decoded = msgspec.json.decode(schema)
        fields = decoded["fields"]
        source = fields[len(_FIELDS)]
        return bool(
            # Nothing is in it twice.
            msgspec.json.encode(decoded).decode() == schema
            and fields[: len(_FIELDS)] == _FIELDS
            and (source["name"], source["type"]["type"]) == ("source", "record")
            and source["type"]["fields"][: len(_SOURCE_FIELDS)] == _SOURCE_FIELDS
        )
    except (LookupError, TypeError, *UNREADABLE):
        return False


def _name_in_avro(value: bytes) -> str:
    """Return the source's name in a record of any form that an edge makes; raise ValueError or IndexError for what is none."""
    _, at = read_plain_text(value, _HEAD)
    for _ in range(3):
        there, at = read_long(value, at)
        at = read_long(value, at)[1] if there else at
    there, at = read_long(value, at)
    if there:
        at = read_long(value, read_plain_text(value, at)[1])[1]
        there, at = read_long(value, at)
        at = read_long(value, at)[1] if there else at
    there, at = read_long(value, at)
    while there:
        # Names of columns, in blocks.
        there, at = read_long(value, at)
        for _ in range(there):
            at = read_plain_text(value, at)[1]
        if there < 0:
            raise ValueError("a block of names has its size ahead, which no edge writes")
    there, at = read_long(value, at)
    if there:
        at = read_plain_text(value, read_long(value, at)[1])[1]
    for _ in range(2):
        at = read_plain_text(value, at)[1]
    return read_plain_text(value, at)[0]
