"""Values as Connect schemas describe them, as the edge's records have them (docs/records.md): ISO times, text decimals.

The engine is asked for text wherever it can give it (`engine_settings`); what is left differs in details. The result is what a
PostgreSQL edge of ours writes, but for what docs/debezium.md lists.
"""

import re
from base64 import b64decode
from collections.abc import Callable
from typing import Any, Final

from msgspec import json

#: From a value as JSON has it to the value in a record.
Convert = Callable[[Any], Any]
_FRACTION = re.compile(r"(\.\d*?)0+(?=\D|$)")
_OF_UTC = re.compile(r"(?:\+00:00|\+00|Z)$")
_BITS = "io.debezium.data.Bits"
_PLAIN_ELEMENT = re.compile(r'[^\s{}",\\]+')


def timestamp(value: str) -> str:
    """Return a time without a zone as ISO 8601, without zeros at its end."""
    return _short(value).removesuffix("Z")


def timestamptz(value: str) -> str:
    """Return a time in UTC as ISO 8601, without zeros at its end."""
    return _OF_UTC.sub("Z", _short(value))


def timetz(value: str) -> str:
    """Return a time of day with its offset, as PostgreSQL prints it."""
    return re.sub(r"([+-]\d\d):00$", r"\1", _OF_UTC.sub("+00", _short(value)))


def _short(value: str) -> str:
    return _FRACTION.sub(lambda match: match[1] if len(match[1]) > 1 else "", value)


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


_BY_NAME: Final[dict[str, Convert]] = {
    "io.debezium.time.IsoTimestamp": timestamp,
    "io.debezium.time.ZonedTimestamp": timestamptz,
    "io.debezium.time.IsoDate": lambda value: value.removesuffix("Z"),
    "io.debezium.time.IsoTime": timestamp,
    "io.debezium.time.ZonedTime": timetz,
}


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
    return _BY_NAME.get(name, same)
