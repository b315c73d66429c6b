"""Records in Avro: what of a batch is encoded when the batch is sealed, and what its records were written with.

A change begins with a byte of 0 and the number, in four bytes, that the batch has for its table's schemas; so does its key. The
bridge puts the registry's ids in the place of these numbers (headrace/batch.py). Changes that an engine's own functions made are
in that form already; all others, which are JSON, become it here: the first of each table, those of copies, unusual ones. A
table's columns are known from the schema record ahead of its changes. What is about no table, and schema records, stay JSON.
"""

import re
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import json

from edge.records import avro_encoding as avro
from edge.records.avro_encoding import NULL, THERE, Encode
from edge.records.envelope import AVRO_END, AVRO_LAST_END, AVRO_MARK
from headrace.batch import WrittenWith
from headrace.errors import CorruptInput, NeedsOperator
from headrace.schema import COPY_MARK_HEAD, SOURCE, TableSchema, find_names, schema_and_table
from headrace.schemas.avro import Schemas, fields, schemas, source_fields

_CHANGE_HEAD, _SCHEMA_HEAD = b'{"before":', b'{"source":'
_POSITION = re.compile(rb'"position":"([0-9a-f/]*)"')


class _Place(msgspec.Struct):
    id: str
    total_order: int
    data_collection_order: int | None = None
    last: bool | None = None


class _TooLarge(msgspec.Struct):
    bytes: int
    sha256: str


class _Change(msgspec.Struct):
    source: dict[str, Any]
    op: str
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None
    ts_ms: int | None = None
    ts_us: int | None = None
    ts_ns: int | None = None
    transaction: _Place | None = None
    unchanged: list[str] | None = None
    too_large: _TooLarge | None = None
    former_key: dict[str, Any] | None = None


class _Origin(msgspec.Struct):
    connector: str


class _SchemaRecord(msgspec.Struct):
    source: _Origin
    tableChanges: list[msgspec.Raw] | None = None  # noqa: N815 - Debezium's name.


_changes = json.Decoder(_Change)
_decode_key = json.Decoder(dict[str, Any]).decode
_decode_schema = json.Decoder(_SchemaRecord).decode


def _decode_change(value: bytes) -> _Change:
    try:
        return _changes.decode(value)
    except (ValueError, msgspec.MsgspecError) as error:
        raise NeedsOperator(
            f"a value in the change of {_place(value)} is not in UTF-8, or not of its type's form",
            hint="Leave its column out with [policy]: the edge goes on from there. In a row that is being copied, repair it.",
        ) from error


def _place(value: bytes) -> str:
    """Return the table and the position of a change that is no JSON, by its `source` alone: rows hold what they like."""
    at = value.rfind(SOURCE)
    try:
        table = ".".join(schema_and_table(find_names(value, at)))
    except CorruptInput:
        return "a table without a name"
    position = _POSITION.search(value, at)
    return f"{table} at position {position[1].decode() if position else 'unknown'}"


class AvroTable:
    """How one table's records become Avro."""

    def __init__(self, number: int, schema: TableSchema, connector: str, written: Schemas) -> None:
        self.schema = schema
        self.connector = connector
        self.written = WrittenWith(number, schema.schema, schema.table, written.key, written.value)
        #: What its keys and values begin with.
        self.header = self.written.mark
        self._columns = _encoders(schema, of_key=False)
        self._key = _encoders(schema, of_key=True)
        self._source = [(field["name"], _source_field(field)) for field in source_fields(connector)]

    def encoder_of(self, column: str) -> Encode:
        """Return the function from what JSON decodes to, of a column of rows."""
        return dict(self._columns)[column]

    def key(self, key: bytes) -> bytes:
        """Return a key, given as JSON."""
        return self.header + self._fields(self._key, _decode_key(key))

    def value(self, change: _Change) -> bytes:
        """Return a change; raise NeedsOperator for a value that its column's type has no form for."""
        return b"".join((
            self.header,
            avro.text(change.op),
            *(NULL if time is None else THERE + avro.long(time) for time in (change.ts_ms, change.ts_us, change.ts_ns)),
            _transaction(change.transaction),
            _unchanged(change.unchanged),
            NULL if change.too_large is None else _too_large(change.too_large),
            self.source(change.source),
            self._former(change.former_key),
            self._row(change.before),
            self._row(change.after),
            AVRO_LAST_END if change.transaction is not None and change.transaction.last else AVRO_END,
        ))  # fmt: skip

    def source(self, source: dict[str, Any]) -> bytes:
        """Return a `source` block."""
        return b"".join(encode(source.get(name)) for name, encode in self._source)

    def _row(self, row: dict[str, Any] | None) -> bytes:
        if row is None:
            return NULL
        return THERE + self._fields(self._columns, row)

    def _former(self, key: dict[str, Any] | None) -> bytes:
        """Return the key that a row had before; a table without a key has no such field."""
        if not self._key:
            return b""
        return NULL if key is None else THERE + self._fields(self._key, key)

    def _fields(self, encoders: list[tuple[str, Encode]], row: dict[str, Any]) -> bytes:
        return b"".join(self._one(name, encode, row.get(name)) for name, encode in encoders)

    def _one(self, name: str, encode: Encode, value: Any) -> bytes:
        try:
            return encode(value)
        except (ValueError, TypeError, KeyError, OverflowError) as error:
            raise NeedsOperator(
                f"a value in column {self.schema.schema}.{self.schema.table}.{name} has no form in Avro: it is not of its "
                "type there, null in a key, or an array of arrays",
                hint='NaN in a key has one with [records] decimal = "string", an array of arrays with types = "headrace"; '
                "[policy] leaves a column out. The edge goes on from there with such a setting.",
            ) from error


class AvroRecords:
    """The tables of a session whose records are in Avro."""

    def __init__(self, *, placeholders: bool = False) -> None:
        """`placeholders`: rows have all columns, also those that the log does not carry."""
        self._placeholders = placeholders
        self._numbers: dict[tuple[str, Schemas], AvroTable] = {}
        self._by_header: dict[bytes, AvroTable] = {}
        # What each table's records are written with, from the newest schema record on.
        self._current: dict[tuple[str, str], AvroTable] = {}

    def table(self, schema: TableSchema, connector: str) -> AvroTable:
        """Return the table of a schema."""
        written = schemas(schema, connector, placeholders=self._placeholders)
        table = self._numbers.get((connector, written))
        if table is None or table.schema != schema:
            number = table.written.number if table is not None else len(self._by_header) + 1
            table = self._numbers[connector, written] = AvroTable(number, schema, connector, written)
            self._by_header[table.header] = table
        return table

    def encode(
        self, keys: Sequence[bytes | None], values: Sequence[bytes | None]
    ) -> tuple[list[bytes | None], list[bytes | None], list[WrittenWith]]:
        """Return a batch's keys and values with all changes in Avro, and what they were written with."""
        used = {value[:5] for value in values if value}
        if self._by_header.keys() >= used:
            return list(keys), list(values), [self._by_header[header].written for header in sorted(used)]
        avro_keys, avro_values = list(keys), list(values)
        used.clear()
        for number, value in enumerate(avro_values):
            if value is None:
                # A tombstone follows its delete.
                avro_keys[number] = avro_keys[number - 1]
            elif value[0] == AVRO_MARK:
                used.add(value[:5])
            elif value.startswith(_CHANGE_HEAD):
                change = _decode_change(value)
                table = self._current.get((change.source.get("schema") or "", change.source["table"]))
                # A truncate of a table of which no change was met yet: its columns are not known.
                if table is not None:
                    key = avro_keys[number]
                    avro_keys[number], avro_values[number] = key and table.key(key), table.value(change)
                    used.add(table.header)
            elif value.startswith((_SCHEMA_HEAD, COPY_MARK_HEAD)):
                self._learn(value)
        return avro_keys, avro_values, [self._by_header[header].written for header in sorted(used)]

    def _learn(self, value: bytes) -> None:
        """Take note of a schema record."""
        record = _decode_schema(value)
        if record.tableChanges:
            schema = TableSchema.parse(value)
            self._current[schema.schema, schema.table] = self.table(schema, record.source.connector)


def _encoders(schema: TableSchema, *, of_key: bool) -> list[tuple[str, Encode]]:
    return [(column.name, avro.encoder(field["type"])) for column, field in fields(schema, of_key=of_key)]


def _source_field(field: dict[str, Any]) -> Encode:
    if field["name"] == "snapshot":
        # The text is the first branch there.
        return lambda value: NULL + avro.text(value or "false")
    return avro.encoder(field["type"])


def _transaction(place: _Place | None) -> bytes:
    if place is None:
        return NULL
    order = place.data_collection_order
    return b"".join((
        THERE, avro.text(place.id), avro.long(place.total_order), NULL if order is None else THERE + avro.long(order),
    ))  # fmt: skip


def _unchanged(names: list[str] | None) -> bytes:
    """Return names of columns: blocks of an array, each with its count ahead, and a count of 0."""
    if names is None:
        return NULL
    blocks = avro.long(len(names)) + b"".join(map(avro.text, names)) if names else b""
    return THERE + blocks + NULL


def _too_large(size: _TooLarge) -> bytes:
    return THERE + avro.long(size.bytes) + avro.text(size.sha256)
