"""Text values of PostgreSQL as JSON (docs/records.md): one function a kind, from the column's bytes to JSON bytes.

Assumes the session settings of edge/postgres/connection.py: ISO dates, UTC, hexadecimal bytea, UTF-8. Raises ValueError for
bytes that the server would not send. edge/postgres/rows_compiled.py does the same inline for what is ordinary.

PostgreSQL's built-in types by OID.
"""

from binascii import b2a_base64, unhexlify
from collections.abc import Callable
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
