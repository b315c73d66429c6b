"""What is compared: tables of a source's database, whatever its engine, ranges of keys, and sums over hashed rows of both sides.

What an engine gives is implemented by postgres/ and by mysql/ for MariaDB and MySQL, between which sources.py chooses.

A row's hash is 32 hexadecimal digits of a hash of its canonical text, which each engine has (`Forms.silver_hash`). Its first
two runs of 60 bits are added up inside the engine, so the order of rows does not matter and equal rows count as often as they
are there. `Side` is implemented for the source and for silver.

How the rows of a table are cut into ranges, by the same numbers at the source and in silver.
"""

import hashlib
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Annotated, Literal, NamedTuple, Protocol

from msgspec import Meta

from headrace.errors import CorruptInput
from headrace.verify.canonical import LONGEST_NAME, Column, SilverType, SourceType

#: The engines, MariaDB's and MySQL's being one.
Engine = Literal["postgresql", "mysql"]
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
    count = max(1, min(cells, span.width))
    width = -(-span.width // count)
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


def check_hashes(key_hashes: Collection[str]) -> list[str]:
    """Return hashes that go into a statement; raise CorruptInput for what is none."""
    if not all(_HASH.fullmatch(each) for each in key_hashes):
        raise CorruptInput("what is to be listed is no hash of a key")
    return sorted(key_hashes)


class Place(NamedTuple):
    """A place in a source's log: every transaction that committed below it is seen, and no other."""

    #: Positions of this commit or a later one are not below it.
    commit: int
    #: As the database's own tools write it: `LSN 0/2A31F80`, `binlog.000042:1337`.
    text: str


#: How long a statement without a limit of its own may take, in seconds, and how much later its answer is there.
_LONGEST_SECONDS, _BEYOND_SECONDS = 86_400.0, 120.0


class Reading(NamedTuple):
    """How a database is read: by whom it is asked, and within which bounds."""

    #: Where its connection is configured, as errors name it.
    settings: str = "the lake's file"
    #: Seconds that one statement may take, 0 for as long as it needs.
    statement_seconds: int = 0
    #: Seconds after which the server itself ends a transaction in which nothing is asked, 0 for never.
    idle_seconds: int = 0

    @property
    def answer_seconds(self) -> float:
        """Seconds after which an answer does not come any more: a server's own limit is none for who sends it."""
        return (self.statement_seconds or _LONGEST_SECONDS) + _BEYOND_SECONDS


@dataclass(frozen=True, kw_only=True)
class SourceTable:
    """A table at the source, as its catalog has it in the snapshot."""

    schema: Annotated[str, Meta(max_length=LONGEST_NAME)]
    name: Annotated[str, Meta(max_length=LONGEST_NAME)]
    #: Whether its rows are in partitions that are tables, too.
    partitioned: bool = False
    #: The tables that it is a partition of, `schema.table`.
    partition_of: frozenset[str] = frozenset()
    #: The columns that are stored, in order.
    columns: dict[str, SourceType]
    #: Key columns in key order; empty for a table without a key.
    key: tuple[str, ...]
    #: What the edge's policy, or its publication, does to further columns, which are not compared; known where the edge reads
    #: them.
    treated: dict[str, str] = field(default_factory=dict)
    #: Whether its changes are captured, as far as that is known. Of others no row is read.
    captured: bool = True
    #: Why a snapshot does not hold its rows still; empty when it does.
    unsteady: str = ""

    def __str__(self) -> str:
        """Return `schema.table`."""
        return f"{self.schema}.{self.name}"


class Forms(Protocol):
    """How an engine's values are written, so that silver's are written alike."""

    def column(
        self, name: str, at_source: SourceType, in_silver: SilverType, *, stored: str | None = None, nan: bool = False
    ) -> Column | None:
        """Return how a column is compared, `stored` in silver; None when its types cannot hold the same values."""

    def absent(self, name: str) -> Column:
        """Return how a column that silver does not have is compared: as null on that side."""

    def silver_hash(self, text: str) -> str:
        """Return the hash of a text, 32 hexadecimal digits, in Spark's SQL: that of the source's engine."""


class SourceSide(Side, Protocol):
    """A table at the source as a side of a comparison: keys leave it for rows alone that are asked for by their hash."""

    def hashes(self, grid: Grid, cells: Collection[int], most: int) -> list[RowHash]:
        """Return the rows in some cells of a grid, by key hash, `most` at most."""

    def rows(self, grid: Grid, cells: Collection[int], key_hashes: Collection[str]) -> list[Row]:
        """Return the rows in some cells of a grid whose keys have these hashes; raise CorruptInput for what is no hash."""

    def bounds(self) -> tuple[int, int] | None:
        """Return the least and greatest number of the leading key column; None when it is no integer, or without rows."""

    def about(self) -> int:
        """Return about how many rows there are."""

    def count(self) -> int:
        """Return how many rows there are."""


class Database(Protocol):
    """A database of a source, in the snapshot of one transaction. Not safe for two threads at a time."""

    #: The snapshot's place in the log; None for one without.
    place: Place | None
    #: Names, `schema.table`, of what looks like a table in the log and is none: an older edge may have captured it.
    sequences: frozenset[str]
    forms: Forms

    def tables(self) -> list[SourceTable]:
        """Return the tables that can be captured, by name."""

    def side(
        self,
        table: SourceTable,
        columns: list[Column],
        key: list[Column],
        *,
        on_progress: Callable[[int], None] | None = None,
    ) -> SourceSide:
        """Return a table as a side of a comparison; `on_progress` receives how many more rows were summed up."""

    def idle_since(self, commit: int) -> bool:
        """Whether the log is known to have no change between a transaction and the snapshot's place."""

    def keep(self) -> None:
        """Ask for nothing, so that the server does not end the snapshot as idle; raises as every query when it did."""

    def interrupt(self) -> None:
        """End the statement that another thread runs, if any; it fails there, and so may what follows."""
