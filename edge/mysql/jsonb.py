"""MySQL's binary JSON as the text that the server prints (MySQL internals manual, "JSON binary format").

Int8 type, then the value. Objects and arrays: number of elements and size in bytes, for objects an offset and Int16 length of
each key, for each value its type and an offset or the value itself where it is small, then keys and values; offsets count from
the number of elements on, and are of two or four bytes. Bytes that are none raise ValueError, struct.error or IndexError.
"""

import struct
from base64 import b64encode
from decimal import Decimal
from typing import Final

from msgspec import json

from edge.mysql import values

_OBJECT, _LARGE_OBJECT, _ARRAY, _LARGE_ARRAY, _LITERAL = range(5)
_DOUBLE, _STRING, _OPAQUE = 0x0B, 0x0C, 0x0F
_NUMBERS: Final = {5: "<h", 6: "<H", 7: "<i", 8: "<I", 9: "<q", 10: "<Q"}
_LITERALS: Final = ("null", "true", "false")
_DEEPEST = 100


def json_text(data: bytes) -> str:
    """Return the document as the server prints it; nothing at all is null."""
    return _Document(data).value(data[0], 1, 0) if data else "null"


class _Document:
    """One document, which has no more values than bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._left = len(data) + 1

    def value(self, kind: int, at: int, depth: int) -> str:
        self._left -= 1
        if depth > _DEEPEST or self._left < 0 or at > len(self._data):
            raise ValueError("a JSON document refers to itself")
        if kind in {_OBJECT, _LARGE_OBJECT, _ARRAY, _LARGE_ARRAY}:
            return self._container(kind, at, depth)
        if kind == _LITERAL:
            return _LITERALS[self._data[at]]
        if kind in _NUMBERS:
            return str(struct.unpack_from(_NUMBERS[kind], self._data, at)[0])
        if kind == _DOUBLE:
            number = struct.unpack_from("<d", self._data, at)[0]
            values.double_json(number)
            return _double(number)
        if kind == _STRING:
            return json.encode(self._bytes(at).decode()).decode()
        if kind == _OPAQUE:
            return _opaque(self._data[at], self._bytes(at + 1))
        raise ValueError("a JSON value is of an unknown type")

    def _container(self, kind: int, start: int, depth: int) -> str:
        large, is_object = kind in {_LARGE_OBJECT, _LARGE_ARRAY}, kind in {_OBJECT, _LARGE_OBJECT}
        width, form = (4, "<I") if large else (2, "<H")
        (count,) = struct.unpack_from(form, self._data, start)
        keys = start + 2 * width
        entries = keys + (count * (width + 2) if is_object else 0)
        if entries + count * (width + 1) > len(self._data):
            raise ValueError("a JSON value has more elements than bytes")
        inline = {_LITERAL, 5, 6} | ({7, 8} if large else set())
        parts = []
        for number in range(count):
            entry = entries + number * (width + 1)
            element = self._data[entry]
            (offset,) = struct.unpack_from(form, self._data, entry + 1)
            text = self.value(element, entry + 1 if element in inline else start + offset, depth + 1)
            if is_object:
                offset, length = struct.unpack_from(form + "H", self._data, keys + number * (width + 2))
                name = self._data[start + offset : start + offset + length].decode()
                text = f"{json.encode(name).decode()}: {text}"
            parts.append(text)
        return f"{{{', '.join(parts)}}}" if is_object else f"[{', '.join(parts)}]"

    def _bytes(self, at: int) -> bytes:
        """Seven bits of the length in each byte, the lowest first, while the eighth is set; then the bytes."""
        length = 0
        for number in range(5):
            byte = self._data[at + number]
            length |= (byte & 0x7F) << (7 * number)
            if byte < 0x80:
                text = self._data[at + number + 1 : at + number + 1 + length]
                if len(text) != length:
                    raise ValueError("a JSON string is cut short")
                return text
        raise ValueError("a JSON string has an impossible length")


def _double(number: float) -> str:
    """Return a double as the server prints it: the shortest digits, whole ones with a point, so that they stay doubles.

    Numbers below 1e-15, and whole ones from 1e15 on, have an exponent.
    """
    text = repr(number)
    if "e" not in text and (abs(number) < 1e15 or not text.endswith(".0")):
        return text
    sign, parts, exponent = Decimal(text).as_tuple()
    assert isinstance(exponent, int)
    digits = "".join(map(str, parts)).rstrip("0")
    # Of 0.DIGITS.
    power = len(parts) + exponent
    if -15 < power < 1:
        return f"{'-' * sign}0.{'0' * -power}{digits}"
    fraction = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{'-' * sign}{digits[0]}{fraction}e{power - 1}"


def _opaque(kind: int, data: bytes) -> str:
    if kind == values.NEWDECIMAL:
        return values.decimal(data[0], data[1], data[2:])
    if kind in {values.DATE, values.DATETIME, values.TIMESTAMP, values.TIME} and len(data) == 8:
        packed = int.from_bytes(data, "little", signed=True)
        return f'"{_moment(kind, packed)}"'
    return f'"base64:type{kind}:{b64encode(data).decode()}"'


def _moment(kind: int, packed: int) -> str:
    sign = "-" if packed < 0 and kind == values.TIME else ""
    packed = abs(packed)
    whole, micro = packed >> 24, packed & 0xFFFFFF
    if kind == values.TIME:
        hour, minute, second = whole >> 12 & 0x3FF, whole >> 6 & 63, whole & 63
        return f"{sign}{hour:02}:{minute:02}:{second:02}.{micro:06}"
    date = values.DAYS[whole >> 17].decode()[:10]
    if kind == values.DATE:
        return date
    return f"{date} {values.TIMES[whole & 0x1FFFF].decode()}.{micro:06}"
