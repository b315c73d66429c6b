"""What values of each column are in Avro: what Confluent's and Apicurio's AvroData make of the column's type in Kafka Connect.

So there is no second list of forms (headrace/schemas/connect_types.py has the one), and a reader finds what Debezium's connector
would have written through an Avro converter.
"""

from collections.abc import Mapping
from typing import Any, Final

from headrace.schema import Column
from headrace.schemas.connect_types import DECIMAL
from headrace.schemas.connect_types import type_of as connect_type

Schema = dict[str, Any]

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


def type_of(column: Column) -> object:
    """Return the Avro type of a column's values; text where the records have text."""
    if column.type_name == "BIGINT UNSIGNED" and column.policy is None and column.form is None:
        # For readers that make JSON of it again, where a decimal in the form of Debezium is base64.
        return _decimal({"scale": "0", "connect.decimal.precision": str(_UNSIGNED_DIGITS)}) | {
            "headrace.json": "number"
        }
    return _of_connect(connect_type(column))


def _of_connect(kind: Mapping[str, Any]) -> object:
    base = kind["type"]
    if base in _WITH_PARTS:
        return _WITH_PARTS[base](kind)
    if "name" not in kind:
        return _PLAIN[base]
    if kind["name"] == DECIMAL:
        return _decimal(kind["parameters"])
    made: Schema = {"type": _PLAIN[base], "connect.version": kind["version"], "connect.name": kind["name"]}
    if "parameters" in kind:
        made["connect.parameters"] = kind["parameters"]
    if kind["name"] in _LOGICAL:
        made["logicalType"] = _LOGICAL[kind["name"]]
    return made


def _member(kind: Mapping[str, Any]) -> object:
    """Return the type of what an array or a map holds."""
    made = _of_connect(kind)
    return optional(made) if kind["optional"] else made


def _record(kind: Mapping[str, Any]) -> Schema:
    namespace, _, name = kind["name"].rpartition(".")
    fields = [
        {"name": each["field"], "type": _member(each)} | ({"default": None} if each["optional"] else {})
        for each in kind["fields"]
    ]
    made: Schema = {"type": "record", "name": name, "namespace": namespace, "fields": fields}
    return made | {"connect.version": kind["version"], "connect.name": kind["name"]}


def _decimal(parameters: Mapping[str, str]) -> Schema:
    precision = int(parameters.get("connect.decimal.precision", _DEFAULT_PRECISION))
    made: Schema = {"type": "bytes", "scale": int(parameters["scale"]), "precision": precision}
    made["connect.parameters"] = dict(parameters)
    return made | {"connect.version": 1, "connect.name": DECIMAL, "logicalType": "decimal"}


def _array(kind: Mapping[str, Any]) -> Schema:
    return {"type": "array", "items": _member(kind["items"])}


def _map(kind: Mapping[str, Any]) -> Schema:
    return {"type": "map", "values": _member(kind["values"])}


_WITH_PARTS: Final = {"array": _array, "map": _map, "struct": _record}
