"""The binlog's column types, and values that need more than their bytes: numbers with a fraction, dates and times, bits, members,
addresses, compressed columns.

Each function returns what is in the record, with its quotes where the function's name has JSON in it, and without them
elsewhere; dates and times come from small tables that fill as values do. Bytes that no server writes raise ValueError,
struct.error or IndexError.
"""

import socket
import struct
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from msgspec import json

#: `enum_field_types`.
DECIMAL, TINY, SHORT, LONG, FLOAT, DOUBLE, NULL, TIMESTAMP, LONGLONG, INT24 = range(10)
DATE, TIME, DATETIME, YEAR, NEWDATE, VARCHAR, BIT, TIMESTAMP2, DATETIME2, TIME2 = range(10, 20)
BLOB_COMPRESSED, VARCHAR_COMPRESSED = 140, 141
VECTOR, JSON, NEWDECIMAL, ENUM, SET = 242, 245, 246, 247, 248
TINY_BLOB, MEDIUM_BLOB, LONG_BLOB, BLOB, VAR_STRING, STRING, GEOMETRY = 249, 250, 251, 252, 253, 254, 255

#: Bytes of metadata; none for other types.
META_SIZES = {
    FLOAT: 1, DOUBLE: 1, TINY_BLOB: 1, MEDIUM_BLOB: 1, LONG_BLOB: 1, BLOB: 1, JSON: 1, GEOMETRY: 1, VECTOR: 1,
    BLOB_COMPRESSED: 1, TIMESTAMP2: 1, DATETIME2: 1, TIME2: 1, VARCHAR: 2, VARCHAR_COMPRESSED: 2, BIT: 2, NEWDECIMAL: 2,
    ENUM: 2, SET: 2, VAR_STRING: 2, STRING: 2,
}  # fmt: skip
#: Those whose metadata is two bytes with a meaning of their own, the first one more significant here.
BIG_ENDIAN_META = frozenset({NEWDECIMAL, ENUM, SET, VAR_STRING, STRING})

#: Columns whose signedness is in the log.
NUMERIC = frozenset({TINY, SHORT, INT24, LONG, LONGLONG, NEWDECIMAL, FLOAT, DOUBLE, YEAR})
#: Columns whose collation is in the log, a vector's among them; MariaDB counts geometries, too.
CHARACTER = frozenset({VARCHAR, VAR_STRING, STRING, BLOB, VECTOR})
MARIADB_CHARACTER = CHARACTER | {BLOB_COMPRESSED, VARCHAR_COMPRESSED, GEOMETRY}
#: Columns whose members are in the log, and another collation.
MEMBERED = frozenset({ENUM, SET})

#: The collation of bytes that are no text.
BINARY = 63

INTEGER_NAMES = {TINY: "TINYINT", SHORT: "SMALLINT", INT24: "MEDIUMINT", LONG: "INT", LONGLONG: "BIGINT"}

_FLOAT = struct.Struct("<f")
_LARGEST = 1 << 32


def float_json(value: float) -> bytes:
    """Return the shortest number that is this one in single precision."""
    for digits in range(6, 10):
        text = f"{value:.{digits}g}"
        if _FLOAT.unpack(_FLOAT.pack(float(text)))[0] == value:
            return double_json(float(text))
    raise ValueError("a float is no number")


def double_json(value: float) -> bytes:
    """Return the shortest number that is this one in double precision; whole numbers without a point."""
    if value != value or value in {float("inf"), float("-inf")}:  # noqa: PLR0124 - not a number equals nothing.
        raise ValueError("a double is no number")
    text = repr(value)
    return (text.removesuffix(".0") if value else text).encode()


#: Bytes that so many digits take.
_DIGIT_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)


def decimal_layout(precision: int, scale: int) -> tuple[int, list[tuple[int, int]], list[tuple[int, int, int]]]:
    """Return where a decimal's digits are in its bytes as one number, without its sign.

    The size in bytes; shift and mask of each group of the whole part, lowest first; shift, mask and digits of each group of
    the fraction, highest first.
    """
    odd = precision - scale
    if not 0 <= scale <= 38 or not 0 < precision <= 65 or odd < 0:
        raise ValueError("a decimal has an impossible precision")
    groups = [9] * (scale // 9) + [scale % 9] * (scale % 9 > 0)
    parts: list[tuple[int, int, int]] = []
    shift = 0
    for digits in reversed(groups):
        bits = 8 * _DIGIT_BYTES[digits]
        parts.insert(0, (shift, (1 << bits) - 1, digits))
        shift += bits
    whole: list[tuple[int, int]] = []
    for digits in [9] * (odd // 9) + [odd % 9] * (odd % 9 > 0):
        bits = 8 * _DIGIT_BYTES[digits]
        whole.append((shift, (1 << bits) - 1))
        shift += bits
    return shift // 8, whole, parts


def decimal(precision: int, scale: int, data: bytes) -> str:
    """Return a decimal's text."""
    size, whole, parts = decimal_layout(precision, scale)
    if len(data) != size:
        raise ValueError("a decimal is cut short")
    number, top = int.from_bytes(data, "big"), 1 << (8 * size - 1)
    negative = not number & top
    number ^= top - 1 if negative else top
    integer = sum((number >> shift & mask) * 10 ** (9 * place) for place, (shift, mask) in enumerate(whole))
    digits = "".join(f"{number >> shift & mask:0{digits}}" for shift, mask, digits in parts)
    return f"{'-' * negative}{integer}{'.' * bool(digits)}{digits}"


def plain(value: bytes) -> bytes:
    """Return the text of a value in JSON."""
    return str(json.decode(value)).encode() if value.startswith(b'"') else value


def dated(value: bytes) -> bytes:
    """Return a date in JSON, null for one with a year, month or day of zero."""
    return b"null" if value[1:5] == b"0000" or value[6:8] == b"00" or value[9:11] == b"00" else value


class Sets(dict[int, bytes]):
    """A SET's values as JSON, by their bits."""

    def __init__(self, members: tuple[str, ...]) -> None:
        super().__init__()
        self._members = members

    def __missing__(self, bits: int) -> bytes:
        """Make the text of a value that was not met before."""
        if bits >> len(self._members):
            raise ValueError("a set has a member that it has not")
        chosen = [member for number, member in enumerate(self._members) if bits >> number & 1]
        if len(self) > 10_000:
            self.clear()
        text = self[bits] = json.encode(",".join(chosen))
        return text


def uuid(value: bytes) -> bytes:
    """Return a UUID; the log leaves zeros at its end out."""
    digits = value.ljust(16, b"\0").hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])).encode()


def inet6(value: bytes) -> bytes:
    """Return an address of 16 bytes."""
    return socket.inet_ntop(socket.AF_INET6, value.ljust(16, b"\0")).encode()


def inet4(value: bytes) -> bytes:
    """Return an address of 4 bytes."""
    return socket.inet_ntop(socket.AF_INET, value.ljust(4, b"\0")).encode()


ADDRESSES: dict[str, Callable[[bytes], bytes]] = {"uuid": uuid, "inet6": inet6, "inet4": inet4}


def vector(value: bytes) -> bytes:
    """Return a vector of single precision as a list in brackets."""
    numbers = struct.unpack(f"<{len(value) // 4}f", value)
    return b"[%b]" % b",".join(float_json(number) for number in numbers)


def inflated(value: bytes) -> bytes:
    """Return what a compressed column holds.

    Int8 header: method in bits 4 to 7 (0 none, 8 deflate), bit 3 where zlib's own header is left out, bytes of the length in
    bits 0 to 2; then the length, big-endian, and the data.
    """
    if not value:
        return b""
    method, size = value[0] >> 4, value[0] & 7
    if method == 0:
        return value[1:]
    if method != 8 or not 1 <= size <= 4:
        raise ValueError("a column has an unknown compression")
    length = int.from_bytes(value[1 : 1 + size], "big")
    try:
        inflate = zlib.decompressobj(-zlib.MAX_WBITS if value[0] & 8 else zlib.MAX_WBITS)
        plain = inflate.decompress(value[1 + size :], max(length, 1))
    except zlib.error as error:
        raise ValueError("a compressed column is damaged") from error
    if len(plain) != length:
        raise ValueError("a compressed column unpacks to another length than stated")
    return plain


def members(texts: tuple[str, ...]) -> tuple[bytes, ...]:
    """Return an ENUM's values as JSON by their numbers; 0 is what a server puts in place of a wrong value."""
    return (b'""', *map(json.encode, texts))


def key_members(texts: tuple[str, ...]) -> dict[int, bytes]:
    """Return the same for a key, where a wrong value is none: one of the members may be written as it is."""
    return dict(enumerate(map(json.encode, texts), 1))


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
