"""Values in Avro's binary form as JSON, each by its type: the encodings of Avro 1.12, section "Binary encoding".

A function reads a value at a place of a record, and returns its JSON and the place after it. Raises ValueError, IndexError,
struct.error and UnicodeDecodeError for what is none.
"""

import math
import struct
from base64 import b64encode
from collections.abc import Callable

# `json.dumps` without its arguments, which make an encoder of Python's for each text.
from json.encoder import encode_basestring
from typing import Any, Final

#: Reads a value at a place: its JSON, and the place after it.
Read = Callable[[bytes, int], tuple[str, int]]

_CONTINUED: Final = 0x80
_SHORTEST, _LONGEST = 6, 9


def read_long(data: bytes, at: int) -> tuple[int, int]:
    """Read an `int` or a `long`: variable-length zig-zag."""
    byte = data[at]
    at += 1
    if byte < _CONTINUED:
        return byte >> 1 ^ -(byte & 1), at
    number, shift = byte & 0x7F, 7
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < _CONTINUED:
            return number >> 1 ^ -(number & 1), at
        shift += 7


def _data(data: bytes, at: int) -> tuple[bytes, int]:
    length, at = read_long(data, at)
    if not 0 <= length <= len(data) - at:
        raise ValueError("a value ends behind the record")
    return data[at : at + length], at + length


def read_number(data: bytes, at: int) -> tuple[str, int]:
    """Read an `int` or a `long` as JSON."""
    number, at = read_long(data, at)
    return str(number), at


def read_plain_text(data: bytes, at: int) -> tuple[str, int]:
    """Read a `string` as it is."""
    found, at = _data(data, at)
    return found.decode(), at


def read_text(data: bytes, at: int) -> tuple[str, int]:
    """Read a `string` as JSON."""
    found, at = _data(data, at)
    return encode_basestring(found.decode()), at


def read_boolean(data: bytes, at: int) -> tuple[str, int]:
    """Read a `boolean` as JSON."""
    return "true" if data[at] else "false", at + 1


def _bytes(data: bytes, at: int) -> tuple[str, int]:
    found, at = _data(data, at)
    return f'"{b64encode(found).decode()}"', at


def _whole(data: bytes, at: int) -> tuple[str, int]:
    """Read a decimal without a scale that JSON has as a number."""
    found, at = _data(data, at)
    return str(int.from_bytes(found, "big", signed=True)), at


def _variable(data: bytes, at: int) -> tuple[str, int]:
    scale, at = read_long(data, at)
    value, at = _bytes(data, at)
    return f'{{"scale":{scale},"value":{value}}}', at


def _unusual(number: float) -> str | None:
    if math.isnan(number):
        return '"NaN"'
    if math.isinf(number):
        return '"Infinity"' if number > 0 else '"-Infinity"'
    return None


def _double(data: bytes, at: int) -> tuple[str, int]:
    (number,) = struct.unpack_from("<d", data, at)
    return _unusual(number) or repr(number), at + 8


def _float(data: bytes, at: int) -> tuple[str, int]:
    (number,) = struct.unpack_from("<f", data, at)
    if found := _unusual(number):
        return found, at + 4
    # The shortest text that is the same number in single precision.
    for digits in range(_SHORTEST, _LONGEST + 1):
        short = float(f"{number:.{digits}g}")
        if struct.pack("<f", short) == data[at : at + 4]:
            return repr(short), at + 4
    return repr(number), at + 4


_PLAIN: Final[dict[str, Read]] = {
    "int": read_number,
    "long": read_number,
    "string": read_text,
    "boolean": read_boolean,
    "bytes": _bytes,
    "double": _double,
    "float": _float,
}


def type_reader(kind: Any) -> Read:
    """Return the function for a column's type."""
    if isinstance(kind, dict):
        if kind.get("headrace.json") == "number":
            return _whole
        if kind["type"] == "record":
            return _variable
        kind = kind["type"]
    return _PLAIN[kind]
