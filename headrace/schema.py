"""The schema record: what a table looks like from a position on, whatever the engine; and which table any other record names.

A schema record goes ahead of a table's first change, in order, and again whenever the table changes. Its form is that of
Debezium's schema change events (`tableChanges`), so consumers that skip those skip these. The edge writes it, the lake reads
it.

A record has the names of its table (docs/records.md) in its `source`, which is behind the rows; a text of a row that holds the
same bytes has them escaped. Called by the bridge for topics of tables, and by the edge for CloudEvents.
"""

import re
from typing import Any, Self

import msgspec
from msgspec import json

from headrace.errors import CorruptInput
from headrace.formats import UNREADABLE

#: How a record's own `source` begins.
SOURCE = b'"source":{"version":'
#: For a record that no edge writes.
_HINT = "See what wrote it: a program that is no edge, or an edge whose database sent what no table can be. Report the latter."
#: Names of databases are shorter, in characters.
LONGEST_NAME = 256
_TEXT = rb'("[^"\\]*(?:\\.[^"\\]*)*")'
_NAMES = re.compile(rb',"schema":' + _TEXT + rb',"table":' + _TEXT)


def find_names(value: bytes, at: int) -> re.Match[bytes]:
    """Return where the names are in a record whose source begins at an index, below 0 for none; CorruptInput without names."""
    names = _NAMES.search(value, at) if at >= 0 else None
    if names is None:
        raise CorruptInput("a record does not name its table", hint="Edges of this release do: upgrade the source's.")
    return names


def schema_and_table(names: re.Match[bytes]) -> tuple[str, str]:
    """Return the names that were found; both are empty for a record that is about no table."""
    try:
        schema, table = json.decode(names[1], type=str), json.decode(names[2], type=str)
        # A half of a surrogate pair is no text, and has no form in UTF-8.
        (schema + table).encode()
    except UNREADABLE as error:
        raise CorruptInput("the name of a record's table is no text", hint=_HINT) from error
    if max(len(schema), len(table)) > LONGEST_NAME:
        raise CorruptInput(f"the name of a record's table has more than {LONGEST_NAME} characters", hint=_HINT)
    return schema, table


#: `source.snapshot` of the records ahead of a whole table's copy, and behind it, in Debezium's words.
COPY_BEGINS, COPY_ENDS = "first_in_data_collection", "last_in_data_collection"
#: How the value of such a record begins, and of no other record.
COPY_MARK_HEAD = b'{"databaseName":'


class Column(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A column as the source declares it."""

    name: str
    #: The source's own type name: `int8`, `numeric`, `varchar`, `timestamptz`; arrays as `_int4`.
    type_name: str
    #: Declared length or precision; None where the type has none.
    length: int | None = None
    #: Declared scale; None where the type has none.
    scale: int | None = None
    #: From 1.
    position: int
    #: Whether null is possible as far as the log has it: False for key columns only.
    optional: bool = True
    #: How the records write its values, as Debezium names it; None for the ordinary way, and then not in the record.
    form: str | None = None
    #: The members of an `ENUM` or a `SET` that is written in Debezium's form; else not in the record.
    enum_values: list[str] | None = None
    #: What the edge's policy did to its values, `mask`, `hash` or `truncate`; None for nothing, and then not in the record.
    policy: str | None = None


class TableSchema(msgspec.Struct, frozen=True, kw_only=True):
    """A table's columns and key."""

    #: The database's schema, or the database where there are none.
    schema: str
    table: str
    #: Key columns in key order; empty for a table without a key.
    key: list[str]
    columns: list[Column]
    #: Columns that the edge's policy keeps in the region; not in the record when there are none.
    excluded: list[str] = []
    #: Why existing rows changed with the schema, where the edge saw that: no change in the log has it. None: not known.
    rewritten: list[str] | None = None

    @property
    def treated(self) -> dict[str, str]:
        """What the edge's policy does, by column."""
        treated = {column.name: column.policy for column in self.columns if column.policy is not None}
        return treated | dict.fromkeys(self.excluded, "exclude")

    def change(self) -> dict[str, Any]:
        """Return the element of `tableChanges`."""
        return {
            "type": "CREATE",
            "id": f'"{self.schema}"."{self.table}"',
            "table": {"primaryKeyColumnNames": self.key, "columns": [_as_json(column) for column in self.columns]}
            | ({"excluded": self.excluded} if self.excluded else {}),
        }

    @classmethod
    def parse(cls, value: str | bytes) -> Self:
        """Return the schema that a schema record's value holds; raise CorruptInput when it is none."""
        try:
            record = msgspec.json.decode(value, type=_Record)
            (change,) = record.tableChanges
        except UNREADABLE as error:
            raise CorruptInput("a record with tableChanges is no schema record of ours", hint=_HINT) from error
        key, columns = change.table.primaryKeyColumnNames, [column.name for column in change.table.columns]
        if max(map(len, (record.source.schema, record.source.table, *columns))) > LONGEST_NAME:
            raise CorruptInput(f"a schema record has a name of more than {LONGEST_NAME} characters", hint=_HINT)
        is_twice = len(set(key)) < len(key) or len(set(columns)) < len(columns)
        if is_twice or "" in columns or not set(key) <= set(columns):
            raise CorruptInput(
                "a schema record has a column without a name or twice, or a key that is none of its columns", hint=_HINT
            )
        return cls(
            schema=record.source.schema,
            table=record.source.table,
            key=key,
            columns=change.table.columns,
            excluded=change.table.excluded,
            rewritten=record.rewritten,
        )


def copy_mark(value: str | bytes) -> str | None:
    """Return which mark of a copy a schema record is, COPY_BEGINS or COPY_ENDS; None for neither, and for no such record."""
    try:
        mark = msgspec.json.decode(value, type=_Marked).source.snapshot
    except UNREADABLE:
        return None
    return mark if mark in {COPY_BEGINS, COPY_ENDS} else None


def _as_json(column: Column) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(column)
    for name in ("form", "policy", "enumValues"):
        if fields[name] is None:
            del fields[name]
    return fields


class _Table(msgspec.Struct):
    primaryKeyColumnNames: list[str]  # noqa: N815 - Debezium's name.
    columns: list[Column]
    excluded: list[str] = []


class _Change(msgspec.Struct):
    table: _Table


class _Source(msgspec.Struct):
    schema: str
    table: str


class _Snapshot(msgspec.Struct):
    snapshot: str = "false"


class _Marked(msgspec.Struct):
    source: _Snapshot


class _Record(msgspec.Struct):
    source: _Source
    tableChanges: list[_Change]  # noqa: N815 - Debezium's name.
    rewritten: list[str] | None = None
