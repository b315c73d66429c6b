"""Changes read image by image: where values cannot be decoded, which columns these are; and where a record would be too large.

The lengths in an image show where each of its columns ends, whatever the column holds. Where that is not so, nothing shows
where the next row begins: then this raises what the table's own functions do. Called for events that these functions fail at.

Decoding takes many times the memory of a value. So the large columns of such an image are taken out of it, as nulls, and its
record's size, and the SHA-256 of its row as JSON, are summed up from pieces of them: what a dead letter needs. Only texts and
binary values in their ordinary forms are looked at; nothing else grows as large.
"""

import codecs
from binascii import b2a_base64
from collections.abc import Iterator
from hashlib import sha256
from typing import Any, Final, NamedTuple

from msgspec import Raw, json

from edge.mysql import events
from edge.mysql.column_codec import ColumnCodec, blank
from edge.mysql.rows_compiled import Images
from edge.records import envelope
from edge.records.column_policy import UNDECODABLE
from headrace.schema import TableSchema


class Undecodable(NamedTuple):
    """What a change lacks: a column whose value cannot be decoded, whether the row's key has it, and the row's size in bytes."""

    column: str
    in_key: bool
    size: int


class LargeRow(NamedTuple):
    """What a change lacks: bytes that its record would have in addition, the SHA-256 of its row's JSON, its largest column."""

    more: int
    digest: str
    column: str


#: Former key and old row, key and new row, None for those that a change does not have; and what it lacks.
RowChange = tuple[bytes | None, bytes | None, bytes | None, bytes | None, Undecodable | LargeRow | None]


class Image(NamedTuple):
    """A row: where it ends, its key, its JSON, and the numbers of the columns that cannot be decoded: null in both."""

    end: int
    key: bytes | None
    row: bytes
    bad: list[int]


class CarefulImages:
    """A table's rows, column by column where need be; `taken` as in edge/mysql/rows_compiled.py."""

    def __init__(self, names: list[bytes], codes: list[ColumnCodec], key: list[int], *, taken: bool = False) -> None:
        self.key_columns, self._key = frozenset(key), key
        self._names, self._codes, self._taken = names, codes, taken
        self._every = frozenset(range(len(codes)))
        # By the columns that are decoded: all, none, one after the other, and those that can be.
        self._images: dict[frozenset[int], Images] = {}

    def decode(self, nulls: bytes, m: Any, start: int) -> Image:
        """Return the row behind its nulls."""
        try:
            return Image(*self._of(self._every)[nulls](m, start), [])
        except UNDECODABLE:
            pass
        end, _, _ = self._of(frozenset())[nulls](m, start)
        bad = [number for number in sorted(self._every) if not self._decodes(number, nulls, m, start)]
        if not bad:
            raise ValueError("a row cannot be decoded, and each of its columns can")
        _, key, row = self._of(self._every - set(bad))[nulls](m, start)
        return Image(end, key, row, bad)

    def _decodes(self, number: int, nulls: bytes, m: Any, start: int) -> bool:
        try:
            self._of(frozenset({number}))[nulls](m, start)
        except UNDECODABLE:
            return False
        return True

    def _of(self, decoded: frozenset[int]) -> Images:
        """Return the functions by which these columns are decoded, and the others passed over."""
        images = self._images.get(decoded)
        if images is None:
            codes = [code if number in decoded else blank(code) for number, code in enumerate(self._codes)]
            images = self._images[decoded] = Images(self._names, codes, self._key, taken=self._taken)
        return images


class CarefulRows:
    """The images of one table's rows events."""

    def __init__(self, schema: TableSchema, columns: list[str], codes: list[ColumnCodec], key: list[int]) -> None:
        """`columns`: the names of all that images hold."""
        self._schema, self._columns = schema, columns
        self._images = CarefulImages([json.encode(name) for name in columns], codes, key)
        self._bytes = (len(codes) + 7) // 8

    def changes(self, kind: int, m: bytes, p: int, e: int) -> Iterator[RowChange]:
        """Yield the changes of a rows event from `p` to `e`."""
        while p < e:
            start, old, new = p, None, None
            if kind not in events.INSERTS:
                old = self._image(m, p, e)
                p = old.end
            if kind not in events.DELETES:
                new = self._image(m, p, e)
                p = new.end
            yield self._change(old, new, p - start)

    def _change(self, old: Image | None, new: Image | None, size: int) -> RowChange:
        lacks: Undecodable | None = None
        former = row = key = after = None
        if old is not None:
            # A part of it is enough to know which row it was.
            former, row = old.key, envelope.key_columns(old.row, self._schema) if old.bad else old.row
        if new is not None:
            key, after = new.key, new.row
            if new.bad:
                lacks = Undecodable(self._columns[new.bad[0]], in_key=False, size=size)
        for image in (old, new):
            for number in sorted(self._images.key_columns.intersection(image.bad if image is not None else [])):
                lacks = Undecodable(self._columns[number], in_key=True, size=size)
        return former, row, key, after, lacks

    def _image(self, m: bytes, p: int, e: int) -> Image:
        image = self._images.decode(m[p : p + self._bytes], m, p + self._bytes)
        if image.end > e:
            raise ValueError("an image ends behind its event")
        return image


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
            was, now = (image and self._decode_values(view, image, takes_out=takes_out) for image in (old, new))
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

    def _decode_values(self, m: memoryview, image: _Image, *, takes_out: bool) -> _Row:
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
    return LargeRow(more, _digest(rows[-1]), max(values, key=lambda column: len(column[2]))[0])


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
