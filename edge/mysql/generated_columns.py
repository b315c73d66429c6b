"""Columns that MariaDB generates and logs in a way of its own: the period of a table with system versioning, and computed ones.

MariaDB keeps former rows in the table itself: it logs an update as the row's new form and an insert of its former one, and a
delete as an update that ends the row. Guarantees that records are what a plain `SELECT` would see change: former rows are left
out, and an update that ends a row is a delete. The two columns of the period are in no record.

As of 11.8 it logs inserts with computed columns, and updates and deletes without them, virtual or stored (11.8.9, with
`binlog_row_image = FULL`). Their names are in the catalog alone. Guarantees that all records of such a table are without them.
"""

from collections.abc import Collection, Iterator
from itertools import groupby
from typing import Final, NamedTuple

from edge.mysql import events
from edge.mysql.column_codec import ColumnCodec, blank
from edge.mysql.rows_compiled import Images
from edge.mysql.table_map import TableMap
from edge.mysql.values import TIMESTAMP2

#: How the catalog describes a period's columns, and their names where it does not list them.
START, END = "row start", "row end"
_UNLISTED = ("row_start", "row_end")
#: Of a row that is current: the last moment of 32 bits, signed before MariaDB 11.5 and unsigned from then on.
_CURRENT: Final = (b'{"":"2038-01-19T03:14:07.999999Z"}', b'{"":"2106-02-07T06:28:15.999999Z"}')


class Run(NamedTuple):
    """Images that are sent as those of an event of one type."""

    kind: int
    images: bytes
    start: int
    end: int


class SystemVersioning:
    """The period of a table."""

    def __init__(self, codes: list[ColumnCodec], start: int, end: int) -> None:
        #: Where its columns are.
        self.columns = (start, end)
        # Nothing else of a row has to be understood for that.
        blanks = [code if number == end else blank(code) for number, code in enumerate(codes)]
        self._ends = Images([b'""'] * len(codes), blanks, [end])
        self._bytes = (len(codes) + 7) // 8

    def runs(self, kind: int, m: bytes, p: int, e: int) -> Iterator[Run]:
        """Yield what is sent of the images from `p` to `e`."""
        count = 2 if kind in events.UPDATES else 1
        for kind_sent, images in groupby(self._sent(kind, m, p, e, count), key=lambda sent: sent[0]):
            if kind_sent:
                joined = b"".join(image for _, image in images)
                yield Run(kind_sent, joined, 0, len(joined))

    def _sent(self, kind: int, m: bytes, p: int, e: int, count: int) -> Iterator[tuple[int, bytes]]:
        """Yield for each row the type of event as which it is sent, 0 for none, and its images."""
        while p < e:
            ends = [self._image(m, p)]
            if count > 1:
                ends.append(self._image(m, ends[0][0]))
            (middle, was), (after, stays) = ends[0], ends[-1]
            if not was:
                yield 0, b""
            elif not stays:
                yield events.DELETE_1, m[p:middle]
            else:
                yield kind, m[p:after]
            p = after

    def _image(self, m: bytes, p: int) -> tuple[int, bool]:
        """Return where an image ends, and whether its row is current."""
        size = self._bytes
        after, stamp, _ = self._ends[m[p : p + size]](m, p + size)
        return after, stamp in _CURRENT


def may_have_period(described: TableMap) -> bool:
    """Say whether a table has columns that could be a period's."""
    return sum(field.type == TIMESTAMP2 and field.meta == 6 and not field.nullable for field in described.fields) > 1


def period(described: TableMap, kinds: dict[str, str]) -> tuple[int, int] | None:
    """Return where a table's period is, None when it has none; `kinds` are the catalog's columns.

    A period that the table's statement does not name is not listed there.
    """
    names = [field.name for field in described.fields]
    listed = {kind: name for name, kind in kinds.items() if name in names}
    if START in listed and END in listed:
        return names.index(listed[START]), names.index(listed[END])
    if tuple(names[-2:]) == _UNLISTED and not set(_UNLISTED) & kinds.keys():
        return len(names) - 2, len(names) - 1
    return None


class GeneratedColumns:
    """The columns of a table that the images of its updates and deletes lack."""

    def __init__(self, codes: list[ColumnCodec], absent: Collection[int]) -> None:
        """`absent`: where they are; there are others too."""
        present = [number for number in range(len(codes)) if number not in absent]
        #: A bit for each of the other columns.
        self.others = sum(1 << number for number in present)
        # Nothing of a row has to be understood but where it ends.
        self._ends = Images([b'""'] * len(present), [blank(codes[number]) for number in present], [])
        self._present, self._absent = present, sum(1 << number for number in absent)
        self._sizes = (len(present) + 7) // 8, (len(codes) + 7) // 8
        self._nulls: dict[bytes, bytes] = {}

    def whole(self, m: bytes, p: int, e: int) -> bytes:
        """Return the images from `p` to `e` with nulls for these columns."""
        parts: list[bytes] = []
        size, ends, nulls = self._sizes[0], self._ends, self._nulls
        while p < e:
            given = m[p : p + size]
            after, _, _ = ends[given](m, p + size)
            parts += (nulls.get(given) or self._widen(given), m[p + size : after])
            p = after
        if p != e:
            raise ValueError("rows do not end where their event does")
        return b"".join(parts)

    def _widen(self, given: bytes) -> bytes:
        """Return the bits of nulls of all columns by those of the ones that are there."""
        bits = int.from_bytes(given, "little")
        every = self._absent | sum(1 << number for place, number in enumerate(self._present) if bits >> place & 1)
        self._nulls[given] = every.to_bytes(self._sizes[1], "little")
        return self._nulls[given]
