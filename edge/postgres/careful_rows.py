"""Changes read with care: where values cannot be decoded, which columns these are; and where a record would be too large.

The lengths in a message show where each column ends, whatever it holds. Where that is not so, this raises ValueError,
struct.error or IndexError, as edge/postgres/rows.py does. Called for messages that the table's own functions fail at.

Decoding takes many times the memory of a value. So the large columns of such a change are taken out of its message, and its
record's size, and the SHA-256 of its row as JSON, are summed up from pieces of them: what a dead letter needs. Only texts and
`bytea` in their ordinary forms are looked at; nothing else in PostgreSQL grows as large. Assumes a message of the table.
"""

import codecs
from binascii import b2a_base64, unhexlify
from collections.abc import Iterator
from hashlib import sha256
from typing import Final, NamedTuple

from msgspec import json

from edge.postgres import values
from edge.postgres.rows import HEADER, NULL, PAD, TEXT, UNCHANGED, Table
from edge.records.column_policy import UNDECODABLE
from edge.records.envelope import TooLarge

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
        largest, _ = max(self.columns, key=lambda pair: pair[1].length)
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
    tuples, offset = [], 8
    while True:
        columns = []
        for _ in table.kinds:
            kind = message[offset]
            length = HEADER(message, offset)[1] if kind == TEXT else 0
            offset += 5 if kind == TEXT else 1
            columns.append(_Column(kind, offset, length))
            offset += length
        tuples.append(columns)
        if message[offset : offset + 3] != table.new:
            return tuples
        offset += 3


def _digest(table: Table, source: memoryview) -> str:
    """Return the SHA-256 of the row's JSON, which is that of `edge.records.envelope.dead_letter`."""
    tuples = _tuples(table, source)
    if bytes(source[5:6]) == b"K":
        # The old tuple has the key alone; the nulls of its other columns are none.
        tuples[0] = [
            column if number in table.identity else column._replace(kind=UNCHANGED)
            for number, column in enumerate(tuples[0])
        ]
    row, before = tuples[-1], tuples[0]
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
