"""What the two sides of a comparison offer: sums over hashed rows, by range of the key, and a bounded list of rows.

A row's hash is 32 hexadecimal digits of a hash of its canonical text, which each engine has (`Forms.silver_hash`). Its first two
runs of 60 bits are added up inside the engine, so the order of rows does not matter and equal rows count as often as they are
there. `Side` is implemented for the source and for silver.
"""

import hashlib
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from headrace.errors import CorruptInput
from headrace.verify.ranges import Grid

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
