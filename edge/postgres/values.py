"""Text values of PostgreSQL as JSON (docs/records.md): one function a kind, from the column's bytes to JSON bytes.

Assumes the session settings of edge/postgres/connection.py: ISO dates, UTC, hexadecimal bytea, UTF-8. Raises ValueError for
bytes that the server would not send. edge/postgres/rows_compiled.py does the same inline for what is ordinary.

Numbers, bits, money, points, hstore and binary values as Debezium writes them, and its arrays: a JSON array of elements, each in
the form of its type; arrays of arrays are nested. PostgreSQL's built-in types by OID.
"""

import re
import struct
from base64 import b64encode, urlsafe_b64encode
from binascii import b2a_base64, unhexlify
from collections.abc import Callable
from decimal import Context, Decimal
from typing import Final

from msgspec import json

Convert = Callable[[bytes], bytes]

NULL = b"null"
#: int8, int2, int4, oid.
INTEGERS = frozenset({20, 21, 23, 26})
FLOAT4 = 700
#: float4, float8.
FLOATS = frozenset({FLOAT4, 701})
BOOL, BYTEA, TIMESTAMP, TIMESTAMPTZ = 16, 17, 1114, 1184
#: The type of a column that has a form of its own (edge/postgres/debezium_types.py).
FORMED = 0
#: The type of a column that the policy keeps out of records.
LEFT_OUT = -1
#: Types whose text never holds anything to escape: dates, times, bits, addresses, numeric, uuid, pg_lsn.
PLAIN = frozenset({650, 829, 869, 774, 1082, 1083, 1266, 1560, 1562, 1700, 2950, 3220})
#: Types whose text nearly always holds something to escape: json, jsonb.
ESCAPED = frozenset({114, 3802})
#: From a timestamp's text to ISO 8601, and from that of one with time zone UTC less its zeros.
TO_ISO = bytes.maketrans(b" +", b"TZ")
#: Characters above this one end a number or a time that is none: `NaN`, `infinity`, `BC`.
NINE = ord("9")

#: `-0` as a JSON integer would lose its sign.
NEGATIVE_ZERO = b"-0"
_SPECIAL = {NEGATIVE_ZERO: b"-0.0", b"NaN": b'"NaN"', b"Infinity": b'"Infinity"', b"-Infinity": b'"-Infinity"'}

_NO_NUMBER: Final = frozenset({b"NaN", b"Infinity", b"-Infinity"})
#: PostgreSQL's numeric has up to 147,455 digits.
_EXACT = Context(prec=200_000)
_POINT = re.compile(rb"\(([^,()]+),([^,()]+)\)")
_HSTORE = re.compile(rb'"((?:[^"\\]|\\.)*)"=>(?:NULL|"((?:[^"\\]|\\.)*)")(?:, |$)', re.DOTALL)
#: A point in well-known binary form, little-endian.
_WKB = struct.Struct("<BIdd")
_MONEY_DIGITS = 2


def converter(type_oid: int) -> Convert:
    """Return the function for a type."""
    if type_oid in INTEGERS:
        return integer
    if type_oid in FLOATS:
        return real
    if type_oid in PLAIN:
        return plain
    special = {BOOL: boolean, BYTEA: binary, TIMESTAMP: timestamp, TIMESTAMPTZ: timestamptz}
    return special.get(type_oid, text)


def left_out(value: bytes) -> bytes:
    """Return anything: it is in no record."""
    return value


def text(value: bytes) -> bytes:
    """Return a JSON string."""
    return json.encode(value.decode())


def integer(value: bytes) -> bytes:
    """Return a JSON number."""
    return value


def real(value: bytes) -> bytes:
    """Return a JSON number that keeps its sign; what JSON has no number for as text."""
    return _SPECIAL.get(value, value)


def boolean(value: bytes) -> bytes:
    """Return true or false."""
    return b"true" if value == b"t" else b"false"


def timestamp(value: bytes) -> bytes:
    """Return ISO 8601 with a `T`; infinity and dates before year 1 as the server prints them."""
    return plain(value.translate(TO_ISO) if value[-1] <= NINE else value)


def timestamptz(value: bytes) -> bytes:
    """Return ISO 8601 in UTC with `T` and `Z`; infinity and dates before year 1 as the server prints them."""
    return plain(value[:-2].translate(TO_ISO) if value[-3:] == b"+00" else value)


def binary(value: bytes) -> bytes:
    """Return base64."""
    if not value.startswith(b"\\x"):
        raise ValueError("bytea is not in hexadecimal form")
    return plain(b2a_base64(unhexlify(value[2:]), newline=False))


def plain(value: bytes) -> bytes:
    """Return text that can hold nothing to escape as a JSON string."""
    return b'"%b"' % value


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


def binary_as(mode: str) -> Callable[[bytes], bytes]:
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


_SCALARS: Final = {
    16: "bool", 17: "bytea", 18: "char", 19: "name", 20: "int8", 21: "int2", 22: "int2vector", 23: "int4",
    24: "regproc", 25: "text", 26: "oid", 27: "tid", 28: "xid", 29: "cid", 30: "oidvector", 114: "json", 142: "xml",
    194: "pg_node_tree", 600: "point", 601: "lseg", 602: "path", 603: "box", 604: "polygon", 628: "line", 650: "cidr",
    700: "float4", 701: "float8", 718: "circle", 774: "macaddr8", 790: "money", 829: "macaddr", 869: "inet",
    1033: "aclitem", 1042: "bpchar", 1043: "varchar", 1082: "date", 1083: "time", 1114: "timestamp",
    1184: "timestamptz", 1186: "interval", 1266: "timetz", 1560: "bit", 1562: "varbit", 1700: "numeric",
    1790: "refcursor", 2202: "regprocedure", 2203: "regoper", 2204: "regoperator", 2205: "regclass", 2206: "regtype",
    2950: "uuid", 2970: "txid_snapshot", 3220: "pg_lsn", 3361: "pg_ndistinct", 3402: "pg_dependencies",
    3614: "tsvector", 3615: "tsquery", 3642: "gtsvector", 3734: "regconfig", 3769: "regdictionary", 3802: "jsonb",
    3904: "int4range", 3906: "numrange", 3908: "tsrange", 3910: "tstzrange", 3912: "daterange", 3926: "int8range",
    4072: "jsonpath", 4089: "regnamespace", 4096: "regrole", 4191: "regcollation", 4451: "int4multirange",
    4532: "nummultirange", 4533: "tsmultirange", 4534: "tstzmultirange", 4535: "datemultirange",
    4536: "int8multirange", 4600: "pg_brin_bloom_summary", 4601: "pg_brin_minmax_multi_summary", 5017: "pg_mcv_list",
    5038: "pg_snapshot", 5069: "xid8",
}  # fmt: skip
_ARRAYS: Final = {
    143: "xml", 199: "json", 210: "pg_type", 270: "pg_attribute", 271: "xid8", 272: "pg_proc", 273: "pg_class",
    629: "line", 651: "cidr", 719: "circle", 775: "macaddr8", 791: "money", 1000: "bool", 1001: "bytea", 1002: "char",
    1003: "name", 1005: "int2", 1006: "int2vector", 1007: "int4", 1008: "regproc", 1009: "text", 1010: "tid",
    1011: "xid", 1012: "cid", 1013: "oidvector", 1014: "bpchar", 1015: "varchar", 1016: "int8", 1017: "point",
    1018: "lseg", 1019: "path", 1020: "box", 1021: "float4", 1022: "float8", 1027: "polygon", 1028: "oid",
    1034: "aclitem", 1040: "macaddr", 1041: "inet", 1115: "timestamp", 1182: "date", 1183: "time",
    1185: "timestamptz", 1187: "interval", 1231: "numeric", 1263: "cstring", 1270: "timetz", 1561: "bit",
    1563: "varbit", 2201: "refcursor", 2207: "regprocedure", 2208: "regoper", 2209: "regoperator", 2210: "regclass",
    2211: "regtype", 2949: "txid_snapshot", 2951: "uuid", 3221: "pg_lsn", 3643: "tsvector", 3644: "gtsvector",
    3645: "tsquery", 3735: "regconfig", 3770: "regdictionary", 3807: "jsonb", 3905: "int4range", 3907: "numrange",
    3909: "tsrange", 3911: "tstzrange", 3913: "daterange", 3927: "int8range", 4073: "jsonpath", 4090: "regnamespace",
    4097: "regrole", 4192: "regcollation", 5039: "pg_snapshot", 6150: "int4multirange", 6151: "nummultirange",
    6152: "tsmultirange", 6153: "tstzmultirange", 6155: "datemultirange", 6157: "int8multirange",
}  # fmt: skip

#: Names by OID, arrays as `_int4`.
NAMES: Final = _SCALARS | {oid: f"_{name}" for oid, name in _ARRAYS.items()}
#: OIDs by name.
OIDS: Final = {name: oid for oid, name in NAMES.items()}
