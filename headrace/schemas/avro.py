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

from headrace.schema import Column, TableSchema

#: What has the prefix's place in a schema until it is known.
PREFIX: Final = "@prefix"

Schema = dict[str, Any]
_NO_NAME = re.compile(r"[^A-Za-z0-9_]")
_NULL: Final = "null"


def _logical(kind: str, name: str, **more: object) -> Schema:
    return {"type": kind, "connect.version": 1, "connect.name": name} | more


def _optional(kind: object) -> list[object]:
    return [_NULL, kind]


def _nullable(name: str, kind: object) -> Schema:
    return {"name": name, "type": _optional(kind), "default": None}


_INT16: Final = {"type": "int", "connect.type": "int16"}
_VARIABLE: Final = {
    "type": "record",
    "name": "VariableScaleDecimal",
    "namespace": "io.debezium.data",
    "fields": [{"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}],
    "connect.version": 1,
    "connect.name": "io.debezium.data.VariableScaleDecimal",
}
#: Forms of columns (`Column.form`), but for decimals of a fixed scale, which have parameters.
_FORMS: Final[dict[str, object]] = {
    "double": "double",
    "io.debezium.data.VariableScaleDecimal": _VARIABLE,
    "io.debezium.time.Date": _logical("int", "io.debezium.time.Date"),
    "io.debezium.time.Time": _logical("int", "io.debezium.time.Time"),
    "io.debezium.time.Timestamp": _logical("long", "io.debezium.time.Timestamp"),
    "io.debezium.time.MicroTime": _logical("long", "io.debezium.time.MicroTime"),
    "io.debezium.time.MicroTimestamp": _logical("long", "io.debezium.time.MicroTimestamp"),
    "org.apache.kafka.connect.data.Date": _logical("int", "org.apache.kafka.connect.data.Date", logicalType="date"),
    "org.apache.kafka.connect.data.Time": _logical(
        "int", "org.apache.kafka.connect.data.Time", logicalType="time-millis"
    ),
    "org.apache.kafka.connect.data.Timestamp": _logical(
        "long", "org.apache.kafka.connect.data.Timestamp", logicalType="timestamp-millis"
    ),
}
DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"
#: The sources' types that are no text: PostgreSQL's in lower case, MariaDB's and MySQL's in upper case.
_TYPES: Final[dict[str, object]] = {
    "bool": "boolean", "int2": _INT16, "int4": "int", "int8": "long", "oid": "long", "float4": "float", "float8": "double",
    "bytea": "bytes", "json": _logical("string", "io.debezium.data.Json"), "jsonb": _logical("string", "io.debezium.data.Json"),
    "uuid": _logical("string", "io.debezium.data.Uuid"), "xml": _logical("string", "io.debezium.data.Xml"),
    "timestamptz": _logical("string", "io.debezium.time.ZonedTimestamp"),
    "TINYINT": _INT16, "TINYINT UNSIGNED": _INT16, "SMALLINT": _INT16, "SMALLINT UNSIGNED": "int", "MEDIUMINT": "int",
    "MEDIUMINT UNSIGNED": "int", "INT": "int", "INT UNSIGNED": "long", "BIGINT": "long",
    "YEAR": "int", "FLOAT": "float", "DOUBLE": "double", "JSON": _logical("string", "io.debezium.data.Json"),
    "BINARY": "bytes", "VARBINARY": "bytes", "TINYBLOB": "bytes", "BLOB": "bytes", "MEDIUMBLOB": "bytes", "LONGBLOB": "bytes",
    "GEOMETRY": "bytes", "TIMESTAMP": _logical("string", "io.debezium.time.ZonedTimestamp"),
}  # fmt: skip
_UNSIGNED_DIGITS: Final = 20
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
        _NULL,
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
    "postgresql": [_nullable("txId", "long"), _nullable("lsn", "long"), _nullable("xmin", "long")],
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
        begins = f'"{adjusted(prefix)}.'
        key, value = (text and text.replace(f'"{PREFIX}.', begins) for text in self)
        return Schemas(key, value or "")


def schemas(schema: TableSchema, connector: str) -> Schemas:
    """Return the schemas of a table's keys and values; `connector` is the engine, as `source.connector` of a record has it."""
    value = json.encode(envelope(schema, connector)).decode()
    return Schemas(json.encode(key(schema)).decode() if schema.key else None, value)


def envelope(schema: TableSchema, connector: str, prefix: str = PREFIX) -> Schema:
    """Return the schema of a table's values."""
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
    named = _names(schema)
    return [(column, _field(column, named[column.name], required=column.name in schema.key)) for column in columns]


def adjusted(name: str) -> str:
    """Return a name as Debezium adjusts it for Avro: what a name may not hold is an underscore; dots separate names."""
    parts = (_NO_NAME.sub("_", part) for part in name.split("."))
    return ".".join(f"_{part}" if part[:1].isdigit() or not part else part for part in parts)


def _namespace(schema: TableSchema, prefix: str) -> str:
    # Dots in a table's name are no separators.
    names = ".".join(adjusted(name.replace(".", "_")) for name in (schema.schema, schema.table))
    return f"{prefix if prefix == PREFIX else adjusted(prefix)}.{names}"


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
    found: dict[str, str] = {}
    taken: set[str] = set()
    for column in schema.columns:
        name = wanted = adjusted(column.name.replace(".", "_"))
        number = 2
        while name in taken:
            name, number = f"{wanted}_{number}", number + 1
        taken.add(name)
        found[column.name] = name
    return found


def _field(column: Column, name: str, *, required: bool) -> Schema:
    kind = type_of(column)
    made: Schema = {"name": name, "type": kind} if required else _nullable(name, kind)
    if name != column.name:
        made["headrace.column"] = column.name
    return made


def type_of(column: Column) -> object:
    """Return the Avro type of a column's values; text where the records have text."""
    if column.policy is not None:
        return "string"
    if column.form == DECIMAL:
        return _decimal(column.length, column.scale or 0)
    if column.form is not None:
        return _FORMS.get(column.form, "string")
    if column.type_name == "BIGINT UNSIGNED":
        # For readers that make JSON of it again, where a decimal in the form of Debezium is base64.
        return _decimal(_UNSIGNED_DIGITS, 0) | {"headrace.json": "number"}
    return _TYPES.get(column.type_name, "string")


def _decimal(precision: int | None, scale: int) -> Schema:
    parameters = {"scale": str(scale)} | ({} if precision is None else {"connect.decimal.precision": str(precision)})
    made = {"type": "bytes", "scale": scale, "precision": precision or 64, "connect.parameters": parameters}
    return made | {"connect.version": 1, "connect.name": DECIMAL, "logicalType": "decimal"}


def same(one: str, other: str) -> bool:
    """Whether two schemas, as JSON, are the same; registries write names in full or in short."""
    return bool(_in_full(json.decode(one), "") == _in_full(json.decode(other), ""))


_PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})


def _in_full(kind: Any, namespace: str) -> Any:
    """Return a schema with all names in full."""
    if isinstance(kind, list):
        return [_in_full(branch, namespace) for branch in kind]
    if isinstance(kind, str):
        return kind if kind in _PRIMITIVES or "." in kind else f"{namespace}.{kind}"
    found = {name: value for name, value in kind.items() if name != "namespace"}
    if kind["type"] == "record":
        namespace = kind.get("namespace", namespace)
        found["name"] = f"{namespace}.{kind['name']}"
        found["fields"] = [each | {"type": _in_full(each["type"], namespace)} for each in kind["fields"]]
    elif kind["type"] == "array":
        found["items"] = _in_full(kind["items"], namespace)
    return found


def source_fields(connector: str) -> list[Schema]:
    """Return the fields of `source`, in order."""
    return _COMMON + _SOURCES[connector]
