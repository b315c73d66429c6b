"""A condition in SQL that is true of the rows with given keys, as records have keys (docs/mariadb.md).

Values become literals of the key's own types and character sets, so the server compares them in the column's own order. Called by
the engine.
"""

import base64
import re
import struct
from typing import Any

from edge.mysql import charset
from edge.mysql.connection import Database
from edge.mysql.snapshot_columns import Catalogued, quoted
from edge.mysql.snapshot_table import describe
from edge.snapshot.dead_letters import check_keys, unclear
from headrace.configuration.records import Records

_TEXTS = frozenset({"char", "varchar", "tinytext", "text", "mediumtext", "longtext"})
_BYTES = frozenset({"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"})
_NUMBERS = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint", "year"})
#: Written between quotes without escapes, after a check of what is in it.
_QUOTED = frozenset({"date", "time", "datetime", "timestamp", "uuid", "inet4", "inet6"})
_TIMES = frozenset({"date", "time", "datetime"})
_PLAIN = re.compile(r"[0-9a-fA-F:.T -]+Z?", re.ASCII)
_DECIMAL = re.compile(r"-?\d+(\.\d+)?", re.ASCII)
_BITS = re.compile(r"[01]+")
_FLOAT = struct.Struct("<f")


def condition(database: Database, name: str, keys: list[dict[str, Any]], records: Records) -> str:
    """Return the condition; raise NeedsOperator for a table that cannot be copied, and for keys that are not its own."""
    of, _, table = name.partition(".")
    found, _ = describe(database, of, table)
    columns = [found.columns[place] for place in found.places]
    names = [column.name for column in columns]
    for column in columns:
        if _has_form(column.data_type, records):
            raise unclear(name, f"{column.name!r} is written in one of Debezium's forms")
    check_keys(name, keys, names)
    rows = [
        " and ".join(f"{quoted(column.name)} = {_literal(column, key[column.name], name)}" for column in columns)
        for key in keys
    ]
    return " or ".join(f"({row})" for row in rows)


def _has_form(kind: str, records: Records) -> bool:
    """Whether values of a type are written in a form from which its text is not made again."""
    return (
        (kind == "decimal" and records.decimal != "string")
        or (kind in _TIMES and records.time != "iso")
        or (kind in _BYTES and records.binary != "base64")
    )


def _literal(column: Catalogued, value: Any, name: str) -> str:
    """Return a value of a record as SQL takes it."""
    kind = column.data_type
    try:
        found = _text(column, kind, value, name) if isinstance(value, str) else _number(kind, value)
    except (ValueError, OverflowError) as error:
        raise unclear(name, f"a value cannot be one of {column.name!r}") from error
    if found is None:
        raise unclear(name, f"a value cannot be one of {column.name!r}")
    return found


def _number(kind: str, value: Any) -> str | None:
    if isinstance(value, bool):
        return None
    if kind in _NUMBERS and isinstance(value, int):
        return str(value)
    if kind in {"float", "double"} and isinstance(value, int | float):
        # Columns of single precision are compared in double.
        exact = _FLOAT.unpack(_FLOAT.pack(value))[0] if kind == "float" else float(value)
        return f"{exact!r}" if "e" in repr(exact) else f"{exact!r}e0"
    return None


def _text(column: Catalogued, kind: str, value: str, name: str) -> str | None:
    if kind in _TEXTS and column.charset is not None and column.charset != charset.BINARY:
        utf8 = column.charset in charset.UTF8
        codec = "utf-8" if utf8 else charset.decoder(column.charset, f"{name}.{column.name}")
        return f"_{column.charset} x'{value.encode(codec).hex()}'"
    if kind in _BYTES | _TEXTS:
        return f"x'{base64.b64decode(value, validate=True).hex()}'"
    if kind in {"enum", "set"}:
        return f"_utf8mb4 x'{value.encode().hex()}'"
    return _written(kind, value)


def _written(kind: str, value: str) -> str | None:
    """Return a text that SQL takes nearly as it is."""
    if kind == "decimal" and _DECIMAL.fullmatch(value):
        return value
    if kind == "bit" and _BITS.fullmatch(value):
        return f"b'{value}'"
    if kind in _QUOTED and _PLAIN.fullmatch(value):
        # The session's time zone is UTC.
        return f"'{value.removesuffix('Z').replace('T', ' ')}'"
    return None
