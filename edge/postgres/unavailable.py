"""What a row has in place of a column that the log does not carry, where rows have all columns (`[records] unavailable`).

A new row has Debezium's placeholder, in the form of the column's type. An old row of which the log has the key alone has null,
or, for a column that is NOT NULL, the empty value of its type, as Debezium's has. Called when a relation is announced.
"""

from base64 import b64encode, urlsafe_b64encode
from collections.abc import Sequence
from typing import Final

from edge.postgres import values
from edge.postgres.debezium_types import PLACEHOLDER, DebeziumType
from edge.postgres.values import OIDS
from headrace.configuration.records import Records
from headrace.schema import Column

_TEXT: Final = b'"%b"' % PLACEHOLDER
_EMPTY: Final = {
    **dict.fromkeys(values.INTEGERS, b"0"),
    **dict.fromkeys(values.FLOATS, b"0.0"),
    values.BOOL: b"false",
    values.TIMESTAMPTZ: b'"1970-01-01T00:00:00Z"',
    values.TIMESTAMP: b'"1970-01-01T00:00:00"',
    OIDS["date"]: b'"1970-01-01"',
    OIDS["time"]: b'"00:00:00"',
    OIDS["numeric"]: b'"0"',
}


def placeholders(columns: Sequence[tuple[int, DebeziumType | None]], records: Records) -> list[bytes | None]:
    """Return what a new row has for each column, by its type's OID or its form."""
    binary = {"base64": b64encode(PLACEHOLDER), "base64-url-safe": urlsafe_b64encode(PLACEHOLDER)}
    of_bytes = b'"%b"' % binary.get(records.binary or "", PLACEHOLDER)
    return [
        form.placeholder if form is not None else of_bytes if type_oid == values.BYTEA else _TEXT
        for type_oid, form in columns
    ]


def fallbacks(
    columns: Sequence[tuple[int, DebeziumType | None]], described: Sequence[Column | None]
) -> list[bytes | None]:
    """Return what an old row has for each column; `described` has them as the schema record does, None for those left out."""
    return [
        values.NULL
        if column is None or column.optional
        else form.empty
        if form is not None
        else _EMPTY.get(type_oid, b'""')
        for (type_oid, form), column in zip(columns, described, strict=True)
    ]
