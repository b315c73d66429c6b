"""Rows and keys: the columns of a record, by their schema, read column by column.

The `source` block of changes, read in groups of fields of which most are the same from one record to the next.

What a group was encoded as is kept: where the next record has the same bytes, so has it the same fields. The position, which is
another for each change, is between two groups, and the last one in JSON.
"""

import json
import re
from collections.abc import Iterable, Mapping
from json.encoder import encode_basestring
from typing import Any, Final

# `json.dumps` without its arguments, which make an encoder of Python's for each text.
from headrace.schemas.avro_json.values import Read, type_reader


class Field:
    """A column, or a field of `source`."""

    __slots__ = ("name", "null", "read", "start", "type")

    def __init__(self, field: Mapping[str, Any], records: dict[str, Read]) -> None:
        self.name = field.get("headrace.column", field["name"])
        self.start = encode_basestring(self.name) + ":"
        kind = field["type"]
        #: The number of the union's branch that is null; None where the field is required.
        self.null = kind.index("null") if isinstance(kind, list) else None
        #: The type where it is no null.
        self.type = kind[1 - kind.index("null")] if isinstance(kind, list) else kind
        self.read = type_reader(self.type, records)

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
Columns = list[tuple[Field, str | None]]


class Row:
    """The columns of a row, or of a key."""

    def __init__(self, fields: list[Mapping[str, Any]], records: dict[str, Read]) -> None:
        self._fields = [Field(field, records) for field in fields]

    def text(self, data: bytes, at: int) -> tuple[str, int]:
        """Return a row as JSON, and the place after it."""
        row, at = self.read(data, at)
        return as_object(row), at

    def sparse(self, data: bytes, at: int) -> tuple[str, int]:
        """Return an old row as JSON without its nulls, as `without_nulls` has it, and the place after it."""
        row, at = self.read(data, at)
        return as_object(without_nulls(row)), at

    def read(self, data: bytes, at: int) -> tuple[Columns, int]:
        """Return the columns with their JSON, None for null, and the place after the row."""
        columns = []
        for field in self._fields:
            value, at = field.value(data, at)
            columns.append((field, value))
        return columns, at


def as_object(row: Columns) -> str:
    """Return columns as JSON."""
    return "{" + ",".join([field.start + ("null" if value is None else value) for field, value in row]) + "}"


def key_alone(row: Columns) -> Columns:
    """Return the columns that are required: the key's."""
    return [each for each in row if each[0].null is None]


def without_nulls(row: Columns) -> Columns:
    """Return an old row without its columns that are all null: the log had the key, or columns of which nobody needs more."""
    key = key_alone(row)
    return key if key and all(value is None for field, value in row if field.null is not None) else row


#: Fields of `source` that JSON has with Debezium's envelope alone, which has the time in microseconds; some are null in it.
_OF_DEBEZIUM: Final = frozenset({"ts_us", "ts_ns", "sequence", "xmin", "origin", "origin_lsn", "thread", "query"})
#: The fields of `source` in the order that JSON has for each engine, with the position behind them.
_ORDER: Final = (
    *("version", "connector", "name", "ts_ms", "snapshot", "db", "schema", "table"),
    *("txId", "lsn", "sequence", "ts_us", "ts_ns", "xmin", "origin", "origin_lsn"),
    *("server_id", "gtid", "file", "pos", "row", "thread", "query"),
)
#: The first fields of groups: an edge's name; times of a transaction; the table; the position; the place in the log.
_FIRSTS: Final = frozenset({"version", "ts_ms", "snapshot", "position", "sequence"})
#: The length of a position, as Avro has it: 34 bytes.
_POSITION_LENGTH: Final = 34
_POSITION: Final = 2 * _POSITION_LENGTH
_NO_NAME: Final = re.compile(r"[^A-Za-z0-9_]")


class Group:
    """Neighbouring fields, with what they were in the record before."""

    __slots__ = ("_fields", "_texts", "seen", "size")

    def __init__(self, fields: Iterable[Field], texts: dict[str, str]) -> None:
        self._fields = list(fields)
        #: The JSON of fields by name, of all groups.
        self._texts = texts
        #: How they are encoded; nothing begins with an empty tuple.
        self.seen: bytes | tuple[()] = ()
        self.size = 0

    def read(self, data: bytes, at: int) -> int:
        """Read them; return the place after them."""
        begin, self.seen = at, ()
        for field in self._fields:
            value, at = field.value(data, at)
            self._texts[field.name] = field.start + ("null" if value is None else value)
        self.seen, self.size = data[begin:at], at - begin
        return at


class Source:
    """Reads the `source` blocks of one schema, whose records are in `namespace`."""

    def __init__(self, fields: list[Mapping[str, Any]], namespace: str, records: dict[str, Read]) -> None:
        self._namespace = "." + namespace
        groups: list[list[Field]] = []
        for field in fields:
            if field["name"] in _FIRSTS:
                groups.append([])
            groups[-1].append(Field(field, records))
        first, times, table, (self._position,), rest = groups
        self._texts: dict[str, str] = {}
        self._ahead = [Group(group, self._texts) for group in (first, times, table)]
        self._rest = Group(rest, self._texts)
        #: The table group that was compared with the namespace.
        self._checked: bytes | tuple[()] = ()
        if (self._position.type, self._position.null) != ("string", None):
            raise ValueError("the schema is not of a Headrace envelope")
        written = {field["name"] for field in fields}
        self._names_of_debezium = [name for name in _ORDER if name in written]
        self._names = [name for name in self._names_of_debezium if name not in _OF_DEBEZIUM]
        #: What precedes the position in JSON; empty where a group has changed.
        self._text = ""

    def read(self, data: bytes, at: int) -> tuple[str, int]:
        """Return the block's JSON, and the place after it; raise ValueError for that of another table."""
        for group in self._ahead:
            at = self._group(group, data, at)
        if data[at] == _POSITION:
            end = at + 1 + _POSITION_LENGTH
            position, at = encode_basestring(data[at + 1 : end].decode()), end
        else:
            position, at = self._position.read(data, at)
        at = self._group(self._rest, data, at)
        if not self._text:
            self._text = self._begin()
        return f"{self._text}{position}}},", at

    def _group(self, group: Group, data: bytes, at: int) -> int:
        """Return the place after a group."""
        if data.startswith(group.seen, at):
            return at + group.size
        self._text = ""
        return group.read(data, at)

    def _begin(self) -> str:
        texts, table = self._texts, self._ahead[2].seen
        if table is not self._checked:
            names = (json.loads(texts[name].partition(":")[2]) or "" for name in ("schema", "table"))
            if not self._namespace.endswith("".join(f".{_adjust_name(name)}" for name in names)):
                # An id that a registry gave again, after it was emptied.
                raise ValueError("the schema is of another table")
            self._checked = table
        order = self._names if texts["ts_us"].endswith("null") else self._names_of_debezium
        return '"source":{' + ",".join([texts[name] for name in order]) + ',"position":'


def _adjust_name(name: str) -> str:
    """Return a name as headrace.schemas.avro has it in a namespace."""
    part = _NO_NAME.sub("_", name.replace(".", "_"))
    return f"_{part}" if part[:1].isdigit() or not part else part
