"""What values of each column are in Avro: what Confluent's and Apicurio's AvroData make of the column's type in Kafka Connect.

So there is no second list of forms (headrace/schemas/connect_types.py has the one), and a reader finds what Debezium's connector
would have written through an Avro converter. The place of a record in Avro is found by its bytes alone, at its end.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from headrace.errors import CorruptInput
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


def read(value: bytes) -> Origin:
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
