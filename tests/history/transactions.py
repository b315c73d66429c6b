"""What a source committed, as the checker wants it: transactions in commit order, each with its changes in order.

Values are in the form that docs/records.md gives them in JSON, so that both sides compare without knowing types.
"""

import base64
from typing import NamedTuple


class Number(NamedTuple):
    """A JSON number by its own text, so that none is rounded, and none equals a string."""

    text: str


Value = str | bool | Number | None
Row = dict[str, Value]


class Change(NamedTuple):
    """One row's change, or one table's truncation."""

    #: `schema.table`.
    table: str
    #: c, u, d or t, as in a record.
    op: str
    #: What the log says of the old row, nulls left out; None when it says nothing.
    old: Row | None
    #: The new row; None for a delete or truncate.
    new: Row | None
    #: Columns that the log did not carry.
    unchanged: tuple[str, ...] = ()


class Transaction(NamedTuple):
    """A committed transaction."""

    xid: int
    #: When it committed, in milliseconds since 1970.
    commit_ms: int
    #: Position of its last change in the log: its commit record lies behind that.
    last_change: int
    #: Where the log goes on behind its commit record.
    end: int
    changes: tuple[Change, ...]


_NUMBERS = {"smallint", "integer", "bigint", "oid", "real", "double precision"}
_NO_NUMBER = {"NaN", "Infinity", "-Infinity"}


def value(kind: str, text: str | None) -> Value:
    """Return a column's text as docs/records.md has it in JSON; `kind` is the type's SQL name."""
    if text is None:
        return None
    if kind in _NUMBERS:
        return text if text in _NO_NUMBER else Number(text)
    if kind == "boolean":
        return text == "true"
    if kind == "bytea":
        return base64.b64encode(bytes.fromhex(text.removeprefix("\\x"))).decode()
    if kind.startswith("timestamp") and text[-1].isdigit():
        return text.replace(" ", "T").removesuffix("+00") + ("Z" if kind.endswith("with time zone") else "")
    return text


def same(left: Value, right: Value) -> bool:
    """Whether two values are the same one; fractions may be printed in more than one way, integers in one only."""
    if left == right:
        return type(left) is type(right)
    if isinstance(left, Number) and isinstance(right, Number):
        whole = left.text.lstrip("-").isdigit() and right.text.lstrip("-").isdigit()
        return not whole and float(left.text) == float(right.text)
    return False
