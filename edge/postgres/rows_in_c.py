"""Change decoders in C (edge/compiled/pgoutput.c), where that was compiled: plans for tables of ordinary columns.

They give the same bytes as edge/postgres/rows.py, to which they hand every message that holds something unusual, as functions of
edge/postgres/rows_compiled.py do. Tables with a column that has a form of its own (`[records]`, `[policy]`) have none.
"""

from collections.abc import Callable
from typing import Any, Final

from edge import compiled
from edge.postgres import values
from edge.postgres.rows import Change, Table

#: The module in C, or None.
module: Any = compiled.module

#: From rows, the first of them, free bytes, the largest row's, changed keys, lists for keys and values, and the parts of a record
#: from its ordinal on, to the first row that is not added, and what is left of the free bytes.
CopyRows = Callable[..., tuple[int, int]]

#: Of a column that is null, as it is not part of the key, in a tuple that has the key alone.
_ABSENT: Final = "0"
_TEXT: Final = "e"
#: How the module converts types, by OID; others are texts.
_FORMS: Final[dict[int, str]] = {
    values.LEFT_OUT: "-", values.BOOL: "b", values.BYTEA: "x", values.TIMESTAMP: "t", values.TIMESTAMPTZ: "z",
    **dict.fromkeys(values.INTEGERS, "n"), **dict.fromkeys(values.FLOATS, "f"), **dict.fromkeys(values.PLAIN, "p"),
}  # fmt: skip


def insert(table: Table) -> Change | None:
    """Return the function for Insert messages."""
    return _plan(table, table.insert, table.envelope.created, [_forms(table)], [b'{"before":null,"after":{', b"},"])


def update(table: Table) -> Change | None:
    """Return the function for Update messages with the new tuple alone."""
    return _plan(table, table.update, b"u", [_forms(table)], [b'{"before":null,"after":{', b"},"])


def whole_update(table: Table) -> Change | None:
    """Return the function for Update messages with the whole old tuple."""
    forms = _forms(table)
    return _plan(table, table.update, b"u", [forms, forms], [b'{"before":{', b'},"after":{', b"},"])


def delete(table: Table) -> Change | None:
    """Return the function for Delete messages with the whole tuple."""
    return _plan(table, table.delete, b"d", [_forms(table)], [b'{"before":{', b'},"after":null,'])


def key_delete(table: Table) -> Change | None:
    """Return the function for Delete messages with the key alone."""
    if any(fallback is not None for fallback in table.fallbacks):
        return None
    forms = [form if number in table.identity else _ABSENT for number, form in enumerate(_forms(table))]
    return _plan(table, table.delete, b"d", [forms], [b'{"before":{', b'},"after":null,'])


def _forms(table: Table) -> list[str]:
    return [_FORMS.get(kind, _TEXT) for kind in table.kinds]


def copied(table: Table) -> CopyRows | None:
    """Return the function for many rows of a table as COPY prints them."""
    insert_in_c: Any = insert(table)
    return insert_in_c and insert_in_c.__self__.copy  # type: ignore[no-any-return]


def _plan(table: Table, exact: Change, op: bytes, tuples: list[list[str]], around_rows: list[bytes]) -> Change | None:
    """Return a function for one kind of message, given the forms of its tuples and what is around their rows."""
    if module is None or values.FORMED in table.kinds or not table.kinds:
        return None
    if not all(tuples[-1][number] not in {"-", _ABSENT} for number in table.key_columns):
        return None
    shared = table.envelope
    *heads, last = around_rows
    constants = (*heads, last + shared.head, shared.middle, b'"},"op":"%b","ts_ms":' % op, b"}}")
    forms = "".join(form for forms in tuples for form in forms).encode()
    names = tuple(name + b":" for name in table.names) * len(tuples)
    change: Change = module.Plan(forms, names, tuple(table.key_columns), constants, exact).decode
    return change
