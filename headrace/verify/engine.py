"""What a source's database is to verification, whatever its engine: tables, a side of their comparison, a place in its log.

Implemented by postgres/ and by mysql/ for MariaDB and MySQL, between which engines.py chooses.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from headrace.verify.canonical import Column, SilverType, SourceType
from headrace.verify.digest import Grid, Row, RowHash, Side


class Place(NamedTuple):
    """A place in a source's log: every transaction that committed below it is seen, and no other."""

    #: Positions of this commit or a later one are not below it.
    commit: int
    #: As the database's own tools write it: `LSN 0/2A31F80`, `binlog.000042:1337`.
    text: str


class Reading(NamedTuple):
    """How a database is read: by whom it is asked, and within which bounds."""

    #: Where its connection is configured, as errors name it.
    settings: str = "the lake's file"
    #: Seconds that one statement may take, 0 for as long as it needs.
    statement_seconds: int = 0
    #: Seconds after which the server itself ends a transaction in which nothing is asked, 0 for never.
    idle_seconds: int = 0


@dataclass(frozen=True, kw_only=True)
class SourceTable:
    """A table at the source, as its catalog has it in the snapshot."""

    schema: str
    name: str
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
