"""Values as Connect schemas describe them, as the edge's records have them (docs/records.md, docs/mariadb.md).

The engine is asked for text wherever it can give it, and has times of its own types in our form (RecordJson.java); what is left
differs in details. The result is what an edge of ours for the same database writes, but for what docs/debezium.md lists.
"""

import re
import struct
from base64 import b64decode, b64encode
from collections.abc import Callable
from datetime import date, timedelta
from typing import Any, Final

import msgspec
from msgspec import json

from edge.mysql.column_text import double_text
from edge.mysql.values import double_json, float_json
from headrace.schema import Column

#: From a value as JSON has it to the value in a record.
Convert = Callable[[Any], Any]
_BITS = "io.debezium.data.Bits"
_PLAIN_ELEMENT = re.compile(r'[^\s{}",\\]+')


def array(value: list[Any]) -> str:
    """Return an array as PostgreSQL prints it."""
    return "{" + ",".join(map(_element, value)) + "}"


def _element(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "t" if value else "f"
    if isinstance(value, list):
        return array(value)
    text = value if isinstance(value, str) else json.encode(value).decode()
    if _PLAIN_ELEMENT.fullmatch(text) and text.upper() != "NULL":
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def bits(length: int) -> Convert:
    """Return what turns bits, lowest byte first in base64, into their digits; a length of 0 is any."""

    def digits(value: str) -> str:
        number = int.from_bytes(b64decode(value), "little")
        return f"{number:0{length}b}" if length else f"{number:b}"

    return digits


def single_bit(value: bool) -> str:
    """Return the digit of a column of one bit."""
    return "1" if value else "0"


def same(value: Any) -> Any:
    """Return numbers, text and booleans as they are, and what has parts as the JSON of them."""
    return json.encode(value).decode() if isinstance(value, dict | list) else value


def converter(schema: dict[str, Any], type_name: str) -> Convert:
    """Return the function for a field by its schema, and the source's name of its type."""
    name = schema.get("name") or ""
    if name == _BITS:
        return bits(int((schema.get("parameters") or {}).get("length", 0)))
    if schema.get("type") == "array":
        element = converter(schema.get("items") or {}, type_name.removeprefix("_"))
        return lambda value: array([None if each is None else element(each) for each in value])
    if schema.get("type") == "boolean" and type_name == "bit":
        return single_bit
    return same


_NUMBERS: Final = frozenset({"TINYINT", "SMALLINT", "MEDIUMINT", "INT", "BIGINT"})
#: Names by which Debezium has a type that has another one in our schema records.
_NAMES: Final = {
    "INTEGER": "INT", "BOOLEAN": "TINYINT", "BOOL": "TINYINT", "NUMERIC": "DECIMAL", "DEC": "DECIMAL", "FIXED": "DECIMAL",
    "REAL": "DOUBLE", "NCHAR": "CHAR", "CHARACTER": "CHAR", "NVARCHAR": "VARCHAR",
}  # fmt: skip
_SIZED: Final = frozenset({"CHAR", "VARCHAR", "BINARY", "VARBINARY", "BIT"})
_MOMENTS: Final = frozenset({"DATETIME", "TIMESTAMP", "TIME"})
_GEOMETRIES: Final = "io.debezium.data.geometry."
_SINGLE: Final = struct.Struct("<f")
_1970: Final = date(1970, 1, 1)
#: The first day of the year 1, in days from 1970 on.
_YEAR_1: Final = -719_162


def binlog_column(
    field: dict[str, Any], described: tuple[str, int | None, int | None], position: int, kind: str, *, optional: bool
) -> Column:
    """Return a column as our own edge describes it; `described` is its type by the source's name, its length and its scale."""
    words = described[0].upper().split()
    name, length, scale = _NAMES.get(words[0], words[0]), described[1], described[2]
    if name in _NUMBERS:
        name, length, scale = name + " UNSIGNED" * ("UNSIGNED" in words or "ZEROFILL" in words), None, None
    elif str(field.get("name")).startswith(_GEOMETRIES):
        name, length, scale = "GEOMETRY", None, None
    elif name == "JSON" and kind == "mariadb":
        # There it is another name of it.
        name, length, scale = "LONGTEXT", None, None
    elif name == "DECIMAL":
        length, scale = length or 10, scale or 0
    elif name in _MOMENTS:
        length, scale = length or 0, None
    else:
        length, scale = (length if name in _SIZED else None), None
    return Column(name=field["field"], type_name=name, length=length, scale=scale, position=position, optional=optional)


def binlog_converter(field: dict[str, Any], column: Column) -> Convert:
    """Return the function for a field by its schema, and the column that it is."""
    name, digits = str(field.get("name")), column.length or 0
    if column.type_name == "TINYINT" and field.get("type") == "boolean":
        return int
    if column.type_name == "BIT":
        return bits(column.length or 1) if name.endswith("Bits") else single_bit
    if name.startswith(_GEOMETRIES):
        return _geometry
    if column.type_name in _MOMENTS:
        return {
            "io.debezium.time.Timestamp": lambda value: _moment(value * 1000, digits),
            "io.debezium.time.MicroTimestamp": lambda value: _moment(value, digits),
            "io.debezium.time.ZonedTimestamp": lambda value: _zoned(value, digits),
            "io.debezium.time.MicroTime": lambda value: _time(value, digits),
        }.get(name, same)
    return _BY_TYPE.get(column.type_name, same)


#: A string, a number with an exponent, or what a space follows, of a JSON document.
_JSON_PART: Final = re.compile(r'"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?E-?\d+|[,:]')


def _json(text: str) -> str:
    """Return a document as MySQL prints it: with spaces, and doubles in the server's digits."""
    return _JSON_PART.sub(_json_part, text)


def _json_part(part: re.Match[str]) -> str:
    text = part[0]
    if text[0] == '"':
        return json.encode(json.decode(text)).decode() if "\\" in text else text
    return text + " " if text in ",:" else double_text(float(text))


def _geometry(value: dict[str, Any]) -> str:
    """Return the server's own form: the SRID in four bytes, then WKB."""
    srid = int(value.get("srid") or 0)
    return b64encode(srid.to_bytes(4, "little") + b64decode(value["wkb"])).decode()


def _date(days: int) -> str:
    # Python has no year 0, which is after 400 years as it was.
    years = 400 if days < _YEAR_1 else 0
    day = _1970 + timedelta(days=days + 146_097 * bool(years))
    return f"{day.year - years:04}-{day:%m-%d}"


def _moment(micros: int, digits: int) -> str:
    days, micros = divmod(micros, 86_400_000_000)
    return f"{_date(days)}T{_time(micros, digits)}"


def _zoned(text: str, digits: int) -> str:
    whole, _, fraction = text.removesuffix("Z").partition(".")
    return whole + _fraction(int(fraction.ljust(6, "0")[:6] or 0), digits) + "Z"


def _time(micros: int, digits: int) -> str:
    seconds, fraction = divmod(abs(micros), 1_000_000)
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return "-" * (micros < 0) + clock + _fraction(fraction, digits)


def _fraction(micros: int, digits: int) -> str:
    return f".{micros:06}"[: digits + 1] if digits else ""


def _float(value: float) -> msgspec.Raw:
    # Debezium's has the digits of single precision, which are no number of it.
    return msgspec.Raw(float_json(*_SINGLE.unpack(_SINGLE.pack(value))))


def _double(value: float) -> msgspec.Raw:
    return msgspec.Raw(double_json(value))


_BY_TYPE: Final[dict[str, Convert]] = {
    "DATE": _date,
    "JSON": _json,
    "FLOAT": _float,
    "DOUBLE": _double,
    # Debezium's are negative above 2^63 - 1.
    "BIGINT UNSIGNED": lambda value: value % (1 << 64),
}
