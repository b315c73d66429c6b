"""Numbers, bits, money, points, hstore and binary values as Debezium writes them: from the database's text to JSON.

Raises ValueError for bytes that the server would not send.

Arrays as Debezium writes them: a JSON array of elements, each in the form of its type; arrays of arrays are nested.
"""

import re
import struct
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable
from decimal import Context, Decimal
from typing import Final

from msgspec import json

_NO_NUMBER: Final = frozenset({b"NaN", b"Infinity", b"-Infinity"})
#: PostgreSQL's numeric has up to 147,455 digits.
_EXACT = Context(prec=200_000)
_POINT = re.compile(rb"\(([^,()]+),([^,()]+)\)")
_HSTORE = re.compile(rb'"((?:[^"\\]|\\.)*)"=>(?:NULL|"((?:[^"\\]|\\.)*)")(?:, |$)', re.DOTALL)
#: A point in well-known binary form, little-endian.
_WKB = struct.Struct("<BIdd")
_MONEY_DIGITS = 2


def decimal(scale: int) -> Callable[[bytes], bytes]:
    """Return the function for a numeric of a declared scale: its unscaled number in base64; null where it is no number."""

    def convert(text: bytes) -> bytes:
        if text in _NO_NUMBER:
            return b"null"
        _, _, fraction = text.partition(b".")
        if len(fraction) == scale and text.strip(b"-0123456789.") == b"":
            return b'"%b"' % _in_base64(int(text.replace(b".", b"")))
        return b'"%b"' % _unscaled(_number(text), scale)

    return convert


def variable_scale_decimal(text: bytes) -> bytes:
    """Return a numeric without a declared scale, without trailing zeros; null where it is no number."""
    if text in _NO_NUMBER:
        return b"null"
    number = _number(text)
    _, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    scale = max(-exponent, 0)
    for digit in reversed(digits):
        if digit or not scale:
            break
        scale -= 1
    scale = scale if any(digits) else 0
    return b'{"scale":%d,"value":"%b"}' % (scale, _unscaled(number, scale))


def double(text: bytes) -> bytes:
    """Return a numeric as a double; what is none as text."""
    if text in _NO_NUMBER:
        return b'"%b"' % text
    return _double(float(_number(text)))


def money(mode: str) -> Callable[[bytes], bytes]:
    """Return the function for money, which the server prints with a sign, a currency and groups of digits."""
    if mode == "string":
        return lambda text: b'"%b"' % _amount(text)
    write = double if mode == "double" else decimal(_MONEY_DIGITS)
    return lambda text: write(_amount(text))


def bit(text: bytes) -> bytes:
    """Return one bit as true or false."""
    return b"true" if text == b"1" else b"false"


def bits(text: bytes) -> bytes:
    """Return bits in base64, little-endian, in as few bytes as their value needs."""
    number = int(text or b"0", 2)
    return b'"%b"' % b64encode(number.to_bytes((number.bit_length() + 7) // 8, "little"))


def point(text: bytes) -> bytes:
    """Return a point with its coordinates and its well-known binary form."""
    match = _POINT.fullmatch(text)
    if match is None:
        raise ValueError("a point is none")
    x, y = float(match[1]), float(match[2])
    return b'{"x":%b,"y":%b,"wkb":"%b","srid":null}' % (_double(x), _double(y), b64encode(_WKB.pack(1, 1, x, y)))


def hstore_map(text: bytes) -> bytes:
    """Return an hstore as an object."""
    return json.encode(_pairs(text))


def hstore_json(text: bytes) -> bytes:
    """Return an hstore as a text that holds an object."""
    return json.encode(json.encode(_pairs(text)).decode())


def binary(mode: str) -> Callable[[bytes], bytes]:
    """Return the function for bytea in a mode other than `base64`."""
    if mode == "base64-url-safe":
        return lambda text: b'"%b"' % urlsafe_b64encode(_raw(text))
    return lambda text: b'"%b"' % _raw(text).hex().encode()


def _raw(text: bytes) -> bytes:
    if not text.startswith(b"\\x"):
        raise ValueError("bytea is not in hexadecimal form")
    return bytes.fromhex(text[2:].decode())


def _pairs(text: bytes) -> dict[str, str | None]:
    pairs: dict[str, str | None] = {}
    at = 0
    while at < len(text):
        match = _HSTORE.match(text, at)
        if match is None:
            raise ValueError("an hstore is none")
        pairs[_unquoted(match[1])] = None if match[2] is None else _unquoted(match[2])
        at = match.end()
    return pairs


def _unquoted(text: bytes) -> str:
    return re.sub(rb"\\(.)", rb"\1", text, flags=re.DOTALL).decode()


def _amount(text: bytes) -> bytes:
    shown = re.sub(rb"[^0-9.,]", b"", text)
    # Which of the two divides groups is up to the server's locale.
    cents = re.search(rb"[.,](\d\d)$", shown)
    whole = re.sub(rb"[^0-9]", b"", shown[: cents.start()] if cents else shown)
    if not whole:
        raise ValueError("an amount of money is none")
    is_negative = b"-" in text or text[:1] == b"("
    return b"%b%b.%b" % (b"-" if is_negative else b"", whole, cents[1] if cents else b"00")


def _double(number: float) -> bytes:
    shown = repr(number)
    return {"inf": b'"Infinity"', "-inf": b'"-Infinity"', "nan": b'"NaN"'}.get(shown, shown.encode())


def _unscaled(number: Decimal, scale: int) -> bytes:
    return _in_base64(int(number.scaleb(scale, _EXACT)))


def _in_base64(whole: int) -> bytes:
    """Return base64 of a number, big-endian, two's complement, in as few bytes as Java does."""
    return b64encode(whole.to_bytes((whole if whole >= 0 else ~whole).bit_length() // 8 + 1, "big", signed=True))


def _number(text: bytes) -> Decimal:
    if not text.isascii() or text.strip(b"-0123456789.") != b"":
        raise ValueError("a numeric is no number")
    try:
        return Decimal(text.decode())
    except ArithmeticError as error:
        raise ValueError("a numeric is no number") from error


_TOKEN = re.compile(
    rb'\s*(?:([{},;])|"((?:[^"\\]|\\.)*)"|((?:[^{},;"\\\s]|\\.|(?<=[^{},;"])\s+(?=[^{},;"\s]))+))', re.DOTALL
)
_BOUNDS = re.compile(rb"(?:\[-?\d+:-?\d+\])+=")
_ESCAPED = re.compile(rb"\\(.)", re.DOTALL)


def array(element: Callable[[bytes], bytes], delimiter: bytes = b",") -> Callable[[bytes], bytes]:
    """Return the function for arrays whose elements are written by another one."""

    def convert(text: bytes) -> bytes:
        bounds = _BOUNDS.match(text)
        at, parts, depth, end = bounds.end() if bounds else 0, [], 0, len(text)
        while at < end:
            match = _TOKEN.match(text, at)
            if match is None:
                raise ValueError("an array is none")
            at = match.end()
            mark, quoted, plain = match.groups()
            if mark == b"{":
                depth += 1
                parts.append(b"[")
            elif mark == b"}":
                depth -= 1
                parts.append(b"]")
            elif mark is not None:
                parts.append(b"," if mark == delimiter else mark)
            elif quoted is not None:
                parts.append(element(_ESCAPED.sub(rb"\1", quoted)))
            else:
                parts.append(b"null" if plain.upper() == b"NULL" else element(_ESCAPED.sub(rb"\1", plain)))
            if depth < 0 or (depth == 0 and at < end):
                raise ValueError("an array does not end where its braces do")
        if depth or not parts:
            raise ValueError("an array has no end")
        return b"".join(parts)

    return convert
