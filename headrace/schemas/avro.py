"""A table's records as Avro schemas: Debezium's envelope, names and `connect.name` properties, with Headrace's additions.

The envelope's fields come first and the rows behind them, so that a reader finds what is in every record without the table's
schema; readers of Avro take fields by name, so their order is of no matter to them. Every column but the key's may be null: a
record may hold the key alone (`too_large`), and what the log does not carry is null and named in `unchanged`. Names are in a
namespace that begins with a prefix, the one of the stream's topics: only the bridge knows it, so an edge writes PREFIX in its
place, which is no name of Avro's. What is encoded does not depend on names.
"""

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from msgspec import json

from headrace.formats import UNREADABLE
from headrace.schema import Column, TableSchema
from headrace.schemas.column_types import NULL, Schema, avro_type_of, optional

#: What has the prefix's place in a schema until it is known.
PREFIX: Final = "@prefix"

#: What arrays and maps have the type of what they hold in.
_PARTS: Final = ("items", "values")
_NO_NAME = re.compile(r"[^A-Za-z0-9_]")


def _nullable(name: str, kind: object) -> Schema:
    return {"name": name, "type": optional(kind), "default": None}


_SNAPSHOT: Final = {
    "name": "snapshot",
    "type": [
        {
            "type": "string",
            "connect.version": 1,
            "connect.parameters": {
                "allowed": "true,first,first_in_data_collection,last_in_data_collection,last,false,incremental"
            },
            "connect.default": "false",
            "connect.name": "io.debezium.data.Enum",
        },
        NULL,
    ],
    "default": "false",
}
#: The fields of `source` that every engine has, and then those of each; `position` is ours.
_COMMON: Final[list[Schema]] = [
    {"name": "version", "type": "string"},
    {"name": "connector", "type": "string"},
    {"name": "name", "type": "string"},
    {"name": "ts_ms", "type": "long"},
    _nullable("ts_us", "long"),
    _nullable("ts_ns", "long"),
    _SNAPSHOT,
    {"name": "db", "type": "string"},
    _nullable("schema", "string"),
    _nullable("table", "string"),
    {"name": "position", "type": "string"},
    _nullable("sequence", "string"),
]
_OF_MYSQL: Final[list[Schema]] = [
    {"name": "server_id", "type": "long"},
    _nullable("gtid", "string"),
    {"name": "file", "type": "string"},
    {"name": "pos", "type": "long"},
    {"name": "row", "type": "int"},
    _nullable("thread", "long"),
    _nullable("query", "string"),
]
_SOURCES: Final[dict[str, list[Schema]]] = {
    "postgresql": [
        _nullable("txId", "long"),
        _nullable("lsn", "long"),
        _nullable("xmin", "long"),
        _nullable("origin", "string"),
        _nullable("origin_lsn", "long"),
    ],
    "mysql": _OF_MYSQL,
    "mariadb": _OF_MYSQL,
}
_TRANSACTION: Final = {
    "type": "record",
    "name": "block",
    "namespace": "event",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "total_order", "type": "long"},
        _nullable("data_collection_order", "long"),
    ],
    "connect.version": 1,
    "connect.name": "event.block",
}
_TOO_LARGE: Final = {
    "type": "record",
    "name": "TooLarge",
    "namespace": "headrace",
    "fields": [{"name": "bytes", "type": "long"}, {"name": "sha256", "type": "string"}],
}


class Schemas(NamedTuple):
    """The Avro schemas of a table's records, as JSON; names begin with PREFIX until `with_prefix`."""

    #: None for a table without a key.
    key: str | None
    value: str

    def with_prefix(self, prefix: str) -> "Schemas":
        """Return the schemas with names that begin with a prefix: the stream's, as its tables' topics do."""
        begins = f'"{adjust_name(prefix)}.'
        key, value = (text and text.replace(f'"{PREFIX}.', begins) for text in self)
        return Schemas(key, value or "")


def schemas(schema: TableSchema, connector: str, *, placeholders: bool = False) -> Schemas:
    """Return the schemas of a table's keys and values; `connector` is the engine, as `source.connector` of a record has it.

    `placeholders`: rows have all columns, also those that the log does not carry (`[records] unavailable`). It changes nothing
    but a property of the schema, for readers that make JSON of the record again.
    """
    value = envelope(schema, connector) | ({"headrace.unavailable": "placeholder"} if placeholders else {})
    return Schemas(_text(key(schema)) if schema.key else None, _text(value))


def envelope(schema: TableSchema, connector: str, prefix: str = PREFIX) -> Schema:
    """Return the schema of a table's values. A record that several columns have is in each of them."""
    base = _namespace(schema, prefix)
    source = {
        "type": "record",
        "name": "Source",
        "namespace": f"io.debezium.connector.{connector}",
        "fields": source_fields(connector),
        "connect.name": f"io.debezium.connector.{connector}.Source",
    }
    return {
        "type": "record",
        "name": "Envelope",
        "namespace": base,
        "fields": [
            {"name": "op", "type": "string"},
            _nullable("ts_ms", "long"),
            _nullable("ts_us", "long"),
            _nullable("ts_ns", "long"),
            _nullable("transaction", _TRANSACTION),
            _nullable("unchanged", {"type": "array", "items": "string"}),
            _nullable("too_large", _TOO_LARGE),
            {"name": "source", "type": source},
            *([_nullable("former_key", _record(schema, base, "Key"))] if schema.key else []),
            _nullable("before", _record(schema, base, "Value")),
            _nullable("after", f"{base}.Value"),
            _nullable("last", "boolean"),
        ],
        "connect.version": 2,
        "connect.name": f"{base}.Envelope",
    }


def key(schema: TableSchema, prefix: str = PREFIX) -> Schema:
    """Return the schema of a table's keys."""
    return _record(schema, _namespace(schema, prefix), "Key")


def fields(schema: TableSchema, *, of_key: bool) -> list[tuple[Column, Schema]]:
    """Return the columns of a table's rows, or of its key in key order, each with its field of the record."""
    by_name = {column.name: column for column in schema.columns}
    columns = [by_name[name] for name in schema.key] if of_key else schema.columns
    names = _names(schema)
    return [(column, _field(column, names[column.name], required=column.name in schema.key)) for column in columns]


def adjust_name(name: str) -> str:
    """Return a name as Debezium adjusts it for Avro: what a name may not hold is an underscore; dots separate names."""
    parts = (_NO_NAME.sub("_", part) for part in name.split("."))
    return ".".join(f"_{part}" if part[:1].isdigit() or not part else part for part in parts)


def namespace(schema: str, table: str, prefix: str) -> str:
    """Return the namespace of a table's records; dots in a name are no separators."""
    names = ".".join(adjust_name(name.replace(".", "_")) for name in (schema, table))
    return f"{prefix if prefix == PREFIX else adjust_name(prefix)}.{names}"


def _namespace(schema: TableSchema, prefix: str) -> str:
    return namespace(schema.schema, schema.table, prefix)


def is_of_table(text: str, namespace: str, name: str) -> bool:
    """Whether a text is the schema of a record with a name in a namespace, as JSON."""
    try:
        schema = json.decode(text)
    except UNREADABLE:
        return False
    return isinstance(schema, dict) and (schema.get("type"), schema.get("namespace"), schema.get("name")) == (
        "record",
        namespace,
        name,
    )


def _record(schema: TableSchema, namespace: str, name: str) -> Schema:
    return {
        "type": "record",
        "name": name,
        "namespace": namespace,
        "fields": [field for _, field in fields(schema, of_key=name == "Key")],
        "connect.name": f"{namespace}.{name}",
    }


def _names(schema: TableSchema) -> Mapping[str, str]:
    """Return the name of each column's field; two that are the same once adjusted get numbers."""
    names: dict[str, str] = {}
    taken: set[str] = set()
    for column in schema.columns:
        name = base = adjust_name(column.name.replace(".", "_"))
        number = 2
        while name in taken:
            name, number = f"{base}_{number}", number + 1
        taken.add(name)
        names[column.name] = name
    return names


def _field(column: Column, name: str, *, required: bool) -> Schema:
    kind = avro_type_of(column)
    field: Schema = {"name": name, "type": kind} if required else _nullable(name, kind)
    if name != column.name:
        field["headrace.column"] = column.name
    return field


def _text(schema: Schema) -> str:
    return json.encode(_define_once(schema, set())).decode()


def _define_once(kind: Any, defined: set[str]) -> Any:
    """Return a schema in which each record is defined where it is first, and named after that, as Avro wants it."""
    if isinstance(kind, list):
        return [_define_once(branch, defined) for branch in kind]
    if isinstance(kind, str):
        return kind
    if kind["type"] == "record":
        name = f"{kind['namespace']}.{kind['name']}"
        if name in defined:
            return name
        defined.add(name)
        return kind | {"fields": [each | {"type": _define_once(each["type"], defined)} for each in kind["fields"]]}
    return kind | {part: _define_once(kind[part], defined) for part in _PARTS if part in kind}


def same(schema: str, other: str) -> bool:
    """Whether two schemas, as JSON, are the same; registries write names in full or in short. What is no Avro schema is not."""
    try:
        return bool(_in_full(json.decode(schema), "") == _in_full(json.decode(other), ""))
    except (KeyError, TypeError, AttributeError, *UNREADABLE):
        return False


_PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})


def _in_full(kind: Any, namespace: str) -> Any:
    """Return a schema with all names in full."""
    if isinstance(kind, list):
        return [_in_full(branch, namespace) for branch in kind]
    if isinstance(kind, str):
        return kind if kind in _PRIMITIVES or "." in kind else f"{namespace}.{kind}"
    full = {name: value for name, value in kind.items() if name != "namespace"}
    if kind["type"] == "record":
        namespace = kind.get("namespace", namespace)
        full["name"] = f"{namespace}.{kind['name']}"
        full["fields"] = [each | {"type": _in_full(each["type"], namespace)} for each in kind["fields"]]
    return full | {part: _in_full(kind[part], namespace) for part in _PARTS if part in kind}


def source_fields(connector: str) -> list[Schema]:
    """Return the fields of `source`, in order."""
    return _COMMON + _SOURCES[connector]
