"""Changes with values that cannot be decoded: which columns these are, and the change without them.

The lengths in a message show where each column ends, whatever it holds. Where that is not so, this raises ValueError,
struct.error or IndexError, as edge/postgres/rows.py does. Called for messages that the table's own functions fail at.
"""

from typing import Final, NamedTuple

from edge.postgres import values
from edge.postgres.rows import HEADER, NULL, PAD, TEXT, UNCHANGED, Table
from edge.records.form_limits import UNDECODABLE

#: A column in its type's binary form, which no release requests.
_BINARY: Final = ord("b")
_WITH_LENGTH: Final = (TEXT, _BINARY)
#: In place of a value: null in a new row; and not carried by the log in an old one, of which the rest is enough.
_NULL, _UNCHANGED = b"n", b"u"


class Repaired(NamedTuple):
    """A change without the values that cannot be decoded."""

    message: bytes
    #: A column of the new row that has one; None where only the old row has.
    column: str | None
    #: A column of the key that has one.
    key_column: str | None


def without_undecodable(table: Table, message: bytes) -> Repaired:
    """Return an Insert, Update or Delete message of a table without what of it cannot be decoded.

    Raises ValueError where that is nothing.
    """
    padded, end, at = message + PAD, len(message), 5
    pieces, column, key_column = [message[:5]], None, None
    while at < end:
        is_new = padded[at : at + 1] == b"N"
        if padded[at + 1 : at + 3] != table.new[1:]:
            raise ValueError("a tuple has another number of columns than its table")
        pieces.append(padded[at : at + 3])
        at += 3
        for number, name in enumerate(table.relation.columns):
            kind, length = HEADER(padded, at)
            if kind not in (*_WITH_LENGTH, NULL, UNCHANGED):
                raise ValueError("a column is neither text, null nor unchanged")
            start, at = at, at + (5 + length if kind in _WITH_LENGTH else 1)
            if at > end:
                raise ValueError("a column ends behind its message")
            if kind in (NULL, UNCHANGED) or (kind == TEXT and _is_decoded(table, number, padded[start + 5 : at])):
                pieces.append(padded[start:at])
                continue
            pieces.append(_NULL if is_new else _UNCHANGED)
            if number in table.key_columns:
                key_column = key_column or name.name
            elif is_new and table.kinds[number] != values.LEFT_OUT:
                column = column or name.name
    repaired = b"".join(pieces)
    if repaired == message:
        raise ValueError("a change cannot be decoded, and each of its columns can")
    return Repaired(repaired, column, key_column)


def _is_decoded(table: Table, number: int, text: bytes) -> bool:
    try:
        table.converters[number](text)
    except UNDECODABLE:
        return False
    return True
