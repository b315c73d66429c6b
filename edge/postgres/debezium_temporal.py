"""Dates, times and intervals as Debezium writes them: one function a form, from the database's text to JSON.

Infinity has the numbers that Debezium's connector has for it. Raises ValueError for bytes that the server would not send.
"""

import re
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from typing import Final

_MOMENT = re.compile(rb"(?:(\d+)-(\d\d)-(\d\d))?(?:(?:^| )(\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?)?( BC)?")
_OFFSET = re.compile(rb"([+-])(\d\d)(?::(\d\d))?(?::(\d\d))?")
_INTERVAL = re.compile(
    rb"(?:([+-]?\d+) years? ?)?(?:([+-]?\d+) mons? ?)?(?:([+-]?\d+) days? ?)?(?:([+-]?)(\d+):(\d\d):(\d\d(?:\.\d{1,6})?))?"
)
#: Lengths of a date with a year of four digits, and of a timestamp without a fraction; the number of 1970's first day.
_DATE_LENGTH, _WHOLE_SECONDS, _EPOCH = 10, 19, 719_163
DAY_MICROSECONDS: Final = 86_400_000_000
#: Infinity in microseconds since 1970, as PostgreSQL's JDBC driver has it.
_INFINITY: Final = {b"infinity": 9_223_372_036_825_200_000, b"-infinity": -9_223_372_036_832_400_000}
_INFINITE_NANOSECONDS: Final = {b"infinity": (1 << 63) - 1, b"-infinity": -(1 << 63)}
#: A month in days, on average.
_MONTH: Final = 365.25 / 12.0


def days(text: bytes) -> bytes:
    """Return a date as days since 1970."""
    if len(text) == _DATE_LENGTH:
        return b"%d" % (date.fromisoformat(text.decode()).toordinal() - _EPOCH)
    return b"%d" % (_INFINITE_DAYS[text] if text in _INFINITE_DAYS else moment(text)[0])


def milliseconds(text: bytes) -> bytes:
    """Return a timestamp, or a time of day, in milliseconds."""
    return b"%d" % (_micros(text) // 1000)


def microseconds(text: bytes) -> bytes:
    """Return a timestamp, or a time of day, in microseconds."""
    return b"%d" % _micros(text)


def nanoseconds(text: bytes) -> bytes:
    """Return a timestamp, or a time of day, in nanoseconds."""
    if text in _INFINITE_NANOSECONDS:
        return b"%d" % _INFINITE_NANOSECONDS[text]
    return b"%d" % (_micros(text) * 1000)


def iso_date(text: bytes) -> bytes:
    """Return a date in ISO 8601 with a Z."""
    if text in _INFINITE_DAYS:
        return b'"%bZ"' % (b"-5877611-06-21" if text == b"infinity" else b"-5877611-06-22")
    return b'"%bZ"' % _iso_day(moment(text)[0])


def iso_time(text: bytes) -> bytes:
    """Return a time of day in ISO 8601 with a Z."""
    return b'"%bZ"' % _iso_clock(_micros(text) % DAY_MICROSECONDS)


def iso_timestamp(text: bytes) -> bytes:
    """Return a timestamp in ISO 8601 with a Z."""
    day, clock = divmod(_micros(text), DAY_MICROSECONDS)
    return b'"%bT%bZ"' % (_iso_day(day), _iso_clock(clock))


def zoned_timestamp(digits: int) -> Callable[[bytes], bytes]:
    """Return the function that writes a timestamptz with so many digits of a second; all that it has for 0."""
    none = b"." + b"0" * digits

    def convert(text: bytes) -> bytes:
        if text[10:11] == b" " and text[-3:] == b"+00" and text.isascii():
            # In UTC, as the edge's connections have it, and with a year of four digits.
            local = text[:10] + b"T" + text[11:-3]
            if digits:
                local = local.ljust(_WHOLE_SECONDS + 1 + digits, b"0") if len(local) > _WHOLE_SECONDS else local + none
            return b'"%bZ"' % local
        if text in _INFINITY:
            return b'"%b"' % text
        before_christ = text.endswith(b" BC")
        local, seconds = _without_offset(text.removesuffix(b" BC"))
        micros = _micros(local + b" BC" if before_christ else local) - seconds * 1_000_000
        day, clock = divmod(micros, DAY_MICROSECONDS)
        written = _iso_clock(clock)
        if digits:
            whole, _, fraction = written.partition(b".")
            written = b"%b.%b" % (whole, fraction.ljust(digits, b"0"))
        return b'"%bT%bZ"' % (_iso_day(day), written)

    return convert


def zoned_time(text: bytes) -> bytes:
    """Return a timetz in UTC, with a Z."""
    local, seconds = _without_offset(text)
    return b'"%bZ"' % _iso_clock((_micros(local) - seconds * 1_000_000) % DAY_MICROSECONDS)


def micro_duration(text: bytes) -> bytes:
    """Return an interval in microseconds, with months of the average length; null for an infinite one."""
    if text in _INFINITY:
        return b"null"
    years, months, day_count, hours, minutes, seconds = _interval(text)
    whole_days = (years * 12 + months) * _MONTH + day_count
    return b"%d" % int((((whole_days * 24 + hours) * 60 + minutes) * 60 + float(seconds)) * 1e6)


def iso_interval(text: bytes) -> bytes:
    """Return an interval in ISO 8601, every part named; null for an infinite one."""
    if text in _INFINITY:
        return b"null"
    years, months, day_count, hours, minutes, seconds = _interval(text)
    shown = f"{seconds.normalize():f}".encode() if seconds else b"0"
    return b'"P%dY%dM%dDT%dH%dM%bS"' % (years, months, day_count, hours, minutes, shown)


def moment(text: bytes) -> tuple[int, int]:
    """Return days since 1970 (0 for a time of day) and microseconds in the day."""
    match = _MOMENT.fullmatch(text)
    if match is None or not text:
        raise ValueError("a date or time is none")
    year, month, day, hour, minute, second, fraction, before_christ = match.groups()
    number = 0
    if year is not None:
        number = _day_number(1 - int(year) if before_christ else int(year), int(month), int(day))
    seconds = 0 if hour is None else int(hour) * 3600 + int(minute) * 60 + int(second)
    return number, seconds * 1_000_000 + int((fraction or b"").ljust(6, b"0"))


def _micros(text: bytes) -> int:
    if text[10:11] == b" " and text[-1:] != b"C":
        parsed_time = datetime.fromisoformat(text.decode())
        seconds = (parsed_time.hour * 60 + parsed_time.minute) * 60 + parsed_time.second
        return (parsed_time.toordinal() - _EPOCH) * DAY_MICROSECONDS + seconds * 1_000_000 + parsed_time.microsecond
    if text in _INFINITY:
        return _INFINITY[text]
    day, micros = moment(text)
    return day * DAY_MICROSECONDS + micros


def _without_offset(text: bytes) -> tuple[bytes, int]:
    """Return a text ahead of its offset, and that in seconds."""
    match = _OFFSET.search(text, text.find(b":"))
    if match is None or match.end() != len(text):
        raise ValueError("a time has no offset")
    hours, minutes, seconds = (int(part or 0) for part in match.groups()[1:])
    offset = hours * 3600 + minutes * 60 + seconds
    return text[: match.start()], -offset if match[1] == b"-" else offset


def _interval(text: bytes) -> tuple[int, int, int, int, int, Decimal]:
    """Return years, months, days, hours, minutes and seconds of an interval in the server's ordinary form."""
    match = _INTERVAL.fullmatch(text)
    if match is None or not text:
        raise ValueError("an interval is none")
    years, months, day_count, sign, hours, minutes, seconds = match.groups()
    factor = -1 if sign == b"-" else 1
    return (
        *(int(part or 0) for part in (years, months, day_count)),
        *(factor * int(part or 0) for part in (hours, minutes)),
        factor * Decimal((seconds or b"0").decode()),
    )  # type: ignore[return-value]


def _iso_day(day: int) -> bytes:
    year, month, day_of_month = _civil(day)
    sign = b"+" if year > 9999 else b"-" if year < 0 else b""
    return b"%b%04d-%02d-%02d" % (sign, abs(year), month, day_of_month)


def _iso_clock(micros: int) -> bytes:
    seconds, fraction = divmod(micros, 1_000_000)
    minutes, second = divmod(seconds, 60)
    digits = b".%b" % (b"%06d" % fraction).rstrip(b"0") if fraction else b""
    return b"%02d:%02d:%02d%b" % (*divmod(minutes, 60), second, digits)


def _day_number(year: int, month: int, day: int) -> int:
    """Return days since 1970-01-01 in the Gregorian calendar, extended to all years; year 0 is 1 BC."""
    # Years that begin in March have their leap day last.
    year -= month <= 2
    era, year_of_era = divmod(year, 400)
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * 146_097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - 719_468


def _civil(number: int) -> tuple[int, int, int]:
    """Return year, month and day of days since 1970-01-01."""
    era, day_of_era = divmod(number + 719_468, 146_097)
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted = (5 * day_of_year + 2) // 153
    month = shifted + 3 if shifted < 10 else shifted - 9
    return era * 400 + year_of_era + (month <= 2), month, day_of_year - (153 * shifted + 2) // 5 + 1


#: Infinite dates, by the day that PostgreSQL's JDBC driver has for them.
_INFINITE_DAYS: Final = {
    b"infinity": _day_number(-5_877_611, 6, 21),
    b"-infinity": _day_number(-5_877_611, 6, 22),
}
