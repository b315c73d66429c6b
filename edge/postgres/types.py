"""PostgreSQL's built-in types by OID, and Debezium's own forms of numbers and times.

OIDs below 10000 are the same in every server; types with greater ones are named by the log itself, in Type messages. A form is a
function from the database's text to JSON, for consumers that expect it instead of text (`[records] decimal` and `time`), and
Debezium's name for it, which is in the schema record. What a form has no value for stays text: `NaN` and infinities. Used when a
relation is announced; the functions run for each value.
"""

import re
from base64 import b64encode
from collections.abc import Callable
from decimal import Context, Decimal
from typing import Final, NamedTuple

from headrace.configuration.records import Records

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


_DATE, _TIME, _TIMESTAMP, _NUMERIC = OIDS["date"], OIDS["time"], OIDS["timestamp"], OIDS["numeric"]
_NO_NUMBER: Final = frozenset({b"NaN", b"Infinity", b"-Infinity", b"infinity", b"-infinity"})
_MOMENT = re.compile(rb"(?:(\d+)-(\d\d)-(\d\d))?(?:(?:^| )(\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?)?( BC)?")
#: PostgreSQL's numeric has up to 147,455 digits.
_EXACT = Context(prec=200_000)
#: Digits of a second that are a millisecond's or more.
_MILLISECONDS = 3
_DAY_MICROSECONDS = 86_400_000_000


class DebeziumType(NamedTuple):
    """How values of a column are written."""

    #: As Debezium names it in its schemas.
    name: str
    convert: Callable[[bytes], bytes]
    #: What a row has for a value that the log does not carry, and a NOT NULL column of an old row that it does not carry.
    placeholder: bytes = b'"__debezium_unavailable_value"'
    empty: bytes = b'""'


def debezium_type(type_oid: int, modifier: int, records: Records) -> DebeziumType | None:
    """Return the form of a column that is not written in the ordinary form, None for one that is."""
    if type_oid == _NUMERIC and records.decimal != "string":
        return _decimal(modifier, precise=records.decimal == "precise")
    if records.time == "iso" or type_oid not in {_DATE, _TIME, _TIMESTAMP}:
        return None
    connect = records.time == "connect"
    if type_oid == _DATE:
        return DebeziumType(
            "org.apache.kafka.connect.data.Date" if connect else "io.debezium.time.Date", _written(_days)
        )
    name = "Time" if type_oid == _TIME else "Timestamp"
    if connect:
        return DebeziumType(f"org.apache.kafka.connect.data.{name}", _written(_milliseconds))
    if 0 <= modifier <= _MILLISECONDS:
        return DebeziumType(f"io.debezium.time.{name}", _written(_milliseconds))
    return DebeziumType(f"io.debezium.time.Micro{name}", _written(_microseconds))


def _decimal(modifier: int, *, precise: bool) -> DebeziumType:
    if not precise:
        return DebeziumType("double", _written(lambda text: repr(float(_number(text))).encode()))
    if modifier < 0:
        return DebeziumType("io.debezium.data.VariableScaleDecimal", _written(_variable))
    scale = ((modifier - 4) & 0x7FF ^ 0x400) - 0x400
    return DebeziumType(
        "org.apache.kafka.connect.data.Decimal", _written(lambda text: b'"%b"' % _unscaled(text, scale))
    )


def _written(write: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    """Return the conversion that leaves what is no number as text."""

    def convert(text: bytes) -> bytes:
        written = b'"%b"' % text if text in _NO_NUMBER else write(text)
        # Too large for a double.
        return b'"Infinity"' if written == b"inf" else b'"-Infinity"' if written == b"-inf" else written

    return convert


def _unscaled(text: bytes, scale: int) -> bytes:
    """Return base64 of the number times ten to the scale, big-endian, two's complement, in as few bytes as Java does."""
    number = int(_number(text).scaleb(scale, _EXACT))
    return b64encode(number.to_bytes((number if number >= 0 else ~number).bit_length() // 8 + 1, "big", signed=True))


def _variable(text: bytes) -> bytes:
    scale = len(text.partition(b".")[2])
    return b'{"scale":%d,"value":"%b"}' % (scale, _unscaled(text, scale))


def _number(text: bytes) -> Decimal:
    if not text.isascii() or text.strip(b"-0123456789.") != b"":
        raise ValueError("a numeric is no number")
    try:
        return Decimal(text.decode())
    except ArithmeticError as error:
        raise ValueError("a numeric is no number") from error


def _days(text: bytes) -> bytes:
    days, _ = _moment(text)
    return b"%d" % days


def _milliseconds(text: bytes) -> bytes:
    days, microseconds = _moment(text)
    return b"%d" % ((days * _DAY_MICROSECONDS + microseconds) // 1000)


def _microseconds(text: bytes) -> bytes:
    days, microseconds = _moment(text)
    return b"%d" % (days * _DAY_MICROSECONDS + microseconds)


def _moment(text: bytes) -> tuple[int, int]:
    """Return days since 1970 (0 for a time of day) and microseconds in the day."""
    match = _MOMENT.fullmatch(text)
    if match is None or not text:
        raise ValueError("a date or time is none")
    year, month, day, hour, minute, second, fraction, before_christ = match.groups()
    days = 0
    if year is not None:
        days = _day_number(1 - int(year) if before_christ else int(year), int(month), int(day))
    seconds = 0 if hour is None else int(hour) * 3600 + int(minute) * 60 + int(second)
    return days, seconds * 1_000_000 + int((fraction or b"").ljust(6, b"0"))


def _day_number(year: int, month: int, day: int) -> int:
    """Return days since 1970-01-01 in the Gregorian calendar, extended to all years; year 0 is 1 BC."""
    # Years that begin in March have their leap day last.
    year -= month <= 2
    era, year_of_era = divmod(year, 400)
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * 146_097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - 719_468
