"""Records in Avro as the JSON that an edge would have written: the reverse of edge/records/avro_records.py.

It holds for the layout of headrace/schemas/avro.py alone, and what differs is refused. What JSON would not have is left out:
columns that the log did not carry, and those of an old row of which the log has the key alone. Only the standard library is
imported, so that Spark can send this module to its executors as it is. Raises ValueError, and never shows a value.
"""

import json
import math
import re
import struct
from base64 import b64encode
from collections.abc import Callable, Mapping

# `json.dumps` without its arguments, which make an encoder of Python's for each text.
from json.encoder import encode_basestring
from typing import Any, Final

#: Reads a value at a place: its JSON, and the place after it.
Read = Callable[[bytes, int], tuple[str, int]]

_MARK: Final = 0
_HEAD: Final = 5
_ENVELOPE: Final = ("op", "ts_ms", "ts_us", "ts_ns", "transaction", "unchanged", "too_large", "source")
_ROWS: Final = ("before", "after", "last")
#: Fields of `source` that JSON has only where they are written.
_IF_THERE: Final = frozenset({"ts_us", "ts_ns", "sequence", "xmin", "thread", "query"})
#: The first fields of `source` in JSON; the others follow as they are, and the position is the last.
_FIRST: Final = (
    "version",
    "connector",
    "name",
    "ts_ms",
    "ts_us",
    "ts_ns",
    "snapshot",
    "db",
    "sequence",
    "schema",
    "table",
)
_NO_NAME: Final = re.compile(r"[^A-Za-z0-9_]")
_CONTINUED: Final = 0x80
_SHORTEST, _LONGEST = 6, 9
_LARGEST: Final = 1 << 63


def _long(data: bytes, at: int) -> tuple[int, int]:
    byte = data[at]
    at += 1
    if byte < _CONTINUED:
        return byte >> 1 ^ -(byte & 1), at
    number, shift = byte & 0x7F, 7
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < _CONTINUED:
            return number >> 1 ^ -(number & 1), at
        shift += 7


def _data(data: bytes, at: int) -> tuple[bytes, int]:
    length, at = _long(data, at)
    if not 0 <= length <= len(data) - at:
        raise ValueError("a value ends behind the record")
    return data[at : at + length], at + length


def _number(data: bytes, at: int) -> tuple[str, int]:
    number, at = _long(data, at)
    return str(number), at


def _plain_text(data: bytes, at: int) -> tuple[str, int]:
    found, at = _data(data, at)
    return found.decode(), at


def _text(data: bytes, at: int) -> tuple[str, int]:
    found, at = _data(data, at)
    return encode_basestring(found.decode()), at


def _boolean(data: bytes, at: int) -> tuple[str, int]:
    return "true" if data[at] else "false", at + 1


def _bytes(data: bytes, at: int) -> tuple[str, int]:
    found, at = _data(data, at)
    return f'"{b64encode(found).decode()}"', at


def _whole(data: bytes, at: int) -> tuple[str, int]:
    """Read a decimal without a scale that JSON has as a number."""
    found, at = _data(data, at)
    return str(int.from_bytes(found, "big", signed=True)), at


def _variable(data: bytes, at: int) -> tuple[str, int]:
    scale, at = _long(data, at)
    value, at = _bytes(data, at)
    return f'{{"scale":{scale},"value":{value}}}', at


def _unusual(number: float) -> str | None:
    if math.isnan(number):
        return '"NaN"'
    if math.isinf(number):
        return '"Infinity"' if number > 0 else '"-Infinity"'
    return None


def _double(data: bytes, at: int) -> tuple[str, int]:
    (number,) = struct.unpack_from("<d", data, at)
    return _unusual(number) or repr(number), at + 8


def _float(data: bytes, at: int) -> tuple[str, int]:
    (number,) = struct.unpack_from("<f", data, at)
    if found := _unusual(number):
        return found, at + 4
    # The shortest text that is the same number in single precision.
    for digits in range(_SHORTEST, _LONGEST + 1):
        short = float(f"{number:.{digits}g}")
        if struct.pack("<f", short) == data[at : at + 4]:
            return repr(short), at + 4
    return repr(number), at + 4


_PLAIN: Final[dict[str, Read]] = {
    "int": _number, "long": _number, "string": _text, "boolean": _boolean, "bytes": _bytes, "double": _double, "float": _float,
}  # fmt: skip


def _reader(kind: Any) -> Read:
    """Return the function for a column's type."""
    if isinstance(kind, dict):
        if kind.get("headrace.json") == "number":
            return _whole
        if kind["type"] == "record":
            return _variable
        kind = kind["type"]
    return _PLAIN[kind]


class _Field:
    """A column, or a field of `source`."""

    __slots__ = ("name", "null", "read", "start")

    def __init__(self, field: Mapping[str, Any]) -> None:
        self.name = field.get("headrace.column", field["name"])
        self.start = encode_basestring(self.name) + ":"
        kind = field["type"]
        #: The number of the union's branch that is null; None where the field is required.
        self.null = kind.index("null") if isinstance(kind, list) else None
        self.read = _reader(kind[1 - kind.index("null")] if isinstance(kind, list) else kind)

    def value(self, data: bytes, at: int) -> tuple[str | None, int]:
        """Return the JSON of the value, None for null, and the place after it."""
        if self.null is not None:
            # Of two branches: a byte.
            branch = data[at]
            at += 1
            if branch == 2 * self.null:
                return None, at
            if branch != 2 - 2 * self.null:
                raise ValueError("a union has no such branch")
        return self.read(data, at)


class _Row:
    """The columns of a row, or of a key."""

    def __init__(self, fields: list[Mapping[str, Any]]) -> None:
        self._fields = [_Field(field) for field in fields]
        self.required = frozenset(field.name for field in self._fields if field.null is None)

    def read(self, data: bytes, at: int) -> tuple[list[tuple[_Field, str | None]], int]:
        """Return the columns with their JSON, None for null, and the place after the row."""
        found = []
        for field in self._fields:
            value, at = field.value(data, at)
            found.append((field, value))
        return found, at


def _object(row: list[tuple[_Field, str | None]]) -> str:
    return "{" + ",".join(field.start + ("null" if value is None else value) for field, value in row) + "}"


def _key_alone(row: list[tuple[_Field, str | None]]) -> list[tuple[_Field, str | None]]:
    """Return an old row without its columns that are all null: the log had the key, or columns of which nobody needs more."""
    key = [each for each in row if each[0].null is None]
    return key if key and all(value is None for field, value in row if field.null is not None) else row


class KeyReader:
    """Reads the keys of one schema."""

    def __init__(self, schema: str) -> None:
        self._row = _Row(json.loads(schema)["fields"])

    def read(self, data: bytes) -> bytes:
        """Return a key as JSON."""
        row, at = self._row.read(data, _HEAD)
        _ends(data, at)
        return _object(row).encode()


class ValueReader:
    """Reads the values of one schema."""

    def __init__(self, schema: str) -> None:
        envelope = json.loads(schema)
        fields = {field["name"]: field["type"] for field in envelope["fields"]}
        keyed = "former_key" in fields
        if tuple(fields) != (*_ENVELOPE, *(["former_key"] if keyed else []), *_ROWS):
            raise ValueError("the schema is not of a Headrace envelope")
        self._keyed = keyed
        self._namespace = "." + envelope.get("namespace", envelope["name"].rpartition(".")[0])
        self._row = _Row(fields["before"][1]["fields"])
        self._former = _Row(fields["former_key"][1]["fields"]) if keyed else None
        self._source = [_Field(field) for field in fields["source"]["fields"]]
        #: The table that records were of, as they name it.
        self._table = ("", "")

    def read(self, data: bytes) -> bytes:
        """Return a change as JSON."""
        op, at = _plain_text(data, _HEAD)
        times = []
        for name in ("ts_ms", "ts_us", "ts_ns"):
            number, at = _optional(_number, data, at)
            times += [f'"{name}":{number},'] if number is not None else []
        transaction, at = _optional(_transaction, data, at)
        unchanged, at = _optional(_names, data, at)
        too_large, at = _optional(_size, data, at)
        source, at = self._read_source(data, at)
        former, at = self._read_former(data, at)
        before, at = _optional(self._row.read, data, at)
        after, at = _optional(self._row.read, data, at)
        last, at = _optional(_boolean, data, at)
        _ends(data, at)
        if unchanged and after is not None:
            after = [each for each in after if each[0].name not in unchanged]
        return "".join((
            '{"before":', "null" if before is None else _object(_key_alone(before)),
            ',"after":', "null" if after is None else _object(after), ",",
            "" if former is None else f'"former_key":{_object(former)},',
            "" if unchanged is None else f'"unchanged":{json.dumps(unchanged, ensure_ascii=False, separators=(",", ":"))},',
            "" if too_large is None else f'"too_large":{too_large},',
            source, f'"op":"{op}",', *times,
            "" if transaction is None else f'"transaction":{transaction}', ',"last":true' if last == "true" else "",
            '"transaction":null}' if transaction is None else "}}",
        )).encode()  # fmt: skip

    def _read_source(self, data: bytes, at: int) -> tuple[str, int]:
        found: dict[str, str] = {}
        for field in self._source:
            value, at = field.value(data, at)
            if value is not None or field.name not in _IF_THERE:
                found[field.name] = field.start + ("null" if value is None else value)
        table = found["schema"], found["table"]
        if table != self._table:
            names = [json.loads(each.partition(":")[2]) or "" for each in table]
            if not self._namespace.endswith("".join(f".{_adjusted(name)}" for name in names)):
                # An id that a registry gave again, after it was emptied.
                raise ValueError("the schema is of another table")
            self._table = table
        position = found.pop("position")
        first = [found.pop(name) for name in _FIRST if name in found]
        return '"source":{' + ",".join([*first, *found.values(), position]) + "},", at

    def _read_former(self, data: bytes, at: int) -> tuple[list[tuple[_Field, str | None]] | None, int]:
        return (None, at) if self._former is None else _optional(self._former.read, data, at)


def _optional(read: Callable[[bytes, int], tuple[Any, int]], data: bytes, at: int) -> tuple[Any, int]:
    branch, at = _long(data, at)
    return read(data, at) if branch else (None, at)


def _transaction(data: bytes, at: int) -> tuple[str, int]:
    """Read where in its transaction a change is; the brace is closed by the caller."""
    name, at = _text(data, at)
    order, at = _long(data, at)
    collected, at = _optional(_number, data, at)
    more = "" if collected is None else f',"data_collection_order":{collected}'
    return f'{{"id":{name},"total_order":{order}{more}', at


def _names(data: bytes, at: int) -> tuple[list[str], int]:
    found: list[str] = []
    while True:
        count, at = _long(data, at)
        if count <= 0:
            return found, at
        for _ in range(count):
            name, at = _plain_text(data, at)
            found.append(name)


def _size(data: bytes, at: int) -> tuple[str, int]:
    size, at = _long(data, at)
    digest, at = _text(data, at)
    return f'{{"bytes":{size},"sha256":{digest}}}', at


def _adjusted(name: str) -> str:
    """Return a name as headrace.schemas.avro has it in a namespace."""
    part = _NO_NAME.sub("_", name.replace(".", "_"))
    return f"_{part}" if part[:1].isdigit() or not part else part


def _ends(data: bytes, at: int) -> None:
    if at != len(data):
        raise ValueError("the record is longer than its schema")


class UnknownSchema(Exception):  # noqa: N818 - a state, which reads best without a suffix.
    """A record names a schema that is not among those given."""


class Records:
    """Reads the records of a topic, those in Avro and those in JSON, which stay as they are."""

    def __init__(self, schemas: Mapping[int, str]) -> None:
        self._schemas = dict(schemas)
        self._keys: dict[int, KeyReader] = {}
        self._values: dict[int, ValueReader] = {}

    def key(self, key: bytes | None) -> bytes | None:
        """Return a key as JSON; raise UnknownSchema, and ValueError for what is none of ours."""
        if not key or key[0] != _MARK:
            return key
        number = int.from_bytes(key[1:_HEAD], "big")
        reader = self._keys.get(number)
        if reader is None:
            reader = self._keys[number] = KeyReader(self._schema(number))
        return _read(reader, bytes(key))

    def value(self, value: bytes | None) -> bytes | None:
        """Return a value as JSON; raise errors as `key`."""
        if not value or value[0] != _MARK:
            return value
        number = int.from_bytes(value[1:_HEAD], "big")
        reader = self._values.get(number)
        if reader is None:
            reader = self._values[number] = ValueReader(self._schema(number))
        return _read(reader, bytes(value))

    def _schema(self, number: int) -> str:
        if number not in self._schemas:
            raise UnknownSchema(f"schema {number} is not known")
        return self._schemas[number]


def _read(reader: KeyReader | ValueReader, data: bytes) -> bytes:
    try:
        return reader.read(data)
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise ValueError("the record is not of its schema") from error


def reader_of(schema: str) -> KeyReader | ValueReader:
    """Return what reads records of a schema; raise ValueError, KeyError or TypeError for one that is none of an edge's."""
    return ValueReader(schema) if json.loads(schema).get("name") == "Envelope" else KeyReader(schema)


class Reader:
    """The records of a batch, one call each, in a process of Spark's: sent there with the schemas, which it reads on first use.

    Fails with `unknown` in the text where a schema is missing, else with `wrong`, formatted with topic, partition and offset.
    """

    def __init__(self, schemas: Mapping[int, str], wrong: str, unknown: str) -> None:
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
        # Without its cause, and without what it was called with.
        raise ValueError(self._wrong.format(topic=topic, partition=partition, offset=offset))
