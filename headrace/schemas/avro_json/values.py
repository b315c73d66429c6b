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
#: Seven of each byte: enough for 64.
_LONG_BITS: Final = 70
_SHORTEST, _LONGEST = 6, 9


def read_long(data: bytes, at: int) -> tuple[int, int]:
    """Read an `int` or a `long`: variable-length zig-zag."""
    byte = data[at]
    at += 1
    if byte < _CONTINUED:
        return byte >> 1 ^ -(byte & 1), at
    number, shift = byte & 0x7F, 7
    while shift < _LONG_BITS:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < _CONTINUED:
            return number >> 1 ^ -(number & 1), at
        shift += 7
    # Each byte more costs as much as all before it.
    raise ValueError("a number is longer than any")


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
    text, at = _data(data, at)
    return text.decode(), at


def read_text(data: bytes, at: int) -> tuple[str, int]:
    """Read a `string` as JSON."""
    text, at = _data(data, at)
    return encode_basestring(text.decode()), at


def read_boolean(data: bytes, at: int) -> tuple[str, int]:
    """Read a `boolean` as JSON."""
    return "true" if data[at] else "false", at + 1


def _bytes(data: bytes, at: int) -> tuple[str, int]:
    octets, at = _data(data, at)
    return f'"{b64encode(octets).decode()}"', at


def _whole(data: bytes, at: int) -> tuple[str, int]:
    """Read a decimal without a scale that JSON has as a number."""
    octets, at = _data(data, at)
    return str(int.from_bytes(octets, "big", signed=True)), at


def unusual(number: float) -> str | None:
    """Return the JSON of NaN and infinities; None for all other numbers."""
    if math.isnan(number):
        return '"NaN"'
    if math.isinf(number):
        return '"Infinity"' if number > 0 else '"-Infinity"'
    return None


def _double(data: bytes, at: int) -> tuple[str, int]:
    (number,) = struct.unpack_from("<d", data, at)
    return unusual(number) or repr(number), at + 8


def _float(data: bytes, at: int) -> tuple[str, int]:
    (number,) = struct.unpack_from("<f", data, at)
    if text := unusual(number):
        return text, at + 4
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


def type_reader(kind: Any, records: dict[str, Read]) -> Read:
    """Return the function for a type; a record, which may be meant by its name later, is noted in `records`."""
    if isinstance(kind, list):
        return _union([None if branch == "null" else type_reader(branch, records) for branch in kind])
    if isinstance(kind, dict):
        if kind.get("headrace.json") == "number":
            return _whole
        if kind["type"] == "record":
            name = f"{kind['namespace']}.{kind['name']}" if "namespace" in kind else kind["name"]
            fields = [(_begins(field["name"]), type_reader(field["type"], records)) for field in kind["fields"]]
            if not fields:
                # Of what takes no byte a small record holds any number.
                raise ValueError("a structure has no fields")
            read = records[name] = _record(fields)
            return read
        if kind["type"] == "array":
            return _array(type_reader(kind["items"], records))
        if kind["type"] == "map":
            return _map(type_reader(kind["values"], records))
        kind = kind["type"]
    return _PLAIN[kind] if kind in _PLAIN else records[kind]


def _union(branches: list[Read | None]) -> Read:
    def read(data: bytes, at: int) -> tuple[str, int]:
        number, at = read_long(data, at)
        if not 0 <= number < len(branches):
            raise ValueError("a union has no such branch")
        branch = branches[number]
        return ("null", at) if branch is None else branch(data, at)

    return read


def _begins(name: str) -> str:
    return encode_basestring(name) + ":"


def _record(fields: list[tuple[str, Read]]) -> Read:
    """Return the function for a structure: its fields, one after the other."""

    def read(data: bytes, at: int) -> tuple[str, int]:
        members = []
        for begins, value in fields:
            text, at = value(data, at)
            members.append(begins + text)
        return "{" + ",".join(members) + "}", at

    return read


def _array(item: Read) -> Read:
    def read(data: bytes, at: int) -> tuple[str, int]:
        items, at = _blocks(item, data, at)
        return "[" + ",".join(items) + "]", at

    return read


def _map(value: Read) -> Read:
    def member(data: bytes, at: int) -> tuple[str, int]:
        name, at = read_text(data, at)
        text, at = value(data, at)
        return f"{name}:{text}", at

    def read(data: bytes, at: int) -> tuple[str, int]:
        members, at = _blocks(member, data, at)
        return "{" + ",".join(members) + "}", at

    return read


def _blocks(item: Read, data: bytes, at: int) -> tuple[list[str], int]:
    """Read what an array or a map holds: blocks, each with its count ahead, and a count of 0. No edge writes a size of blocks."""
    items: list[str] = []
    while True:
        count, at = read_long(data, at)
        if count < 0:
            raise ValueError("a block has a size")
        if not count:
            return items, at
        for _ in range(count):
            text, at = item(data, at)
            items.append(text)
