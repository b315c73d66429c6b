"""Text values of PostgreSQL as JSON (docs/records.md): one function a kind, from the column's bytes to JSON bytes.

Assumes the session settings of edge/postgres/connection.py: ISO dates, UTC, hexadecimal bytea, UTF-8. Raises ValueError for
bytes that the server would not send. edge/postgres/rows_compiled.py does the same inline for what is ordinary.
"""

from binascii import b2a_base64, unhexlify
from collections.abc import Callable

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
