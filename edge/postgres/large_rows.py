"""Changes whose record would be too large, found by the lengths in their message, before they are decoded.

Decoding takes many times the memory of a value. So the large columns of such a change are taken out of its message, and its
record's size, and the SHA-256 of its row as JSON, are summed up from pieces of them: what a dead letter needs. Only texts and
`bytea` in their ordinary forms are looked at; nothing else in PostgreSQL grows as large. Assumes a message of the table.
"""

import codecs
from binascii import b2a_base64, unhexlify
from collections.abc import Iterator
from hashlib import sha256
from typing import NamedTuple

from msgspec import json

from edge.postgres import values
from edge.postgres.rows import HEADER, NULL, TEXT, UNCHANGED, Table
from edge.records.envelope import TooLarge

#: A column that is larger, in bytes, is taken out.
_LARGE = 64 << 10
#: Pieces in which such a column is converted, in bytes: of hexadecimal digits a whole number of three bytes each.
_PIECE = 3 << 18


class _Column(NamedTuple):
    kind: int
    #: Where its text begins in the message, and how long it is.
    at: int
    length: int


_Tuple = list[_Column]


class LargeChange(NamedTuple):
    """A change without its large columns."""

    #: In place of the message: large columns are empty texts.
    message: bytes
    columns: list[tuple[int, _Column]]
    source: memoryview

    def too_large(self, value: bytes, table: Table) -> TooLarge:
        """Return what the record would have been; `value` is that of the message without large columns."""
        size = len(value)
        for number, column in self.columns:
            # In place of an empty text in quotes.
            size += sum(map(len, _pieces(table, number, self.source, column))) - 2
        largest, _ = max(self.columns, key=lambda found: found[1].length)
        return TooLarge(size, _digest(table, self.source), json.decode(table.names[largest]))


def find_large(table: Table, message: bytes, largest: int) -> LargeChange | None:
    """Return a change whose record is certainly beyond the largest size in bytes; None for any other."""
    source = memoryview(message)
    held, large, size = set(table.held), [], 0
    for columns in _tuples(table, source):
        for number, column in enumerate(columns):
            convert = table.converters[number]
            if (
                column.kind == TEXT
                and column.length > _LARGE
                and number in held
                and number not in table.key_columns
                and convert in {values.text, values.binary}
            ):
                large.append((number, column))
                # JSON has as many bytes as a text, and two thirds of the hexadecimal digits.
                size += column.length if convert is values.text else column.length * 2 // 3
    if size <= largest:
        return None
    pieces: list[bytes | memoryview] = []
    end = 0
    for number, column in large:
        empty = b"\\x" if table.converters[number] is values.binary else b""
        pieces += [source[end : column.at - 4], len(empty).to_bytes(4, "big"), empty]
        end = column.at + column.length
    return LargeChange(b"".join([*pieces, source[end:]]), large, source)


def _tuples(table: Table, message: memoryview) -> list[_Tuple]:
    """Return the tuples of an Insert, Update or Delete message: the old one, if there is one, ahead of the new one."""
    found, offset = [], 8
    while True:
        columns = []
        for _ in table.kinds:
            kind = message[offset]
            length = HEADER(message, offset)[1] if kind == TEXT else 0
            offset += 5 if kind == TEXT else 1
            columns.append(_Column(kind, offset, length))
            offset += length
        found.append(columns)
        if message[offset : offset + 3] != table.new:
            return found
        offset += 3


def _digest(table: Table, source: memoryview) -> str:
    """Return the SHA-256 of the row's JSON, which is that of `edge.records.envelope.dead_letter`."""
    found = _tuples(table, source)
    if bytes(source[5:6]) == b"K":
        # The old tuple has the key alone; the nulls of its other columns are none.
        found[0] = [
            column if number in table.identity else column._replace(kind=UNCHANGED)
            for number, column in enumerate(found[0])
        ]
    row, before = found[-1], found[0]
    is_delete = bytes(source[:1]) == b"D"
    absent = table.fallbacks if is_delete else table.placeholders
    total, begins = sha256(), b"{"
    for number in table.held:
        column = row[number]
        if column.kind not in (TEXT, NULL):
            # What the log leaves out did not change, so an old row that carries it has the new one's value.
            column = before[number]
        if column.kind == NULL:
            pieces: Iterator[bytes] = iter([values.NULL])
        elif column.kind == TEXT:
            pieces = _pieces(table, number, source, column)
        elif (value := absent[number]) is not None:
            pieces = iter([value])
        else:
            continue
        total.update(b"%b%b:" % (begins, table.names[number]))
        for piece in pieces:
            total.update(piece)
        begins = b","
    total.update(b"}" if begins == b"," else b"{}")
    return total.hexdigest()


def _pieces(table: Table, number: int, source: memoryview, column: _Column) -> Iterator[bytes]:
    """Yield a column's JSON piece by piece."""
    convert, end = table.converters[number], column.at + column.length
    if column.length <= _LARGE or convert not in {values.text, values.binary}:
        yield convert(bytes(source[column.at : end]))
        return
    yield b'"'
    if convert is values.binary:
        for at in range(column.at + 2, end, _PIECE * 2):
            yield b2a_base64(unhexlify(source[at : min(at + _PIECE * 2, end)]), newline=False)
    else:
        decoder = codecs.getincrementaldecoder("utf-8")()
        for at in range(column.at, end, _PIECE):
            text = decoder.decode(source[at : min(at + _PIECE, end)], final=at + _PIECE >= end)
            yield json.encode(text)[1:-1]
    yield b'"'
