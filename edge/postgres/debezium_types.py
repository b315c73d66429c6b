"""Which form a column has by Debezium's options (`[records] decimal`, `time`, `binary`, `interval`, `hstore`, `types`).

A form is a function from the database's text to JSON, and Debezium's name for it, which is in the schema record: by that a reader
knows how to read the column. A form with a name alone is written as any other text. Used when a relation is announced; the
functions run for each value.
"""

import hashlib
import uuid
from base64 import b64encode
from collections.abc import Callable
from typing import Final, NamedTuple

from edge.postgres import debezium_temporal as temporal
from edge.postgres import values
from edge.postgres.values import NAMES, OIDS, array
from headrace.configuration.edge import Records

PLACEHOLDER: Final = b"__debezium_unavailable_value"
_TEXT: Final = b'"%b"' % PLACEHOLDER
_BYTES: Final = b'"%b"' % b64encode(PLACEHOLDER)
_NUMBERS: Final = b"[%b]" % b",".join(b"%d" % byte for byte in PLACEHOLDER)
_UUID: Final = (
    b'"%b"' % str(uuid.UUID(bytes=hashlib.md5(PLACEHOLDER, usedforsecurity=False).digest(), version=3)).encode()
)
_EPOCH: Final = b'"1970-01-01T00:00:00Z"'
#: The function for each type by `isostring`, and its empty value.
_ISO: Final = {
    "date": (temporal.iso_date, b'"1970-01-01Z"'),
    "time": (temporal.iso_time, b'"00:00:00Z"'),
    "timestamp": (temporal.iso_timestamp, _EPOCH),
}
#: Digits of a second that are a millisecond's or more, and those of a type without a declared precision.
_MILLISECONDS, _MOST_DIGITS = 3, 6

_TYPES: Final = 'types = "debezium"'

_KAFKA, _DATA, _TIME_NAMES = "org.apache.kafka.connect.data.", "io.debezium.data.", "io.debezium.time."
#: Types with a name of their own and ordinary text.
_NAMED: Final = {
    "uuid": f"{_DATA}Uuid", "json": f"{_DATA}Json", "jsonb": f"{_DATA}Json", "xml": f"{_DATA}Xml",
    "tsvector": f"{_DATA}Tsvector", "ltree": f"{_DATA}Ltree",
}  # fmt: skip
#: What the elements of arrays are in Kafka Connect, where they have no form.
_ELEMENTS: Final = {
    "int2": "int16", "int4": "int32", "int8": "int64", "oid": "int64", "float4": "float32", "float8": "float64",
    "bool": "boolean", "bytea": "bytes",
    **dict.fromkeys(
        (
            "char", "varchar", "text", "bpchar", "inet", "cidr", "macaddr", "macaddr8", "tsrange", "tstzrange", "daterange",
            "int4range", "numrange", "int8range", "citext",
        ),
        "string",
    ),
}  # fmt: skip
#: Arrays with a placeholder of their own in place of what the log does not carry; others are null then.
_ARRAY_PLACEHOLDERS: Final = {
    **dict.fromkeys(("text", "varchar", "bpchar", "json", "jsonb"), b"[%b]" % _TEXT),
    **dict.fromkeys(("int4", "date", "int8"), _NUMBERS),
    "bytea": b"[%b]" % _BYTES,
    "uuid": b"[%b]" % _UUID,
}


class DebeziumType(NamedTuple):
    """How values of a column are written."""

    #: As Debezium names it in its schemas, or its type in Kafka Connect.
    name: str
    #: None where they are written as those of any column of the type.
    convert: Callable[[bytes], bytes] | None
    #: What a row has for a value that the log does not carry, and for a NOT NULL column of an old row that it does not carry.
    placeholder: bytes = _TEXT
    empty: bytes = b'""'
    #: The setting of `[records]` by which values that differ are written the same; None where none is.
    rounded_by: str | None = None
    #: Whether there are values that it writes as null.
    has_null: bool = False
    #: How one element of an array is written; None for what is no array.
    element: Callable[[bytes], bytes] | None = None


def debezium_type(type_oid: int, modifier: int, records: Records, type_name: str = "") -> DebeziumType | None:
    """Return the form of a column that has one; None for one that is written in the ordinary form, and has no name of its own.

    `type_name` is that of a type that the log names: an extension's.
    """
    name = NAMES.get(type_oid, type_name)
    if name.startswith("_"):
        return _array(name[1:], modifier, records)
    return _scalar(name, modifier, records)


def _scalar(name: str, modifier: int, records: Records) -> DebeziumType | None:
    if name == "numeric":
        return _decimal(modifier, records)
    if name in {"date", "time", "timestamp"}:
        return _temporal(name, modifier, records)
    if name == "interval":
        return _interval(records)
    if name == "hstore":
        return _hstore(records)
    if name == "bytea":
        return _binary(records)
    return _other(name, modifier, records) if records.types == "debezium" else None


def _decimal(modifier: int, records: Records) -> DebeziumType | None:
    if records.decimal == "double":
        return DebeziumType("double", values.double, values.NULL, b"0.0", 'decimal = "double"')
    if records.decimal != "precise":
        return None
    if modifier < 0:
        variable = values.variable_scale_decimal
        return DebeziumType(f"{_DATA}VariableScaleDecimal", variable, values.NULL, variable(b"0"), has_null=True)
    # The scale is a signed number of 11 bits.
    write = values.decimal(((modifier - 4) & 0x7FF ^ 0x400) - 0x400)
    return DebeziumType(f"{_KAFKA}Decimal", write, values.NULL, write(b"0"), has_null=True)


def _temporal(name: str, modifier: int, records: Records) -> DebeziumType | None:
    mode, title = records.time, name.title()
    if mode == "iso":
        return None
    if mode == "isostring":
        write, empty = _ISO[name]
        # The end of a day, 24:00:00, becomes its beginning.
        rounded_by = 'time = "isostring"' if name == "time" else None
        return DebeziumType(f"{_TIME_NAMES}Iso{title}", write, empty=empty, rounded_by=rounded_by)
    prefix = _KAFKA if mode == "connect" else _TIME_NAMES
    if name == "date":
        return DebeziumType(f"{prefix}Date", temporal.days, empty=b"0")
    if mode == "nanoseconds":
        return DebeziumType(f"{prefix}Nano{title}", temporal.nanoseconds, empty=b"0")
    is_exact = 0 <= modifier <= _MILLISECONDS
    is_adaptive = mode == "adaptive" or (mode == "adaptive_time_microseconds" and name == "timestamp")
    if mode == "connect" or (is_adaptive and is_exact):
        rounded_by = None if is_exact else 'time = "connect"'
        return DebeziumType(f"{prefix}{title}", temporal.milliseconds, empty=b"0", rounded_by=rounded_by)
    return DebeziumType(f"{prefix}Micro{title}", temporal.microseconds, empty=b"0")


def _interval(records: Records) -> DebeziumType | None:
    if records.interval == "numeric":
        setting = 'interval = "numeric"'
        return DebeziumType(f"{_TIME_NAMES}MicroDuration", temporal.micro_duration, empty=b"0", rounded_by=setting)
    if records.interval == "string":
        empty = b'"P0Y0M0DT0H0M0S"'
        return DebeziumType(f"{_TIME_NAMES}Interval", temporal.iso_interval, empty=empty, has_null=True)
    return None


def _hstore(records: Records) -> DebeziumType | None:
    name = b"{%b:%b}" % (_TEXT, _TEXT)
    if records.hstore == "json":
        return DebeziumType(f"{_DATA}Json", values.hstore_json, values.text(name), b'"{}"')
    if records.hstore == "map":
        return DebeziumType("map", values.hstore_map, name, b"{}")
    return None


def _binary(records: Records) -> DebeziumType | None:
    mode = records.binary or ""
    if mode == "base64":
        return None
    write = values.binary_as(mode)
    # Debezium has the placeholder as it is in a text of hexadecimal digits.
    return DebeziumType(mode, write, _TEXT if mode == "hex" else write(b"\\x" + PLACEHOLDER.hex().encode()))


def _other(name: str, modifier: int, records: Records) -> DebeziumType | None:
    if name == "timestamptz":
        digits = modifier if 0 <= modifier <= _MOST_DIGITS else _MOST_DIGITS
        return DebeziumType(f"{_TIME_NAMES}ZonedTimestamp", temporal.zoned_timestamp(digits), empty=_EPOCH)
    if name == "timetz":
        return DebeziumType(f"{_TIME_NAMES}ZonedTime", temporal.zoned_time, empty=b'"00:00:00Z"', rounded_by=_TYPES)
    if name == "money":
        mode = records.decimal or ""
        amount = values.money(mode)
        form = {"precise": f"{_KAFKA}Decimal", "double": "double"}.get(mode, "string")
        return DebeziumType(form, amount, values.NULL, amount(b"0.00"))
    if name in {"bit", "varbit"}:
        is_one = modifier == 1
        form, convert = ("boolean", values.bit) if is_one else (f"{_DATA}Bits", values.bits)
        empty = b"false" if is_one else b'""'
        # The bits of a varbit may begin with zeros, and be none.
        return DebeziumType(form, convert, values.NULL, empty, _TYPES if name == "varbit" else None)
    if name == "point":
        convert = values.point
        return DebeziumType(f"{_DATA}geometry.Point", convert, values.NULL, convert(b"(0,0)"))
    return DebeziumType(_NAMED[name], None) if name in _NAMED else None


def _array(name: str, modifier: int, records: Records) -> DebeziumType | None:
    """Return the form of an array; None where Debezium has none for its elements."""
    if records.types != "debezium" or name in {"money", "interval", "bit", "varbit", "xml", "point"}:
        return None
    form = _scalar(name, modifier, records)
    convert = values.converter(OIDS.get(name, OIDS["text"]))
    if form is not None and form.convert is not None:
        convert = form.convert
    element = form.name if form is not None else _ELEMENTS.get(name, "string")
    write = array(convert)
    if name not in OIDS:
        # Of a type that the log names it is not certain that it is an array.
        write = _or_text(write)
    elif form is None and name not in _ELEMENTS and name not in {"numeric", "date", "time", "timestamp"}:
        return None
    placeholder = _ARRAY_PLACEHOLDERS.get(name, values.NULL)
    if placeholder == _NUMBERS and element.startswith(f"{_TIME_NAMES}Iso"):
        placeholder = b"[%b]" % _TEXT
    rounded_by = form.rounded_by if form is not None else None
    return DebeziumType(f"array<{element}>", write, placeholder, b"[]", rounded_by, element=convert)


def _or_text(write: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    """Return the conversion that leaves what another one refuses as text."""

    def convert(text: bytes) -> bytes:
        try:
            return write(text)
        except ValueError:
            return values.text(text)

    return convert
