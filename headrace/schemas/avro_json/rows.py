"""Rows and keys: the columns of a record, by their schema, read column by column."""

from collections.abc import Mapping

# `json.dumps` without its arguments, which make an encoder of Python's for each text.
from json.encoder import encode_basestring
from typing import Any

from headrace.schemas.avro_json.values import Read, type_reader


class Field:
    """A column, or a field of `source`."""

    __slots__ = ("name", "null", "read", "start", "type")

    def __init__(self, field: Mapping[str, Any], named: dict[str, Read]) -> None:
        self.name = field.get("headrace.column", field["name"])
        self.start = encode_basestring(self.name) + ":"
        kind = field["type"]
        #: The number of the union's branch that is null; None where the field is required.
        self.null = kind.index("null") if isinstance(kind, list) else None
        #: The type where it is no null.
        self.type = kind[1 - kind.index("null")] if isinstance(kind, list) else kind
        self.read = type_reader(self.type, named)

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

    def __init__(self, fields: list[Mapping[str, Any]], named: dict[str, Read]) -> None:
        self._fields = [Field(field, named) for field in fields]

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
        found = []
        for field in self._fields:
            value, at = field.value(data, at)
            found.append((field, value))
        return found, at


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
