"""Dates and times of the binlog as text, most of them from small tables that fill as values come.

What has a year, month or day of zero is no date of ISO 8601: it keeps the server's own text. Timestamps are UTC. Numbers that
are no date or time raise ValueError.
"""

from abc import ABC, abstractmethod
from datetime import UTC, datetime
from typing import Final

#: A table forgets everything when it has grown to so many entries.
_MOST = 20_000
_DATETIME_OFFSET, _TIME_OFFSET = 0x8000000000, 0x800000
_DAY = 86_400


class _Table(dict[int, bytes], ABC):
    """Texts by number, made when they are first needed."""

    def __missing__(self, number: int) -> bytes:
        if len(self) >= _MOST:
            self.clear()
        text = self[number] = self.make(number)
        return text

    @abstractmethod
    def make(self, number: int) -> bytes:
        """Return the text of a number."""


class _Dates(_Table):
    """Day in bits 0 to 4, month in 5 to 8, year above: a DATE."""

    def make(self, number: int) -> bytes:
        return _date(number >> 9, number >> 5 & 15, number & 31)


class _Days(_Table):
    """Day in bits 0 to 4, year times 13 plus month above: the date of a DATETIME, with what separates it from the time."""

    def make(self, number: int) -> bytes:
        year, month = divmod(number >> 5, 13)
        day = number & 31
        return _date(year, month, day) + (b"T" if year and month and day else b" ")


class _Times(_Table):
    """Second in bits 0 to 5, minute in 6 to 11, hour above: the time of a DATETIME."""

    def make(self, number: int) -> bytes:
        hour, minute, second = number >> 12, number >> 6 & 63, number & 63
        if hour > 23 or minute > 59 or second > 59:
            raise ValueError("a time of day is none")
        return b"%02d:%02d:%02d" % (hour, minute, second)


class _Seconds(_Table):
    """Seconds since 1970; 0 is no time."""

    def make(self, number: int) -> bytes:
        if not number:
            return b"0000-00-00 00:00:00"
        return datetime.fromtimestamp(number, UTC).strftime("%Y-%m-%dT%H:%M:%S").encode()


def _date(year: int, month: int, day: int) -> bytes:
    if not 0 <= year <= 9999 or month > 12:
        raise ValueError("a date is none")
    return b"%04d-%02d-%02d" % (year, month, day)


DATES: Final = _Dates()
DAYS: Final = _Days()
TIMES: Final = _Times()
SECONDS: Final = _Seconds()


def fraction(value: int, digits: int) -> bytes:
    """Return `.` and so many digits; the log holds an even number of them."""
    return b".%0*d" % (digits, value // 10 if digits & 1 else value) if digits else b""


def timestamp(raw: bytes, digits: int) -> bytes:
    """Return a TIMESTAMP: big-endian seconds, then the fraction."""
    seconds = int.from_bytes(raw[:4], "big")
    part = fraction(int.from_bytes(raw[4:], "big"), digits)
    return SECONDS[seconds] + part + (b"Z" if seconds else b"")


def server_moment(text: bytes, zone: bytes) -> bytes:
    """Return what the server selects of a DATETIME, or of a TIMESTAMP in UTC with `Z` for a zone, as records hold it."""
    if text[:4] == b"0000" or text[5:7] == b"00" or text[8:10] == b"00":
        return text
    return text.replace(b" ", b"T", 1) + zone


def old_timestamp(seconds: int) -> bytes:
    """Return a TIMESTAMP of before 5.6."""
    return SECONDS[seconds] + (b"Z" if seconds else b"")


def moment(raw: bytes, digits: int) -> bytes:
    """Return a DATETIME: big-endian 40 bits with an offset, then the fraction."""
    number = int.from_bytes(raw[:5], "big") - _DATETIME_OFFSET
    return DAYS[number >> 17] + TIMES[number & 0x1FFFF] + fraction(int.from_bytes(raw[5:], "big"), digits)


def old_moment(number: int) -> bytes:
    """Return a DATETIME of before 5.6: its digits as a number."""
    date, time = divmod(number, 1_000_000)
    year, month, day = date // 10_000, date // 100 % 100, date % 100
    text = _date(year, month, day) + (b"T" if year and month and day else b" ")
    return text + _Times.make(TIMES, (time // 10_000) << 12 | (time // 100 % 100) << 6 | time % 100)


def duration(raw: bytes, digits: int) -> bytes:
    """Return a TIME, up to 838 hours and negative: big-endian 24 bits and the fraction as one number with an offset."""
    bits = 8 * (len(raw) - 3)
    number = int.from_bytes(raw, "big") - (_TIME_OFFSET << bits)
    sign, number = (b"-", -number) if number < 0 else (b"", number)
    whole, part = number >> bits, number & ((1 << bits) - 1)
    return sign + _clock(whole >> 12, whole >> 6 & 63, whole & 63) + fraction(part, digits)


def old_duration(raw: bytes) -> bytes:
    """Return a TIME of before 5.6: its digits as a signed number of 24 bits."""
    number = int.from_bytes(raw, "little", signed=True)
    sign, number = (b"-", -number) if number < 0 else (b"", number)
    return sign + _clock(number // 10_000, number // 100 % 100, number % 100)


def _clock(hour: int, minute: int, second: int) -> bytes:
    if hour > 838 or minute > 59 or second > 59:
        raise ValueError("a time is none")
    return b"%02d:%02d:%02d" % (hour, minute, second)
