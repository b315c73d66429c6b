"""Values in Avro's binary form (Avro specification, "Binary Encoding"), from what JSON decodes to.

A long is zigzag and then seven bits a byte, lowest first; text and bytes have their length as a long ahead; a union has the
number of its branch ahead, and 0 is null's. Raises ValueError for what a type has no value for. Used by
edge/records/avro_records.py for any record, and by an engine's generated functions for frequent ones.
"""

import math
import struct
from binascii import Error as Base64Error
from binascii import a2b_base64
from collections.abc import Callable
from functools import cache
from typing import Any, Final

from msgspec import json

from headrace.schemas.column_types import DECIMAL

Encode = Callable[[Any], bytes]

NULL: Final = b"\0"
#: The branch of a nullable value that is there.
THERE: Final = b"\2"
TRUE, FALSE = b"\1", b"\0"
FLOAT, DOUBLE = struct.Struct("<f"), struct.Struct("<d")
#: A table forgets everything when it has grown to so many entries.
_MOST = 20_000
_LAST, _MORE = 0x7F, 0x80
_WORD, _WORD_BITS = (1 << 14) - 1, 14
_LARGEST = 1 << 63


def _varint(number: int) -> bytes:
    """Return an unsigned number, seven bits a byte, lowest first."""
    encoded = bytearray()
    while number > _LAST:
        encoded.append(number & _LAST | _MORE)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


#: Numbers below 2^14, as the end of a longer number and within one.
_ENDS: Final = [_varint(number) for number in range(_WORD + 1)]
_WITHIN: Final = [bytes((number & _LAST | _MORE, number >> 7 | _MORE)) for number in range(_WORD + 1)]


def long(number: int) -> bytes:
    """Return an int or a long."""
    if not -_LARGEST <= number < _LARGEST:
        raise ValueError("a number does not fit a long")
    rest = number << 1 if number >= 0 else ~(number << 1)
    if rest <= _WORD:
        return _ENDS[rest]
    encoded = b""
    while rest > _WORD:
        encoded += _WITHIN[rest & _WORD]
        rest >>= _WORD_BITS
    return encoded + _ENDS[rest]


class Longs(dict[bytes, bytes]):
    """Longs by their decimal text, with a prefix, as they are met."""

    def __init__(self, prefix: bytes = b"") -> None:
        super().__init__()
        self._prefix = prefix

    def __missing__(self, text: bytes) -> bytes:
        """Encode a number that was not met lately."""
        if len(self) >= _MOST:
            self.clear()
        encoded = self[text] = self._prefix + long(int(text))
        return encoded


#: Texts and bytes that are longer have their lengths encoded one by one.
_LONGEST: Final = 1 << 14


@cache
def lengths(prefix: bytes = b"") -> list[bytes]:
    """Return the lengths of texts or bytes of less than 16 KiB, with a prefix."""
    return [prefix + long(length) for length in range(_LONGEST)]


def long_parts(prefix: bytes = b"") -> tuple[list[bytes], list[bytes], list[bytes]]:
    """Return the parts of longs by fourteen bits: first, with a prefix, later, and last ones."""
    return [prefix + part for part in _WITHIN], _WITHIN, _ENDS


def data(value: bytes) -> bytes:
    """Return bytes, or text in UTF-8."""
    return long(len(value)) + value


def text(value: Any) -> bytes:
    """Return text; what JSON has as something else is its JSON."""
    return data(value.encode() if isinstance(value, str) else json.encode(value))


def optional(encode: Encode) -> Encode:
    """Return the function for a value that may be null."""
    return lambda value: NULL if value is None else THERE + encode(value)


def encoder(kind: Any) -> Encode:
    """Return the function for an Avro type (headrace.schemas.column_types), from what JSON decodes to."""
    if isinstance(kind, list):
        # Of null and another type.
        return optional(encoder(kind[1]))
    if not isinstance(kind, dict):
        return _PLAIN[kind]
    if kind.get("connect.name") == DECIMAL:
        return _unscaled
    with_parts = _WITH_PARTS.get(kind["type"])
    return with_parts(kind) if with_parts is not None else _PLAIN[kind["type"]]


def _record(kind: dict[str, Any]) -> Encode:
    fields = [(field["name"], encoder(field["type"])) for field in kind["fields"]]

    def encode(value: Any) -> bytes:
        if not isinstance(value, dict) or len(value) != len(fields):
            raise ValueError("a structure has other fields")
        return b"".join(write(value[name]) for name, write in fields)

    return encode


def _array(kind: dict[str, Any]) -> Encode:
    """Return the function for arrays: blocks, each with its count ahead, and a count of 0."""
    write = encoder(kind["items"])

    def encode(value: Any) -> bytes:
        if not isinstance(value, list) or any(isinstance(each, list) for each in value):
            # Kafka Connect has no type for what may be an array, or an array of arrays, from row to row.
            raise ValueError("an array is none, or holds arrays")
        return long(len(value)) + b"".join(map(write, value)) + NULL if value else NULL

    return encode


def _map(kind: dict[str, Any]) -> Encode:
    write = encoder(kind["values"])

    def encode(value: Any) -> bytes:
        if not isinstance(value, dict):
            raise ValueError("a map is none")  # noqa: TRY004 - of a value, not of an argument.
        pairs = b"".join(text(name) + write(member) for name, member in value.items())
        return long(len(value)) + pairs + NULL if value else NULL

    return encode


def _integer(value: Any) -> bytes:
    return long(_int(value))


def _int(value: Any) -> int:
    if not isinstance(value, int):
        raise ValueError("a value is no whole number")  # noqa: TRY004 - of a value, not of an argument.
    return value


def _float(value: Any) -> bytes:
    number = float(value)
    try:
        return FLOAT.pack(number)
    except OverflowError:
        return FLOAT.pack(math.copysign(math.inf, number))


def _double(value: Any) -> bytes:
    return DOUBLE.pack(float(value))


def _boolean(value: Any) -> bytes:
    if not isinstance(value, bool):
        raise ValueError("a value is neither true nor false")  # noqa: TRY004 - as above.
    return TRUE if value else FALSE


def _bytes(value: Any) -> bytes:
    return data(_decoded(value))


def _unscaled(value: Any) -> bytes:
    """Return a decimal's unscaled number, big-endian: base64 already, or a whole number."""
    if isinstance(value, int):
        number = value if value >= 0 else ~value
        return data(value.to_bytes(number.bit_length() // 8 + 1, "big", signed=True))
    return data(_decoded(value))


def _decoded(value: Any) -> bytes:
    try:
        return a2b_base64(value, strict_mode=True)
    except (Base64Error, TypeError) as error:
        raise ValueError("bytes are not in base64") from error


_PLAIN: Final[dict[str, Encode]] = {
    "string": text, "int": _integer, "long": _integer, "float": _float, "double": _double, "boolean": _boolean, "bytes": _bytes,
}  # fmt: skip
_WITH_PARTS: Final[dict[str, Callable[[dict[str, Any]], Encode]]] = {"record": _record, "array": _array, "map": _map}
