"""Images of rows one by one, where some hold values that cannot be decoded: which columns these are, and where images end.

The lengths in an image show where each of its columns ends, whatever the column holds. Where that is not so, nothing shows where
the next row begins: then this raises what the table's own functions do. Called for events that these functions fail at.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from msgspec import json

from edge.mysql import events
from edge.mysql.column_codec import ColumnCodec, blank
from edge.mysql.rows_compiled import Images
from edge.records import envelope
from edge.records.form_limits import UNDECODABLE
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
