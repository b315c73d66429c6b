"""A table's records as Kafka Connect's schemas in JSON: what JsonConverter takes as `schema.content`, since Kafka 4.2.

Names are Debezium's, so that its sinks and transforms take the records for its own. Every column but the key's may be null: a
record may hold the key alone, and what the log does not carry is absent. JsonConverter passes over fields that a schema has not.
"""

from typing import Final

from headrace.schema import Column, TableSchema
from headrace.schemas import avro
from headrace.schemas.connect_types import Schema, type_of

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
