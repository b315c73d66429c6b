"""Changes whose record would be too large, found by the lengths in their images, before they are decoded (G7).

Decoding takes many times the memory of a value. So the large columns of such an image are taken out of it, as nulls, and its
record's size, and the SHA-256 of its row as JSON, are summed up from pieces of them: what a dead letter needs. Only texts and
binary values in their ordinary forms are looked at; nothing else grows as large.
"""

import codecs
from binascii import b2a_base64
from collections.abc import Iterator
from hashlib import sha256
from typing import Final, NamedTuple

from msgspec import Raw, json

from edge.mysql import events
from edge.mysql.careful_rows import LargeRow, RowChange
from edge.mysql.column_codec import ColumnCodec, blank
from edge.mysql.rows_compiled import Images

#: A column that is larger, in bytes, is taken out.
_LARGE: Final = 64 << 10
#: Pieces in which such a column is converted, in bytes: a whole number of three bytes each.
_PIECE: Final = 3 << 18


class _Image(NamedTuple):
    """An image: its nulls, where it begins behind them, and where each column ends that is there."""

    nulls: bytes
    start: int
    ends: dict[str, int | None]
    end: int


class _Row(NamedTuple):
    key: bytes | None
    #: With nulls in place of the large columns.
    row: bytes
    #: The large columns' values, by name.
    large: dict[str, tuple[bool, memoryview]]


class LargeRows:
    """The images of one table's large rows events."""

    def __init__(self, columns: list[str], codes: list[ColumnCodec], key: list[int], images: Images) -> None:
        """`columns`: the names of all that images hold; `images`: the functions by which they are decoded."""
        self._columns, self._codes, self._images = columns, codes, images
        self._bytes = (len(codes) + 7) // 8
        self._heads = {
            columns[number]: code.length_bytes
            for number, code in enumerate(codes)
            if code.length_bytes and not code.policy and not code.form_name and number not in key
        }
        ends = [
            blank(code)._replace(lines=("e_{v} = p",), form="%d", arguments=("e_{v}",), policy=None) for code in codes
        ]
        self._ends = Images([json.encode(name) for name in columns], ends, [])

    def changes(self, kind: int, m: bytes, p: int, e: int, largest: int) -> Iterator[RowChange]:
        """Yield the changes of a rows event from `p` to `e`, without large columns where a record would be beyond `largest`.

        Raises as the table's functions do.
        """
        view = memoryview(m)
        while p < e:
            old = new = None
            if kind not in events.INSERTS:
                old = self._look(view, p, e)
                p = old.end
            if kind not in events.DELETES:
                new = self._look(view, p, e)
                p = new.end
            images = [image for image in (old, new) if image is not None]
            takes_out = sum(size for image in images for size in self._sizes(image).values()) > largest
            was, now = (image and self._decoded(view, image, takes_out=takes_out) for image in (old, new))
            lacks = _lacking([row for row in (was, now) if row is not None]) if takes_out else None
            yield was and was.key, was and was.row, now and now.key, now and now.row, lacks

    def _look(self, m: memoryview, p: int, e: int) -> _Image:
        nulls, start = bytes(m[p : p + self._bytes]), p + self._bytes
        end, _, row = self._ends[nulls](m, start)  # type: ignore[arg-type]
        if end > e:
            raise ValueError("an image ends behind its event")
        return _Image(nulls, start, json.decode(row, type=dict[str, int | None]), end)

    def _sizes(self, image: _Image) -> dict[str, int]:
        """Return the sizes of an image's columns that are large, in bytes."""
        sizes, at = {}, image.start
        for name, place in image.ends.items():
            if place is not None:
                if name in self._heads and place - at > _LARGE:
                    sizes[name] = place - at - self._heads[name]
                at = place
        return sizes

    def _decoded(self, m: memoryview, image: _Image, *, takes_out: bool) -> _Row:
        if not takes_out:
            _, key, row = self._images[image.nulls](bytes(m[image.start : image.end]), 0)
            return _Row(key, row, {})
        sizes, nulls, pieces, at = self._sizes(image), bytearray(image.nulls), [], image.start
        large = {}
        for number, (name, place) in enumerate(image.ends.items()):
            if place is None:
                continue
            if name in sizes:
                large[name] = self._codes[number].is_text, m[place - sizes[name] : place]
                nulls[number >> 3] |= 1 << (number & 7)
            else:
                pieces.append(m[at:place])
            at = place
        _, key, row = self._images[bytes(nulls)](b"".join(pieces), 0)
        return _Row(key, row, large)


def _lacking(rows: list[_Row]) -> LargeRow:
    values = [(name, *value) for row in rows for name, value in row.large.items()]
    # In place of nulls.
    more = sum(sum(map(len, _pieces(is_text, value))) - len(b"null") for _, is_text, value in values)
    return LargeRow(more, _digest(rows[-1]), max(values, key=lambda found: len(found[2]))[0])


def _digest(row: _Row) -> str:
    """Return the SHA-256 of a row's JSON, as `edge.records.envelope.dead_letter` has it of one that was decoded."""
    total, begins = sha256(), b"{"
    for name, value in json.decode(row.row, type=dict[str, Raw]).items():
        total.update(b"%b%b:" % (begins, json.encode(name)))
        for piece in _pieces(*row.large[name]) if name in row.large else (bytes(value),):
            total.update(piece)
        begins = b","
    total.update(b"}")
    return total.hexdigest()


def _pieces(is_text: bool, value: memoryview) -> Iterator[bytes]:
    """Yield a column's JSON piece by piece."""
    yield b'"'
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for at in range(0, len(value), _PIECE):
        piece = value[at : at + _PIECE]
        if is_text:
            yield json.encode(decoder.decode(bytes(piece), final=at + _PIECE >= len(value)))[1:-1]
        else:
            yield b2a_base64(piece, newline=False)
    yield b'"'
