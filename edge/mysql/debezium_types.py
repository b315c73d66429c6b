"""A column in the form that `[records] decimal`, `time`, `binary` and `types` give it: Debezium's, from the JSON that it has
otherwise.

TIMESTAMP is text in UTC in each of Debezium's modes, as it is here. What is no day of the calendar, such as a date with a month
of zero, is null, and the first of 1970 in a column that is NOT NULL, as Debezium's connectors have zero dates. In a column of a
key it stops the source: another row may have that day.
"""

from base64 import b64decode, b64encode, urlsafe_b64encode
from collections.abc import Callable
from datetime import date
from functools import partial
from typing import Final

from edge.mysql.column_codec import ColumnCodec
from edge.records.column_policy import check_keys_differ, never_null, within
from headrace.configuration.edge import Records

_CONNECT, _TIME_NAMES, _DATA = "org.apache.kafka.connect.data.", "io.debezium.time.", "io.debezium.data."
#: Types that have a name in Debezium, and the values that they have otherwise.
_NAMED: Final = {
    "YEAR": f"{_TIME_NAMES}Year", "ENUM": f"{_DATA}Enum", "SET": f"{_DATA}EnumSet", "JSON": f"{_DATA}Json",
}  # fmt: skip
_EPOCH_MOMENT: Final = b'"1970-01-01T00:00:00Z"'
_SRID_BYTES: Final = 4
_BYTES: Final = frozenset({"BINARY", "VARBINARY", "TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB"})
_EPOCH: Final = date(1970, 1, 1).toordinal()
_DAY_MICROSECONDS: Final = 86_400_000_000
#: Digits of a second that are a millisecond's or more.
_MILLISECONDS: Final = 3
_DATE_LENGTH: Final = 10
#: Units of forms, in nanoseconds.
_MILLISECOND, _MICROSECOND, _NANOSECOND = 1_000_000, 1000, 1

Write = Callable[[bytes], bytes]


def with_debezium_form(
    codec: ColumnCodec, records: Records, column: str, *, nullable: bool, in_key: bool
) -> ColumnCodec:
    """Return the codec of a column, `database.table.column`, whose values are written as `records` has it.

    Raises ConfigurationError for a column of a key whose values `records` rounds.
    """
    form: tuple[str, Write | None] | None
    if codec.type_name == "DECIMAL":
        form = _decimal(records)
    elif codec.type_name in {"DATE", "DATETIME", "TIME"}:
        form = _temporal(codec, records, column, zero=b"null" if nullable or in_key else b"0")
    elif codec.type_name in _BYTES:
        form = _binary(records)
    else:
        form = _other(codec, nullable=nullable or in_key) if records.types == "debezium" else None
    if form is None:
        return codec
    name, write = form
    if write is None:
        return codec._replace(form_name=name)
    if in_key:
        table, _, last = column.rpartition(".")
        check_keys_differ(table, [(last, _rounded_by(codec, records))])
        write = never_null(write, column)
    line = f"{{v}} = write_{{v}}({codec.form.encode()!r} % ({', '.join(codec.arguments)},))"
    scope = codec.scope | {"write_{v}": write}
    wire = codec.wire._replace(form="")
    return codec._replace(
        lines=(*codec.lines, line), form="%b", arguments=("{v}",), scope=scope, form_name=name, wire=wire
    )


def _decimal(records: Records) -> tuple[str, Write] | None:
    if records.decimal == "precise":
        return f"{_CONNECT}Decimal", _unscale
    return ("double", _double) if records.decimal == "double" else None


def _rounded_by(codec: ColumnCodec, records: Records) -> str | None:
    """Return the setting by which values that differ are written the same; None where none is."""
    if codec.type_name == "DECIMAL" and records.decimal == "double":
        return 'decimal = "double"'
    has_time = codec.type_name in {"DATETIME", "TIME"}
    if has_time and records.time == "connect" and (codec.length or 0) > _MILLISECONDS:
        return 'time = "connect"'
    return None


def _temporal(codec: ColumnCodec, records: Records, column: str, *, zero: bytes) -> tuple[str, Write] | None:
    mode, kind = records.time, codec.type_name
    if mode == "iso":
        return None
    prefix = _CONNECT if mode == "connect" else _TIME_NAMES
    if kind == "DATE":
        return f"{prefix}Date", partial(_date, zero)
    is_time = kind == "TIME"
    name = "Time" if is_time else "Timestamp"
    if mode == "nanoseconds":
        unit, name = _NANOSECOND, f"Nano{name}"
    elif mode == "connect" or (mode != "microseconds" and not is_time and (codec.length or 0) <= _MILLISECONDS):
        unit = _MILLISECOND
    else:
        unit, name = _MICROSECOND, f"Micro{name}"
    write: Write = partial(_time, unit) if is_time else partial(_datetime, unit, zero)
    if is_time and mode == "connect" and records.format == "avro":
        write = within(32, write, column)
    elif unit == _NANOSECOND and not is_time:
        write = within(64, write, column)
    return f"{prefix}{name}", write


def _binary(records: Records) -> tuple[str, Write] | None:
    if records.binary == "hex":
        return "hex", lambda value: b'"%b"' % b64decode(value).hex().encode()
    if records.binary == "base64-url-safe":
        return "base64-url-safe", lambda value: b'"%b"' % urlsafe_b64encode(b64decode(value))
    return None


def _other(codec: ColumnCodec, *, nullable: bool) -> tuple[str, Write | None] | None:
    kind, length = codec.type_name, codec.length or 0
    if kind == "TIMESTAMP":
        return f"{_TIME_NAMES}ZonedTimestamp", partial(_add_zone, b"null" if nullable else _EPOCH_MOMENT)
    if kind == "BIT":
        return ("boolean", _bit) if length == 1 else (f"{_DATA}Bits", partial(_bits, (length + 7) // 8))
    if kind == "GEOMETRY":
        return f"{_DATA}geometry.Geometry", _geometry
    return (_NAMED[kind], None) if kind in _NAMED else None


def _add_zone(zero: bytes, value: bytes) -> bytes:
    """Return a TIMESTAMP, which is in UTC; zero is no moment."""
    return value if value.endswith(b'Z"') else zero


def _bit(value: bytes) -> bytes:
    return b"true" if value == b'"1"' else b"false"


def _bits(size: int, value: bytes) -> bytes:
    """Return bits, given as digits, in so many bytes, the lowest first."""
    return b'"%b"' % b64encode(int(value[1:-1], 2).to_bytes(size, "little"))


def _geometry(value: bytes) -> bytes:
    """Return what the server has, SRID and WKB, as a structure; an SRID of 0 is none."""
    data = b64decode(value)
    srid = int.from_bytes(data[:_SRID_BYTES], "little")
    return b'{"wkb":"%b","srid":%b}' % (b64encode(data[_SRID_BYTES:]), b"%d" % srid if srid else b"null")


def _unscale(value: bytes) -> bytes:
    """Return the number without its point in base64: big-endian, two's complement, in as few bytes as Java has."""
    whole = int(value[1:-1].replace(b".", b""))
    size = (whole if whole >= 0 else ~whole).bit_length() // 8 + 1
    return b'"%b"' % b64encode(whole.to_bytes(size, "big", signed=True))


def _double(value: bytes) -> bytes:
    return repr(float(value[1:-1])).encode()


def _date(zero: bytes, value: bytes) -> bytes:
    """Return days since 1970."""
    days = _days(value[1:-1])
    return zero if days is None else b"%d" % days


def _datetime(nanoseconds: int, zero: bytes, value: bytes) -> bytes:
    """Return the time since 1970, in units of so many nanoseconds, rounded down."""
    text = value[1:-1]
    days = _days(text[:_DATE_LENGTH])
    if days is None:
        return zero
    return b"%d" % ((days * _DAY_MICROSECONDS + _micros(text[_DATE_LENGTH + 1 :])) * 1000 // nanoseconds)


def _time(nanoseconds: int, value: bytes) -> bytes:
    """Return a TIME, which may be negative or longer than a day, in units of so many nanoseconds."""
    text = value[1:-1]
    is_negative = text.startswith(b"-")
    whole = _micros(text.removeprefix(b"-")) * 1000 // nanoseconds
    return b"%d" % (-whole if is_negative else whole)


def _days(text: bytes) -> int | None:
    """Return days since 1970, None for what is no day of the calendar, or is null by the edge's setting."""
    if len(text) != _DATE_LENGTH:
        return None
    year, month, day = int(text[:4]), int(text[5:7]), int(text[8:])
    try:
        return date(year, month, day).toordinal() - _EPOCH
    except ValueError:
        # A part is zero, or the day is one that ALLOW_INVALID_DATES admits, such as February 31.
        return None


def _micros(text: bytes) -> int:
    hours, minutes, seconds = text.split(b":")
    whole, _, fraction = seconds.partition(b".")
    return ((int(hours) * 60 + int(minutes)) * 60 + int(whole)) * 1_000_000 + int(fraction.ljust(6, b"0"))
