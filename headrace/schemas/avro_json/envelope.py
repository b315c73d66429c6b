"""Keys and changes of one schema, as the JSON that an edge would have written.

What JSON would not have is left out: columns that the log did not carry, and those of an old row of which the log has the key
alone. A record begins with a mark and its schema's id, which are passed over.
"""

import json
import re
from collections.abc import Callable, Mapping

# `json.dumps` without its arguments, which make an encoder of Python's for each text.
from json.encoder import encode_basestring
from typing import Any, Final

from headrace.schemas.avro_json.values import (
    Read,
    read_boolean,
    read_long,
    read_number,
    read_plain_text,
    read_text,
    type_reader,
)

#: The size of what a record begins with.
HEAD: Final = 5
_ENVELOPE: Final = ("op", "ts_ms", "ts_us", "ts_ns", "transaction", "unchanged", "too_large", "source")
_ROWS: Final = ("before", "after", "last")
#: Fields of `source` that JSON has with Debezium's envelope alone, which has the time in microseconds; some are null in it.
_OF_DEBEZIUM: Final = frozenset({"ts_us", "ts_ns", "sequence", "xmin", "origin", "origin_lsn", "thread", "query"})
#: The fields of `source` in the order that JSON has for each engine.
_ORDER: Final = (
    *("version", "connector", "name", "ts_ms", "snapshot", "db", "schema", "table"),
    *("txId", "lsn", "sequence", "ts_us", "ts_ns", "xmin", "origin", "origin_lsn"),
    *("server_id", "gtid", "file", "pos", "row", "thread", "query", "position"),
)
_NO_NAME: Final = re.compile(r"[^A-Za-z0-9_]")


class _Field:
    """A column, or a field of `source`."""

    __slots__ = ("name", "null", "read", "start")

    def __init__(self, field: Mapping[str, Any], named: dict[str, Read]) -> None:
        self.name = field.get("headrace.column", field["name"])
        self.start = encode_basestring(self.name) + ":"
        kind = field["type"]
        #: The number of the union's branch that is null; None where the field is required.
        self.null = kind.index("null") if isinstance(kind, list) else None
        self.read = type_reader(kind[1 - kind.index("null")] if isinstance(kind, list) else kind, named)

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


#: Columns with their JSON, None for null.
_Columns = list[tuple[_Field, str | None]]


class _Row:
    """The columns of a row, or of a key."""

    def __init__(self, fields: list[Mapping[str, Any]], named: dict[str, Read]) -> None:
        self._fields = [_Field(field, named) for field in fields]
        self.required = frozenset(field.name for field in self._fields if field.null is None)

    def read(self, data: bytes, at: int) -> tuple[_Columns, int]:
        """Return the columns with their JSON, None for null, and the place after the row."""
        found = []
        for field in self._fields:
            value, at = field.value(data, at)
            found.append((field, value))
        return found, at


def _object(row: _Columns) -> str:
    return "{" + ",".join(field.start + ("null" if value is None else value) for field, value in row) + "}"


def _key_alone(row: _Columns | None) -> _Columns | None:
    return row and [each for each in row if each[0].null is None]


def _without_nulls(row: _Columns | None) -> _Columns | None:
    """Return an old row without its columns that are all null: the log had the key, or columns of which nobody needs more."""
    key = _key_alone(row)
    return key if row and key and all(value is None for field, value in row if field.null is not None) else row


class KeyReader:
    """Reads the keys of one schema."""

    def __init__(self, schema: str) -> None:
        self._row = _Row(json.loads(schema)["fields"], {})

    def read(self, data: bytes) -> bytes:
        """Return a key as JSON."""
        row, at = self._row.read(data, HEAD)
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
        # In the schema's order: a record is defined where it is first.
        named: dict[str, Read] = {}
        self._source = [_Field(field, named) for field in fields["source"]["fields"]]
        self._former = _Row(fields["former_key"][1]["fields"], named) if keyed else None
        self._row = _Row(fields["before"][1]["fields"], named)
        #: Whether rows have all columns, also those that the log does not carry.
        self._whole = envelope.get("headrace.unavailable") == "placeholder"
        written = {field.name for field in self._source}
        self._names_of_debezium = [name for name in _ORDER if name in written]
        self._names = [name for name in self._names_of_debezium if name not in _OF_DEBEZIUM]
        #: The table that records were of, as they name it.
        self._table = ("", "")

    def read(self, data: bytes) -> bytes:
        """Return a change as JSON."""
        op, at = read_plain_text(data, HEAD)
        times = []
        for name in ("ts_ms", "ts_us", "ts_ns"):
            number, at = _optional(read_number, data, at)
            times += [f'"{name}":{number},'] if number is not None else []
        transaction, at = _optional(_transaction, data, at)
        unchanged, at = _optional(_names, data, at)
        too_large, at = _optional(_size, data, at)
        source, at = self._read_source(data, at)
        former, at = self._read_former(data, at)
        before, at = _optional(self._row.read, data, at)
        after, at = _optional(self._row.read, data, at)
        last, at = _optional(read_boolean, data, at)
        _ends(data, at)
        if too_large is not None:
            before, after = _key_alone(before), _key_alone(after)
        elif not self._whole:
            before = _without_nulls(before)
            if unchanged and after is not None:
                after = [each for each in after if each[0].name not in unchanged]
        return "".join((
            '{"before":', "null" if before is None else _object(before),
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
            found[field.name] = field.start + ("null" if value is None else value)
        table = found["schema"], found["table"]
        if table != self._table:
            names = [json.loads(each.partition(":")[2]) or "" for each in table]
            if not self._namespace.endswith("".join(f".{_adjusted(name)}" for name in names)):
                # An id that a registry gave again, after it was emptied.
                raise ValueError("the schema is of another table")
            self._table = table
        names = self._names if found["ts_us"].endswith("null") else self._names_of_debezium
        return '"source":{' + ",".join([found[name] for name in names]) + "},", at

    def _read_former(self, data: bytes, at: int) -> tuple[_Columns | None, int]:
        return (None, at) if self._former is None else _optional(self._former.read, data, at)


def _optional(read: Callable[[bytes, int], tuple[Any, int]], data: bytes, at: int) -> tuple[Any, int]:
    branch, at = read_long(data, at)
    return read(data, at) if branch else (None, at)


def _transaction(data: bytes, at: int) -> tuple[str, int]:
    """Read where in its transaction a change is; the brace is closed by the caller."""
    name, at = read_text(data, at)
    order, at = read_long(data, at)
    collected, at = _optional(read_number, data, at)
    more = "" if collected is None else f',"data_collection_order":{collected}'
    return f'{{"id":{name},"total_order":{order}{more}', at


def _names(data: bytes, at: int) -> tuple[list[str], int]:
    found: list[str] = []
    while True:
        count, at = read_long(data, at)
        if count <= 0:
            return found, at
        for _ in range(count):
            name, at = read_plain_text(data, at)
            found.append(name)


def _size(data: bytes, at: int) -> tuple[str, int]:
    size, at = read_long(data, at)
    digest, at = read_text(data, at)
    return f'{{"bytes":{size},"sha256":{digest}}}', at


def _adjusted(name: str) -> str:
    """Return a name as headrace.schemas.avro has it in a namespace."""
    part = _NO_NAME.sub("_", name.replace(".", "_"))
    return f"_{part}" if part[:1].isdigit() or not part else part


def _ends(data: bytes, at: int) -> None:
    if at != len(data):
        raise ValueError("the record is longer than its schema")
