"""A condition in SQL that is true of the rows with given keys, as records have keys (docs/types.md).

Values become literals that the server casts to the key's own types, so nothing is compared as text. Called by the engine.
"""

import base64
import binascii
from typing import Any

from edge.postgres.connection import Database
from edge.postgres.snapshot_table import describe, literal
from edge.snapshot.dead_letters import check_keys, unclear
from headrace.configuration.records import Records

#: Of each column of a table the type beneath its domain.
_BASES = """
with recursive base as (
    select a.attname, t.oid, t.typtype, t.typbasetype from pg_attribute a join pg_type t on t.oid = a.atttypid
    where a.attrelid = %s::int8::oid and a.attnum > 0 and not a.attisdropped
    union all
    select b.attname, t.oid, t.typtype, t.typbasetype from base b join pg_type t on b.typtype = 'd' and t.oid = b.typbasetype
)
select attname::text, oid::regtype::text from base where typtype <> 'd'
"""
_TIMES = frozenset({"date", "time without time zone", "timestamp without time zone"})
_OTHERS = frozenset({"time with time zone", "money", "bit", "bit varying"})


def condition(database: Database, publication: str, name: str, keys: list[dict[str, Any]], records: Records) -> str:
    """Return the condition; raise NeedsOperator for a table that cannot be copied, and for keys that are not its own."""
    table = describe(database, publication, name)
    bases = dict(database.rows(_BASES, table.oid))
    for column in table.key_names:
        base = bases[column]
        if _has_form(base, records):
            raise unclear(name, f"{column!r} is written in one of Debezium's forms")
    check_keys(name, keys, table.key_names)
    rows = [
        ", ".join(
            f"{literal(_text(key[column], bases[column], name))}::{cast}"
            for column, cast in zip(table.key_names, table.casts, strict=True)
        )
        for key in keys
    ]
    return f"({table.ordered}) in ({', '.join(f'({row})' for row in rows)})"


def _has_form(base: str, records: Records) -> bool:
    """Whether values of a type are written in a form from which its text is not made again."""
    return (
        (base == "numeric" and records.decimal != "string")
        or (base in _TIMES and records.time != "iso")
        or (base == "bytea" and records.binary != "base64")
        or (base == "interval" and records.interval != "text")
        or (records.types == "debezium" and (base in _OTHERS or base.endswith("[]")))
    )


def _text(value: Any, base: str, name: str) -> str:
    """Return a value as the type's input function takes it."""
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case str() if base == "bytea":
            try:
                return "\\x" + base64.b64decode(value, validate=True).hex()
            except binascii.Error as error:
                raise unclear(name, "a value is not in base64") from error
        case str() if "\0" not in value:
            return value
    raise unclear(name, "a value cannot be one of a key")
