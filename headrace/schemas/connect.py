"""A table's records as Kafka Connect's schemas in JSON: what JsonConverter takes as `schema.content`, since Kafka 4.2.

Names are Debezium's, so that its sinks and transforms take the records for its own. Every column but the key's may be null: a
record may hold the key alone, and what the log does not carry is absent. JsonConverter passes over fields that a schema has not.
"""

from typing import Any, Final

from headrace.schema import Column, TableSchema
from headrace.schemas import avro

Schema = dict[str, Any]

_KAFKA: Final = "org.apache.kafka.connect.data."
_DATA: Final = "io.debezium.data."
_TIME: Final = "io.debezium.time."
_TEXT: Final[Schema] = {"type": "string"}


def _named(kind: str, name: str, **more: object) -> Schema:
    return {"type": kind, "name": name, "version": 1} | more


_POINT_FIELDS: Final = [
    {"field": "x", "type": "double", "optional": False},
    {"field": "y", "type": "double", "optional": False},
    {"field": "wkb", "type": "bytes", "optional": True},
    {"field": "srid", "type": "int32", "optional": True},
]
_VARIABLE_FIELDS: Final = [
    {"field": "scale", "type": "int32", "optional": False},
    {"field": "value", "type": "bytes", "optional": False},
]
#: Forms of columns (`Column.form`) by what their JSON is; forms that are no names are Connect's own types.
_FORMS: Final[dict[str, Schema]] = {
    **{name: {"type": name} for name in ("int16", "int32", "int64", "boolean", "bytes", "string", "double")},
    "float32": {"type": "float"},
    "float64": {"type": "double"},
    "hex": _TEXT,
    # JsonConverter reads the ordinary alphabet of base64 alone.
    "base64-url-safe": _TEXT,
    "map": {
        "type": "map",
        "keys": {"type": "string", "optional": False},
        "values": {"type": "string", "optional": True},
    },
    f"{_DATA}VariableScaleDecimal": _named("struct", f"{_DATA}VariableScaleDecimal", fields=_VARIABLE_FIELDS),
    f"{_DATA}geometry.Point": _named("struct", f"{_DATA}geometry.Point", fields=_POINT_FIELDS),
    **{
        name: _named("int32", name)
        for name in (f"{_TIME}Date", f"{_TIME}Time", f"{_TIME}Year", f"{_KAFKA}Date", f"{_KAFKA}Time")
    },
    **{
        f"{_TIME}{name}": _named("int64", f"{_TIME}{name}")
        for name in ("Timestamp", "MicroTime", "MicroTimestamp", "NanoTime", "NanoTimestamp", "MicroDuration")
    },
    f"{_KAFKA}Timestamp": _named("int64", f"{_KAFKA}Timestamp"),
}
#: The sources' types that are no plain text: PostgreSQL's in lower case, MariaDB's and MySQL's in upper case.
_TYPES: Final[dict[str, Schema]] = {
    "bool": {"type": "boolean"},
    **{key: {"type": "int16"} for key in ("int2", "TINYINT", "TINYINT UNSIGNED", "SMALLINT")},
    **{
        key: {"type": "int32"}
        for key in ("int4", "SMALLINT UNSIGNED", "MEDIUMINT", "MEDIUMINT UNSIGNED", "INT", "YEAR")
    },
    # As Debezium's `long`: what is greater than 2^63 - 1 does not fit.
    **{key: {"type": "int64"} for key in ("int8", "oid", "INT UNSIGNED", "BIGINT", "BIGINT UNSIGNED")},
    **{key: {"type": "float"} for key in ("float4", "FLOAT")},
    **{key: {"type": "double"} for key in ("float8", "DOUBLE")},
    **{
        key: {"type": "bytes"}
        for key in ("bytea", "BINARY", "VARBINARY", "TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB", "GEOMETRY")
    },
    **dict.fromkeys(("json", "jsonb", "JSON"), _named("string", f"{_DATA}Json")),
    **dict.fromkeys(("timestamptz", "TIMESTAMP"), _named("string", f"{_TIME}ZonedTimestamp")),
    "uuid": _named("string", f"{_DATA}Uuid"),
    "xml": _named("string", f"{_DATA}Xml"),
}
_OF_AVRO: Final = {"string": "string", "long": "int64", "int": "int32"}


def key(schema: TableSchema, prefix: str) -> Schema | None:
    """Return the schema of a table's keys; None for a table without a key."""
    if not schema.key:
        return None
    by_name = {column.name: column for column in schema.columns}
    return _struct(f"{_base(schema, prefix)}.Key", [_field(by_name[name], schema) for name in schema.key])


def value(schema: TableSchema, connector: str, prefix: str) -> Schema:
    """Return the schema of a table's values: Debezium's envelope. `connector` is `source.connector` of its records."""
    base = _base(schema, prefix)
    row = _struct(f"{base}.Value", [_field(column, schema) for column in schema.columns]) | {"optional": True}
    times = [_optional({"type": "int64"}, name) for name in ("ts_ms", "ts_us", "ts_ns")]
    fields = [
        _optional(row, "before"),
        _optional(row, "after"),
        _struct(f"io.debezium.connector.{connector}.Source", _source(connector)) | {"field": "source"},
        _optional(_transaction(), "transaction"),
        {"type": "string", "optional": False, "field": "op"},
        *times,
        _optional({"type": "array", "items": {"type": "string", "optional": False}}, "unchanged"),
    ]
    return _struct(f"{base}.Envelope", fields) | {"version": 2}


def type_of(column: Column) -> Schema:
    """Return the type of a column's values, as a record has them; text where it has text."""
    if column.policy is not None:
        return _TEXT
    if column.form is None:
        return _TYPES.get(column.type_name, _TEXT)
    return _of_form(column.form, column)


def _of_form(form: str, column: Column) -> Schema:
    if form.startswith("array<"):
        element = _of_form(form.removeprefix("array<").removesuffix(">"), column)
        return {"type": "array", "items": element | {"optional": True}}
    if form == f"{_KAFKA}Decimal":
        # Debezium gives money two digits.
        parameters = {"scale": str(2 if column.type_name in {"money", "_money"} else column.scale or 0)}
        if column.length is not None:
            parameters["connect.decimal.precision"] = str(column.length)
        return _named("bytes", form, parameters=parameters)
    if form == f"{_DATA}Bits":
        return _named(
            "bytes", form, **({} if column.length is None else {"parameters": {"length": str(column.length)}})
        )
    if form in _FORMS:
        return _FORMS[form]
    # Texts with a name, as `io.debezium.time.ZonedTimestamp`.
    return _named("string", form)


def _base(schema: TableSchema, prefix: str) -> str:
    return ".".join(avro.adjusted(name) for name in (prefix, schema.schema, schema.table))


def _field(column: Column, schema: TableSchema) -> Schema:
    return type_of(column) | {"optional": column.name not in schema.key, "field": column.name}


def _source(connector: str) -> list[Schema]:
    """Return the fields of `source`, which are those of its Avro form."""
    found = []
    for field in avro.source_fields(connector):
        kinds = field["type"] if isinstance(field["type"], list) else [field["type"]]
        kind = next((_OF_AVRO[each] for each in kinds if isinstance(each, str) and each in _OF_AVRO), "string")
        found.append(_optional({"type": kind}, field["name"]))
    return found


def _transaction() -> Schema:
    fields = [{"type": "string", "optional": False, "field": "id"}]
    fields += [_optional({"type": "int64"}, name) for name in ("total_order", "data_collection_order")]
    return _struct("event.block", fields)


def _struct(name: str, fields: list[Schema]) -> Schema:
    return {"type": "struct", "name": name, "version": 1, "optional": False, "fields": fields}


def _optional(kind: Schema, name: str) -> Schema:
    return kind | {"optional": True, "field": name}
