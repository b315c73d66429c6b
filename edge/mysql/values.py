"""Values that need more than their bytes: numbers with a fraction, bits, members, addresses, compressed columns.

Each function returns what is in the record, with its quotes where the function's name has JSON in it, and without them
elsewhere. Bytes that no server writes raise ValueError, struct.error or IndexError.
"""

import socket
import struct
import zlib
from collections.abc import Callable

from msgspec import json

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
