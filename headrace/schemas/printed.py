"""A table's schema as text, in each of the forms of `headrace bridge schema`, Kafka Connect's in JSON among them.

Kafka Connect's is what JsonConverter takes as `schema.content`, since Kafka 4.2. Names are Debezium's, so that its sinks and
transforms take the records for its own. Every column but the key's may be null: a record may hold the key alone, and what the log
does not carry is absent. JsonConverter passes over fields that a schema has not.
"""

import json
from typing import Final

from headrace.errors import ConfigurationError
from headrace.schema import Column, TableSchema
from headrace.schemas import avro
from headrace.schemas.column_types import Schema, connect_type_of

_OF_AVRO: Final = {"string": "string", "long": "int64", "int": "int32"}


def connect_key(schema: TableSchema, prefix: str) -> Schema | None:
    """Return the schema of a table's keys; None for a table without a key."""
    if not schema.key:
        return None
    by_name = {column.name: column for column in schema.columns}
    return _struct(f"{_base(schema, prefix)}.Key", [_field(by_name[name], schema) for name in schema.key])


def connect_value(schema: TableSchema, connector: str, prefix: str) -> Schema:
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


def _base(schema: TableSchema, prefix: str) -> str:
    return ".".join(avro.adjust_name(name) for name in (prefix, schema.schema, schema.table))


def _field(column: Column, schema: TableSchema) -> Schema:
    return connect_type_of(column) | {"optional": column.name not in schema.key, "field": column.name}


def _source(connector: str) -> list[Schema]:
    """Return the fields of `source`, which are those of its Avro form."""
    fields = []
    for field in avro.source_fields(connector):
        kinds = field["type"] if isinstance(field["type"], list) else [field["type"]]
        kind = next((_OF_AVRO[each] for each in kinds if isinstance(each, str) and each in _OF_AVRO), "string")
        fields.append(_optional({"type": kind}, field["name"]))
    return fields


def _transaction() -> Schema:
    fields = [{"type": "string", "optional": False, "field": "id"}]
    fields += [_optional({"type": "int64"}, name) for name in ("total_order", "data_collection_order")]
    return _struct("event.block", fields)


def _struct(name: str, fields: list[Schema]) -> Schema:
    return {"type": "struct", "name": name, "version": 1, "optional": False, "fields": fields}


def _optional(kind: Schema, name: str) -> Schema:
    return kind | {"optional": True, "field": name}


def render_schema(form: str, schema: TableSchema, connector: str, prefix: str, *, of_key: bool) -> str:
    """Return the schema of a table's values, or keys, on one line where it is JSON; `prefix` is that of the stream's topics.

    Raises ConfigurationError for the keys of a table without one, or as SQL.
    """
    if form == "sql":
        if of_key:
            raise ConfigurationError("--key has no meaning with --sql", hint="The statement has the primary key.")
        return create_table(schema)
    if of_key and not schema.key:
        raise ConfigurationError(
            f"table {schema.schema}.{schema.table} has no key",
            hint="Its records have no key: leave --key out.",
        )
    if form == "avro":
        schemas = avro.schemas(schema, connector).with_prefix(prefix)
        return str(schemas.key) if of_key else schemas.value
    if form == "connect":
        document = connect_key(schema, prefix) if of_key else connect_value(schema, connector, prefix)
    else:
        document = key(schema) if of_key else value(schema)
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_NUMBER: Final = {"type": ["number", "string"]}
_SIMPLE: Final[dict[str, Schema]] = {
    "string": {"type": "string"},
    "boolean": {"type": "boolean"},
    # NaN and infinities are texts.
    "float": _NUMBER,
    "double": _NUMBER,
    # An unsigned number may be greater than the greatest signed one.
    "int64": {"type": "integer"},
    "bytes": {"type": "string", "contentEncoding": "base64"},
    "map": {"type": "object", "additionalProperties": {"type": ["string", "null"]}},
    "struct": {"type": "object"},
}
_WHOLE: Final = {"int16": 1 << 15, "int32": 1 << 31}


def key(schema: TableSchema) -> Schema | None:
    """Return the schema of a table's keys; None for a table without a key."""
    if not schema.key:
        return None
    by_name = {column.name: column for column in schema.columns}
    return {"$schema": _DIALECT, "title": f"{schema.schema}.{schema.table} key"} | _object(
        {name: of_column(by_name[name], required=True) for name in schema.key}, list(schema.key)
    )


def value(schema: TableSchema) -> Schema:
    """Return the schema of a table's values: changes, not tombstones, which have none."""
    row = _object({column.name: of_column(column, required=column.name in schema.key) for column in schema.columns}, [])
    row["type"] = ["object", "null"]
    source = _object(
        {name: {"type": "string"} for name in ("connector", "name", "db", "schema", "table", "position")}
        | {"ts_ms": {"type": "integer"}},
        ["connector", "name", "position", "schema", "table"],
    )
    fields: dict[str, Schema] = {
        "op": {"enum": ["c", "u", "d", "r", "t"]},
        "before": {"$ref": "#/$defs/row"},
        "after": {"$ref": "#/$defs/row"},
        "unchanged": {"type": "array", "items": {"type": "string"}},
        "source": source,
        "ts_ms": {"type": "integer"},
        "transaction": {"type": ["object", "null"]},
    }
    envelope = _object(fields, ["op", "before", "after", "source"])
    return {"$schema": _DIALECT, "title": f"{schema.schema}.{schema.table}"} | envelope | {"$defs": {"row": row}}


def of_column(column: Column, *, required: bool) -> Schema:
    """Return the schema of a column's values."""
    kind = _of_type(connect_type_of(column))
    return kind if required else _nullable(kind)


def _of_type(kind: Schema) -> Schema:
    name = kind["type"]
    if name == "array":
        return {"type": "array", "items": _nullable(_of_type(kind["items"]))}
    if name in _WHOLE:
        return {"type": "integer", "minimum": -_WHOLE[name], "maximum": _WHOLE[name] - 1}
    return dict(_SIMPLE[name])


def _nullable(schema: Schema) -> Schema:
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    return schema | {"type": [*kinds, "null"]}


def _object(properties: dict[str, Schema], required: list[str]) -> Schema:
    return {"type": "object", "properties": properties, "required": required}


_TYPES: Final = {
    "int2": "smallint", "int4": "integer", "int8": "bigint", "oid": "bigint", "float4": "real", "float8": "double precision",
    "bool": "boolean", "timestamptz": "timestamp with time zone", "timetz": "time with time zone",
    **{name: name for name in (
        "text", "name", "date", "time", "timestamp", "interval", "uuid", "json", "jsonb", "xml", "bytea", "inet", "cidr",
        "macaddr", "macaddr8", "money", "numeric", "point", "tsvector", "int4range", "int8range", "numrange", "tsrange",
        "tstzrange", "daterange",
    )},
    "TINYINT": "smallint", "TINYINT UNSIGNED": "smallint", "SMALLINT": "smallint", "SMALLINT UNSIGNED": "integer",
    "MEDIUMINT": "integer", "MEDIUMINT UNSIGNED": "integer", "INT": "integer", "INT UNSIGNED": "bigint", "BIGINT": "bigint",
    "BIGINT UNSIGNED": "numeric(20)", "YEAR": "integer", "FLOAT": "real", "DOUBLE": "double precision", "DECIMAL": "numeric",
    "DATE": "date", "DATETIME": "timestamp", "TIMESTAMP": "timestamp with time zone", "JSON": "json",
    **dict.fromkeys(("BINARY", "VARBINARY", "TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB", "GEOMETRY"), "bytea"),
}  # fmt: skip
_WITH_LENGTH: Final = {"varchar": "varchar", "bpchar": "char", "VARCHAR": "varchar", "CHAR": "char"}


def create_table(schema: TableSchema) -> str:
    """Return the statement, with a semicolon."""
    lines = [f"    {_quote(column.name)} {_type(column)}{_constraint(column, schema)}" for column in schema.columns]
    if schema.key:
        lines.append(f"    primary key ({', '.join(map(_quote, schema.key))})")
    return f"create table {_quote(schema.schema)}.{_quote(schema.table)} (\n" + ",\n".join(lines) + "\n);"


def _type(column: Column) -> str:
    name = column.type_name
    if column.policy is not None:
        return "text"
    is_array = name.startswith("_")
    name = name.removeprefix("_")
    if name in _WITH_LENGTH:
        sql = "text" if column.length is None else f"{_WITH_LENGTH[name]}({column.length})"
    else:
        sql = _TYPES.get(name, "text")
        if sql == "numeric" and column.length is not None:
            sql = f"numeric({column.length}, {column.scale or 0})"
    return f"{sql}[]" if is_array else sql


def _constraint(column: Column, schema: TableSchema) -> str:
    return " not null" if column.name in schema.key else ""


def _quote(name: str) -> str:
    doubled = name.replace('"', '""')
    return f'"{doubled}"'
