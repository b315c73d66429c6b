"""Records in Avro as the JSON that an edge would have written: keys, changes, and a reader of many records.

What JSON would not have is left out: columns that the log did not carry, and those of an old row of which the log has the key
alone. A record begins with a mark and its schema's id, by which its reader is chosen.
"""

import json
import struct
from collections.abc import Callable, Container, Mapping
from typing import Any, Final

from headrace.schemas.avro_json.rows import Columns, Row, Source, as_object, key_alone, without_nulls
from headrace.schemas.avro_json.values import Read, read_boolean, read_long, read_number, read_plain_text, read_text

#: The size of what a record begins with.
HEAD: Final = 5
_ENVELOPE: Final = ("op", "ts_ms", "ts_us", "ts_ns", "transaction", "unchanged", "too_large", "source")
#: No `unchanged` and no `too_large`.
_NOTHING: Final = b"\0\0"
_ROWS: Final = ("before", "after", "last")


class KeyReader:
    """Reads the keys of one schema."""

    def __init__(self, schema: str) -> None:
        self._row = Row(json.loads(schema)["fields"], {})

    def read(self, data: bytes) -> bytes:
        """Return a key as JSON."""
        text, at = self._row.text(data, HEAD)
        _ends(data, at)
        return text.encode()


class ValueReader:
    """Reads the values of one schema."""

    def __init__(self, schema: str) -> None:
        envelope = json.loads(schema)
        fields = {field["name"]: field["type"] for field in envelope["fields"]}
        keyed = "former_key" in fields
        if tuple(fields) != (*_ENVELOPE, *(["former_key"] if keyed else []), *_ROWS):
            raise ValueError("the schema is not of a Headrace envelope")
        namespace = envelope.get("namespace", envelope["name"].rpartition(".")[0])
        # In the schema's order: a record is defined where it is first.
        records: dict[str, Read] = {}
        self._source = Source(fields["source"]["fields"], namespace, records)
        self._former = Row(fields["former_key"][1]["fields"], records) if keyed else None
        self._row = Row(fields["before"][1]["fields"], records)
        #: Whether rows have all columns, also those that the log does not carry.
        self._whole = envelope.get("headrace.unavailable") == "placeholder"
        #: How times and transaction of the record before are encoded; nothing begins with an empty tuple.
        self._seen: bytes | tuple[()] = ()
        self._times, self._transaction, self._size = "", "", 0

    def read(self, data: bytes) -> bytes:
        """Return a change as JSON."""
        op, at = read_text(data, HEAD)
        at = at + self._size if data.startswith(self._seen, at) else self._read_times(data, at)
        place = '"transaction":null}'
        if self._transaction:
            order, at = read_long(data, at)
            collected, at = _optional(read_number, data, at)
            more = "" if collected is None else f',"data_collection_order":{collected}'
            place = f"{self._transaction}{order}{more}"
        if data.startswith(_NOTHING, at):
            unchanged, too_large, at = None, None, at + 2
        else:
            unchanged, at = _optional(_names, data, at)
            too_large, at = _optional(_size, data, at)
        source, at = self._source.read(data, at)
        former, at = (None, at) if self._former is None else _optional(self._former.text, data, at)
        if unchanged is None and too_large is None:
            old = self._row.text if self._whole else self._row.sparse
            before, at = _optional(old, data, at) if data[at] else ("null", at + 1)
            after, at = _optional(self._row.text, data, at) if data[at] else ("null", at + 1)
        else:
            before, after, at = self._some(data, at, unchanged or (), alone=too_large is not None)
        last, at = _optional(read_boolean, data, at)
        _ends(data, at)
        if self._transaction:
            place += ',"last":true}}' if last == "true" else "}}"
        return "".join((
            '{"before":', before, ',"after":', after, ",",
            "" if former is None else f'"former_key":{former},',
            "" if unchanged is None else f'"unchanged":{json.dumps(unchanged, ensure_ascii=False, separators=(",", ":"))},',
            "" if too_large is None else f'"too_large":{too_large},',
            source, f'"op":{op},', self._times, place,
        )).encode()  # fmt: skip

    def _read_times(self, data: bytes, at: int) -> int:
        """Read times and the transaction's name; return the place after them."""
        begin, self._seen, times = at, (), []
        for name in ("ts_ms", "ts_us", "ts_ns"):
            number, at = _optional(read_number, data, at)
            times += [f'"{name}":{number},'] if number is not None else []
        transaction, at = _optional(read_text, data, at)
        self._times = "".join(times)
        self._transaction = "" if transaction is None else f'"transaction":{{"id":{transaction},"total_order":'
        self._seen, self._size = data[begin:at], at - begin
        return at

    def _some(self, data: bytes, at: int, unchanged: Container[str], *, alone: bool) -> tuple[str, str, int]:
        """Read both rows of a record in which some columns are left out: all but the key where it is `alone`."""
        rows: list[Columns | None] = []
        for _ in range(2):
            row, at = _optional(self._row.read, data, at)
            rows.append(key_alone(row) if alone and row is not None else row)
        before, after = rows
        if not alone and not self._whole:
            before = before and without_nulls(before)
            after = after and [each for each in after if each[0].name not in unchanged]
        return _text_of(before), _text_of(after), at


def _text_of(row: Columns | None) -> str:
    return "null" if row is None else as_object(row)


def _optional(read: Callable[[bytes, int], tuple[Any, int]], data: bytes, at: int) -> tuple[Any, int]:
    if not data[at]:
        return None, at + 1
    branch, at = read_long(data, at)
    return read(data, at) if branch else (None, at)


def _names(data: bytes, at: int) -> tuple[list[str], int]:
    names: list[str] = []
    while True:
        count, at = read_long(data, at)
        if count <= 0:
            return names, at
        for _ in range(count):
            name, at = read_plain_text(data, at)
            names.append(name)


def _size(data: bytes, at: int) -> tuple[str, int]:
    size, at = read_long(data, at)
    digest, at = read_text(data, at)
    return f'{{"bytes":{size},"sha256":{digest}}}', at


def _ends(data: bytes, at: int) -> None:
    if at != len(data):
        raise ValueError("the record is longer than its schema")


_MARK: Final = 0
#: What reading fails with where a record is not of its schema.
_OTHERS: Final = (IndexError, KeyError, TypeError, struct.error, UnicodeDecodeError)
_WRONG: Final = "the record is not of its schema"


class UnknownSchema(Exception):  # noqa: N818 - a state, which reads best without a suffix.
    """A record names a schema that is not among those given."""


class Records:
    """Reads the records of a topic, those in Avro and those in JSON, which stay as they are."""

    def __init__(self, schemas: Mapping[int, str]) -> None:
        self._schemas = dict(schemas)
        self._keys: dict[bytes, KeyReader] = {}
        self._values: dict[bytes, ValueReader] = {}

    def key(self, key: bytes | None) -> bytes | None:
        """Return a key as JSON; raise UnknownSchema, and ValueError for what is none of ours."""
        if not key or key[0] != _MARK:
            return key
        data = bytes(key)
        reader = self._keys.get(data[:HEAD])
        if reader is None:
            reader = self._keys[data[:HEAD]] = _make_reader(KeyReader, self._schema(data))
        try:
            return reader.read(data)
        except _OTHERS as error:
            raise ValueError(_WRONG) from error

    def value(self, value: bytes | None) -> bytes | None:
        """Return a value as JSON; raise errors as `key`."""
        if not value or value[0] != _MARK:
            return value
        data = bytes(value)
        reader = self._values.get(data[:HEAD])
        if reader is None:
            reader = self._values[data[:HEAD]] = _make_reader(ValueReader, self._schema(data))
        try:
            return reader.read(data)
        except _OTHERS as error:
            raise ValueError(_WRONG) from error

    def _schema(self, data: bytes) -> str:
        number = int.from_bytes(data[1:HEAD], "big")
        if number not in self._schemas:
            raise UnknownSchema(f"schema {number} is not known")
        return self._schemas[number]


def _make_reader(kind: Callable[[str], Any], schema: str) -> Any:
    """Return a reader of a schema; raise ValueError for one that no edge writes, whatever it is."""
    try:
        return kind(schema)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
        raise ValueError("the schema was not written by an edge") from error


def reader_of(schema: str) -> KeyReader | ValueReader:
    """Return what reads records of a schema; raise ValueError for one that no edge writes."""

    def kind(text: str) -> KeyReader | ValueReader:
        return ValueReader(text) if json.loads(text).get("name") == "Envelope" else KeyReader(text)

    reader: KeyReader | ValueReader = _make_reader(kind, schema)
    return reader


class Reader:
    """The records of a batch, one call each, in a process of Spark's: sent there with the schemas, which it reads on first use.

    Fails with `unknown` in the text where a schema is missing. A record that is not of its schema stays as it is; with `wrong` it
    fails with that, formatted with topic, partition and offset.
    """

    def __init__(self, schemas: Mapping[int, str], wrong: str | None, unknown: str) -> None:
        self._schemas, self._wrong, self._unknown = schemas, wrong, unknown
        self._records: Records | None = None

    def __call__(
        self, topic: str, partition: int, offset: int, key: bytes | None, value: bytes | None
    ) -> tuple[bytes | None, bytes | None]:
        """Return key and value as JSON."""
        if self._records is None:
            self._records = Records(self._schemas)
        try:
            return self._records.key(key), self._records.value(value)
        except UnknownSchema as error:
            raise ValueError(self._unknown) from error
        except ValueError:
            pass
        if self._wrong is None:
            return key, value
        # Without its cause, and without what it was called with.
        raise ValueError(self._wrong.format(topic=topic, partition=partition, offset=offset))
