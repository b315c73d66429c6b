"""Debezium's own forms of numbers and times, for consumers that expect them instead of text (`[records] decimal` and `time`).

A form is a function from the database's text to JSON, and Debezium's name for it, which the schema record tells. What a form
has no value for stays text: `NaN` and infinities. Asked for when a relation is announced; the functions run for each value.
"""

import re
from base64 import b64encode
from collections.abc import Callable
from decimal import Context, Decimal
from typing import Final, NamedTuple

from edge.postgres.types import OIDS
from headrace.configuration.records import Records

_DATE, _TIME, _TIMESTAMP, _NUMERIC = OIDS["date"], OIDS["time"], OIDS["timestamp"], OIDS["numeric"]
_NO_NUMBER: Final = frozenset({b"NaN", b"Infinity", b"-Infinity", b"infinity", b"-infinity"})
_MOMENT = re.compile(rb"(?:(\d+)-(\d\d)-(\d\d))?(?:(?:^| )(\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?)?( BC)?")
#: PostgreSQL's numeric has up to 147,455 digits.
_EXACT = Context(prec=200_000)
#: Digits of a second that are a millisecond's or more.
_MILLISECONDS = 3
_DAY_MICROSECONDS = 86_400_000_000


class DebeziumType(NamedTuple):
    """How values of a column are written."""

    #: As Debezium names it in its schemas.
    name: str
    convert: Callable[[bytes], bytes]


def debezium_type(type_oid: int, modifier: int, records: Records) -> DebeziumType | None:
    """Return the form of a column that is not written in the ordinary way, None for one that is."""
    if type_oid == _NUMERIC and records.decimal != "string":
        return _decimal(modifier, precise=records.decimal == "precise")
    if records.time == "iso" or type_oid not in {_DATE, _TIME, _TIMESTAMP}:
        return None
    connect = records.time == "connect"
    if type_oid == _DATE:
        return DebeziumType(
            "org.apache.kafka.connect.data.Date" if connect else "io.debezium.time.Date", _written(_days)
        )
    name = "Time" if type_oid == _TIME else "Timestamp"
    if connect:
        return DebeziumType(f"org.apache.kafka.connect.data.{name}", _written(_milliseconds))
    if 0 <= modifier <= _MILLISECONDS:
        return DebeziumType(f"io.debezium.time.{name}", _written(_milliseconds))
    return DebeziumType(f"io.debezium.time.Micro{name}", _written(_microseconds))


def _decimal(modifier: int, *, precise: bool) -> DebeziumType:
    if not precise:
        return DebeziumType("double", _written(lambda text: repr(float(_number(text))).encode()))
    if modifier < 0:
        return DebeziumType("io.debezium.data.VariableScaleDecimal", _written(_variable))
    scale = ((modifier - 4) & 0x7FF ^ 0x400) - 0x400
    return DebeziumType(
        "org.apache.kafka.connect.data.Decimal", _written(lambda text: b'"%b"' % _unscaled(text, scale))
    )


def _written(write: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    """Return the conversion that leaves what is no number as text."""

    def convert(text: bytes) -> bytes:
        written = b'"%b"' % text if text in _NO_NUMBER else write(text)
        # Too large for a double.
        return b'"Infinity"' if written == b"inf" else b'"-Infinity"' if written == b"-inf" else written

    return convert


def _unscaled(text: bytes, scale: int) -> bytes:
    """Return base64 of the number times ten to the scale, big-endian, two's complement, in as few bytes as Java does."""
    number = int(_number(text).scaleb(scale, _EXACT))
    return b64encode(number.to_bytes((number if number >= 0 else ~number).bit_length() // 8 + 1, "big", signed=True))


def _variable(text: bytes) -> bytes:
    scale = len(text.partition(b".")[2])
    return b'{"scale":%d,"value":"%b"}' % (scale, _unscaled(text, scale))


def _number(text: bytes) -> Decimal:
    if not text.isascii() or text.strip(b"-0123456789.") != b"":
        raise ValueError("a numeric is no number")
    try:
        return Decimal(text.decode())
    except ArithmeticError as error:
        raise ValueError("a numeric is no number") from error


def _days(text: bytes) -> bytes:
    days, _ = _moment(text)
    return b"%d" % days


def _milliseconds(text: bytes) -> bytes:
    days, microseconds = _moment(text)
    return b"%d" % ((days * _DAY_MICROSECONDS + microseconds) // 1000)


def _microseconds(text: bytes) -> bytes:
    days, microseconds = _moment(text)
    return b"%d" % (days * _DAY_MICROSECONDS + microseconds)


def _moment(text: bytes) -> tuple[int, int]:
    """Return days since 1970 (0 for a time of day) and microseconds in the day."""
    match = _MOMENT.fullmatch(text)
    if match is None or not text:
        raise ValueError("a date or time is none")
    year, month, day, hour, minute, second, fraction, before_christ = match.groups()
    days = 0
    if year is not None:
        days = _day_number(1 - int(year) if before_christ else int(year), int(month), int(day))
    seconds = 0 if hour is None else int(hour) * 3600 + int(minute) * 60 + int(second)
    return days, seconds * 1_000_000 + int((fraction or b"").ljust(6, b"0"))


def _day_number(year: int, month: int, day: int) -> int:
    """Return days since 1970-01-01 in the Gregorian calendar, extended to all years; year 0 is 1 BC."""
    # Years that begin in March have their leap day last.
    year -= month <= 2
    era, year_of_era = divmod(year, 400)
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * 146_097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - 719_468
