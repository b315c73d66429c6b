"""What the two sides of a comparison offer: sums over hashed rows, by range of the key, and a bounded list of rows.

A row's hash is 32 hexadecimal digits of a hash of its canonical text, which each engine has (`Forms.silver_hash`). Its first two
runs of 60 bits are added up inside the engine, so the order of rows does not matter and equal rows count as often as they are
there. `Side` is implemented for the source and for silver.

How the rows of a table are cut into ranges, by the same numbers at the source and in silver.
"""

import hashlib
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple, Protocol

from msgspec import Meta

from headrace.errors import CorruptInput

#: Places of hashed keys: the first 15 hexadecimal digits of the hash.
HASHES = 1 << 60
#: A span wider than this cannot be reckoned with in 64 bits.
_WIDEST = 1 << 62
#: Cells of a grid at most, and spans within which it is.
MOST_CELLS, _MOST_WITHIN = 4096, 4
#: Places of keys are numbers of 64 bits; a span may end behind the last.
_LEAST, _GREATEST = -(1 << 63), 1 << 63


@dataclass(frozen=True, kw_only=True)
class Span:
    """Rows whose place is from `low` up to, not including, `high`."""

    by: Literal["key", "hash"]
    low: int
    high: int
    #: Whether places below, or above, count in: a side may have keys beyond those of the other.
    open_low: bool = False
    open_high: bool = False

    @property
    def width(self) -> int:
        """How many places there are, those beyond an open end not counted."""
        return self.high - self.low

    @property
    def is_valid(self) -> bool:
        """Whether there is a place in it, and each can be reckoned with."""
        return 1 <= self.width <= _WIDEST and self.low >= _LEAST and self.high <= _GREATEST

    def condition(self, place: str) -> str:
        """Return the condition, in a database's SQL, that a number is in the span."""
        low = "" if self.open_low or (self.low == 0 and self.by == "hash") else f"{place} >= {self.low}"
        high = "" if self.open_high or (self.high == HASHES and self.by == "hash") else f"{place} < {self.high}"
        return f"({' AND '.join(part for part in (low, high) if part) or 'true'})"


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A span cut into cells; rows outside of `within` are not in any."""

    span: Span
    #: How many cells.
    cells: Annotated[int, Meta(ge=1, le=MOST_CELLS)]
    #: Spans that hold this one: the single key whose rows are cut by hash.
    within: Annotated[tuple[Span, ...], Meta(max_length=_MOST_WITHIN)] = ()

    @property
    def width(self) -> int:
        """Places in a cell."""
        return -(-self.span.width // self.cells)

    def cell(self, number: int) -> Span:
        """Return a cell as a span; the first and last are open where the whole is."""
        low = self.span.low + number * self.width
        last = number == self.cells - 1
        return Span(
            by=self.span.by,
            low=low,
            high=self.span.high if last else min(low + self.width, self.span.high),
            open_low=self.span.open_low and number == 0,
            open_high=self.span.open_high and last,
        )

    def cut(self, number: int, cells: int) -> "Grid | None":
        """Return a grid of the rows in one cell, finer by the key or, within a single key, by hash; None when it cannot be."""
        span = self.cell(number)
        if span.width > 1:
            return grid(span, cells, within=self.within)
        if span.by == "key":
            return grid(hashes(), cells, within=(*self.within, span))
        return None


def grid(span: Span, cells: int, *, within: tuple[Span, ...] = ()) -> Grid:
    """Return a grid of about so many cells, and no more than there are places."""
    wanted = max(1, min(cells, span.width))
    width = -(-span.width // wanted)
    return Grid(span=span, cells=-(-span.width // width), within=within)


def hashes() -> Span:
    """Return the span of all rows by their keys' hashes."""
    return Span(by="hash", low=0, high=HASHES)


def keys(least: int, greatest: int) -> Span | None:
    """Return the span of all rows by a key between two numbers, open at both ends; None when it is too wide."""
    if greatest - least >= _WIDEST:
        return None
    return Span(by="key", low=least, high=greatest + 1, open_low=True, open_high=True)


#: Hexadecimal digits of a hash that make up each of the two numbers.
DIGITS = 15


_HASH = re.compile("[0-9a-f]{32}")


class Digest(NamedTuple):
    """Rows, and the two sums over their hashes."""

    rows: int = 0
    first: int = 0
    second: int = 0

    def plus(self, other: "Digest") -> "Digest":
        """Return the digest of both sets of rows together."""
        return Digest(self.rows + other.rows, self.first + other.first, self.second + other.second)


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row without its values: hashes, and the key as text."""

    key_hash: str
    #: One text for each key column; empty for a table without a key.
    key: tuple[str | None, ...]
    #: One hash for each column.
    columns: tuple[str, ...]

    @property
    def hash(self) -> str:
        """Return one hash for the row, of its columns' hashes: the same with every engine."""
        return hashlib.sha256("".join(self.columns).encode()).hexdigest()[:32]


class RowHash(NamedTuple):
    """A row as it is listed first: it shows whether the row differs, and nothing else."""

    key_hash: str
    #: As `Row.hash`.
    hash: str


class Side(Protocol):
    """One side of a table's comparison."""

    def digests(self, grid: Grid, cells: Collection[int] | None = None) -> dict[int, Digest]:
        """Return the digest of each cell of a grid, or of those named; an empty cell is not there."""


class LakeSide(Side, Protocol):
    """Silver's side."""

    def rows(self, grid: Grid, cells: Collection[int], most: int) -> list[Row]:
        """Return the rows in some cells of a grid, by key hash, `most` at most."""


def checked(key_hashes: Collection[str]) -> list[str]:
    """Return hashes that go into a statement; raise CorruptInput for what is none."""
    if not all(_HASH.fullmatch(each) for each in key_hashes):
        raise CorruptInput("what is to be listed is no hash of a key")
    return sorted(key_hashes)
