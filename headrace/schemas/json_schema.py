"""A table's records as JSON Schema, draft 2020-12: for validators, code generators and readers that take one.

What the records have as text is a text here: the schema is of the JSON, not of the source's type. Fields that it does not name
are allowed, as a consumer has to allow them.
"""

from typing import Any, Final

from headrace.schema import Column, TableSchema
from headrace.schemas import connect_types

Schema = dict[str, Any]

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
    made = _object(fields, ["op", "before", "after", "source"])
    return {"$schema": _DIALECT, "title": f"{schema.schema}.{schema.table}"} | made | {"$defs": {"row": row}}


def of_column(column: Column, *, required: bool) -> Schema:
    """Return the schema of a column's values."""
    made = _of_type(connect_types.type_of(column))
    return made if required else _nullable(made)


def _of_type(kind: connect_types.Schema) -> Schema:
    name = kind["type"]
    if name == "array":
        return {"type": "array", "items": _nullable(_of_type(kind["items"]))}
    if name in _WHOLE:
        return {"type": "integer", "minimum": -_WHOLE[name], "maximum": _WHOLE[name] - 1}
    return dict(_SIMPLE[name])


def _nullable(made: Schema) -> Schema:
    kinds = made["type"] if isinstance(made["type"], list) else [made["type"]]
    return made | {"type": [*kinds, "null"]}


def _object(properties: dict[str, Schema], required: list[str]) -> Schema:
    return {"type": "object", "properties": properties, "required": required}
