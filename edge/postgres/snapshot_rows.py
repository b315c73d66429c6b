r"""Rows as COPY writes them in text form, turned into the tuples that the log has (PostgreSQL manual, "COPY", "Text Format").

Columns stand between tabs and a row ends with a line feed; null is `\N`. Within a column a backslash stands before backslash,
and in `\b \f \n \r \t \v`. Both COPY and pgoutput print values by the types' output functions, so the tuples equal those of the
log byte for byte.
"""

import re
import struct
from collections.abc import Callable

from edge.postgres.rows import PAD

_NULL = b"\\N"
_ESCAPED = re.compile(rb"\\(.)", re.DOTALL)
_CHARACTERS = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}
_HEADER = struct.Struct(">cI").pack
#: Byte1('t') Int32(length), for columns of ordinary lengths.
_HEADERS = [_HEADER(b"t", length) for length in range(4096)]


def columns(row: bytes) -> list[bytes | None]:
    """Return the columns of a row, None for null."""
    return [None if column == _NULL else _plain(column) for column in row.split(b"\t")]


def insert(oid: int, count: int) -> Callable[[bytes], bytes]:
    """Return what turns rows of a relation with so many columns into padded Insert messages; ValueError for another number.

    Byte1('I') Int32(relation) Byte1('N') Int16(columns) {Byte1('n') | Byte1('t') Int32(length) Byten(text)}...
    """
    head = b"I" + oid.to_bytes(4, "big") + b"N" + count.to_bytes(2, "big")
    join = b"".join

    def escaped(row: bytes) -> bytes:
        return head + join([_column(column) for column in row.split(b"\t")]) + PAD

    names = [f"c{number}" for number in range(count)]
    # Straight code for rows without null, escape or long text: nothing but lookups of headers, and one join.
    source = f"""
def message(row):
    {", ".join(names)}, = row.split(tab)
    if backslash not in row:
        try:
            return join((head, {", ".join(f"header[len({name})], {name}" for name in names)}, pad))
        except IndexError:
            pass
    return escaped(row)
"""
    scope = {
        "tab": b"\t",
        "backslash": b"\\",
        "join": join,
        "head": head,
        "header": _HEADERS,
        "pad": PAD,
        "escaped": escaped,
    }
    exec(compile(source, f"<rows of {oid}>", "exec"), scope)  # noqa: S102 - made of numbers alone.
    message: Callable[[bytes], bytes] = scope["message"]  # type: ignore[assignment]
    return message


def _column(column: bytes) -> bytes:
    if column == _NULL:
        return b"n"
    text = _plain(column)
    return _HEADER(b"t", len(text)) + text


def _plain(column: bytes) -> bytes:
    return _ESCAPED.sub(_character, column) if b"\\" in column else column


def _character(match: re.Match[bytes]) -> bytes:
    character = match[1]
    return _CHARACTERS.get(character, character)
