"""What values of each column are in Kafka Connect, by the column's form or its type: the one table of forms, in Connect's JSON.

The schemas for Connect (connect.py), in Avro (avro_types.py) and in JSON Schema (json_schema.py) are made of it.
"""

from typing import Any, Final

from headrace.schema import Column

Schema = dict[str, Any]

_KAFKA: Final = "org.apache.kafka.connect.data."
_DATA: Final = "io.debezium.data."
_TIME: Final = "io.debezium.time."
_TEXT: Final[Schema] = {"type": "string"}
DECIMAL: Final = f"{_KAFKA}Decimal"
#: Debezium gives money two digits.
_MONEY_SCALE: Final = 2
#: The length that it gives a `varbit` without one.
_ANY_LENGTH: Final = (1 << 31) - 1


def _named(kind: str, name: str, **more: object) -> Schema:
    return {"type": kind, "name": name, "version": 1} | more


_POINT_FIELDS: Final = [
    {"field": "x", "type": "double", "optional": False},
    {"field": "y", "type": "double", "optional": False},
    {"field": "wkb", "type": "bytes", "optional": True},
    {"field": "srid", "type": "int32", "optional": True},
]
_GEOMETRY_FIELDS: Final = [
    {"field": "wkb", "type": "bytes", "optional": False},
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
    f"{_DATA}geometry.Geometry": _named("struct", f"{_DATA}geometry.Geometry", fields=_GEOMETRY_FIELDS),
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
    **dict.fromkeys(("uuid", "UUID"), _named("string", f"{_DATA}Uuid")),
    "xml": _named("string", f"{_DATA}Xml"),
}


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
    if form == DECIMAL:
        scale = _MONEY_SCALE if column.type_name == "money" else column.scale or 0
        parameters = {"scale": str(scale)}
        if column.length is not None:
            parameters["connect.decimal.precision"] = str(column.length)
        return _named("bytes", form, parameters=parameters)
    if form == f"{_DATA}Bits":
        length = _ANY_LENGTH if column.length is None else column.length
        return _named("bytes", form, parameters={"length": str(length)})
    if form in _FORMS:
        return _FORMS[form]
    if column.enum_values is not None:
        return _named("string", form, parameters={"allowed": ",".join(column.enum_values)})
    # Texts with a name, as `io.debezium.time.ZonedTimestamp`.
    return _named("string", form)
