"""What the two sides of a comparison offer: sums over hashed rows, by hash range of the key, and a bounded list of rows.

A row's hash is the MD5 of its canonical text. Its first two runs of 60 bits are added up inside the engine, so the order of
rows does not matter and equal rows count as often as they are there. `Side` is implemented for the source and for silver.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

#: Hexadecimal digits of an MD5 that make up each of the two numbers.
DIGITS = 15


class Digest(NamedTuple):
    """Rows, and the two sums over their hashes."""

    rows: int = 0
    first: int = 0
    second: int = 0


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row without its values: hashes, and the key as text."""

    key_hash: str
    #: One text for each key column; empty for a table without a key.
    key: tuple[str | None, ...]
    #: One hash for each column.
    columns: tuple[str, ...]


class Side(Protocol):
    """One side of a table's comparison. Prefixes are leading hexadecimal digits of the key's hash."""

    def whole(self) -> Digest:
        """Return the digest of all rows."""

    def ranges(self, digits: int, within: Sequence[str]) -> dict[str, Digest]:
        """Return the digest of each hash range `digits` long inside the given prefixes; an empty range is not there."""

    def rows(self, within: Sequence[str], most: int) -> list[Row]:
        """Return the rows in the given prefixes, by key hash, `most` at most."""
