"""What values of each column are in Kafka Connect, by the column's form or its type, and in Avro: the one table of forms.

In Avro they are what Confluent's and Apicurio's AvroData make of the column's type in Kafka Connect: so there is no second list
of forms, and a reader finds what Debezium's connector would have written through an Avro converter. The place of a record in
Avro is found by its bytes alone, at its end.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from headrace.errors import CorruptInput
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


def connect_type_of(column: Column) -> Schema:
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


NULL: Final = "null"
#: Types without parts, by Connect's names.
_PLAIN: Final[dict[str, object]] = {
    "int16": {"type": "int", "connect.type": "int16"}, "int32": "int", "int64": "long", "float": "float", "double": "double",
    "boolean": "boolean", "bytes": "bytes", "string": "string",
}  # fmt: skip
#: Connect's own names that are logical types of Avro too.
_LOGICAL: Final = {
    "org.apache.kafka.connect.data.Date": "date",
    "org.apache.kafka.connect.data.Time": "time-millis",
    "org.apache.kafka.connect.data.Timestamp": "timestamp-millis",
}
_UNSIGNED_DIGITS: Final = 20
#: AvroData's, of a decimal that declares none.
_DEFAULT_PRECISION: Final = 64


def optional(kind: object) -> list[object]:
    """Return the union of null and a type."""
    return [NULL, kind]


def avro_type_of(column: Column) -> object:
    """Return the Avro type of a column's values; text where the records have text."""
    if column.type_name == "BIGINT UNSIGNED" and column.policy is None and column.form is None:
        # For readers that make JSON of it again, where a decimal in the form of Debezium is base64.
        return _decimal({"scale": "0", "connect.decimal.precision": str(_UNSIGNED_DIGITS)}) | {
            "headrace.json": "number"
        }
    return _of_connect(connect_type_of(column))


def _of_connect(kind: Mapping[str, Any]) -> object:
    base = kind["type"]
    if base in _WITH_PARTS:
        return _WITH_PARTS[base](kind)
    if "name" not in kind:
        return _PLAIN[base]
    if kind["name"] == DECIMAL:
        return _decimal(kind["parameters"])
    schema: Schema = {"type": _PLAIN[base], "connect.version": kind["version"], "connect.name": kind["name"]}
    if "parameters" in kind:
        schema["connect.parameters"] = kind["parameters"]
    if kind["name"] in _LOGICAL:
        schema["logicalType"] = _LOGICAL[kind["name"]]
    return schema


def _member(kind: Mapping[str, Any]) -> object:
    """Return the type of what an array or a map holds."""
    schema = _of_connect(kind)
    return optional(schema) if kind["optional"] else schema


def _record(kind: Mapping[str, Any]) -> Schema:
    namespace, _, name = kind["name"].rpartition(".")
    fields = [
        {"name": each["field"], "type": _member(each)} | ({"default": None} if each["optional"] else {})
        for each in kind["fields"]
    ]
    schema: Schema = {"type": "record", "name": name, "namespace": namespace, "fields": fields}
    return schema | {"connect.version": kind["version"], "connect.name": kind["name"]}


def _decimal(parameters: Mapping[str, str]) -> Schema:
    precision = int(parameters.get("connect.decimal.precision", _DEFAULT_PRECISION))
    schema: Schema = {"type": "bytes", "scale": int(parameters["scale"]), "precision": precision}
    schema["connect.parameters"] = dict(parameters)
    return schema | {"connect.version": 1, "connect.name": DECIMAL, "logicalType": "decimal"}


def _array(kind: Mapping[str, Any]) -> Schema:
    return {"type": "array", "items": _member(kind["items"])}


def _map(kind: Mapping[str, Any]) -> Schema:
    return {"type": "map", "values": _member(kind["values"])}


_WITH_PARTS: Final = {"array": _array, "map": _map, "struct": _record}


#: What a record in Avro begins with; the id of its schema follows, in four bytes.
MARK: Final = b"\0"
_HEAD = 5


class Origin(NamedTuple):
    """What the envelope names."""

    op: str
    #: The source, `region/name`.
    name: str
    schema: str
    table: str
    position: str


class _Reader:
    def __init__(self, data: bytes, at: int) -> None:
        self._data, self._at = data, at

    def long(self) -> int:
        number = shift = 0
        while True:
            byte = self._data[self._at]
            self._at += 1
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return number >> 1 ^ -(number & 1)

    def text(self) -> str:
        length = self.long()
        self._at += length
        if length < 0 or self._at > len(self._data):
            raise IndexError("a text ends behind the record")
        return self._data[self._at - length : self._at].decode()

    def optional_long(self) -> None:
        if self.long():
            self.long()

    def optional_text(self) -> str:
        return self.text() if self.long() else ""


def read_origin(value: bytes) -> Origin:
    """Return where a record comes from; raise CorruptInput for what is none."""
    try:
        reader = _Reader(value, _HEAD)
        op = reader.text()
        for _ in ("ts_ms", "ts_us", "ts_ns"):
            reader.optional_long()
        if reader.long():
            reader.text()
            reader.long()
            reader.optional_long()
        if reader.long():
            while count := reader.long():
                for _ in range(count):
                    reader.text()
        if reader.long():
            reader.long()
            reader.text()
        _version, _connector, name = reader.text(), reader.text(), reader.text()
        reader.long()
        reader.optional_long()
        reader.optional_long()
        if not reader.long():
            reader.text()
        reader.text()
        return Origin(op, name, reader.optional_text(), reader.optional_text(), reader.text())
    except (IndexError, ValueError) as error:
        raise CorruptInput("a record in Avro is not of a Headrace envelope") from error
