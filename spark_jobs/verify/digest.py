"""What the two sides of a comparison offer: sums over hashed rows, by range of the key, and a bounded list of rows.

A row's hash is the MD5 of its canonical text. Its first two runs of 60 bits are added up inside the engine, so the order of
rows does not matter and equal rows count as often as they are there. `Side` is implemented for the source and for silver.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from spark_jobs.verify.ranges import Grid

#: Hexadecimal digits of an MD5 that make up each of the two numbers.
DIGITS = 15


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


class Side(Protocol):
    """One side of a table's comparison."""

    def digests(self, grid: Grid, cells: Collection[int] | None = None) -> dict[int, Digest]:
        """Return the digest of each cell of a grid, or of those named; an empty cell is not there."""

    def rows(self, grid: Grid, cells: Collection[int], most: int) -> list[Row]:
        """Return the rows in some cells of a grid, by key hash, `most` at most."""
