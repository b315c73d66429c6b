"""One region of the demo: a database, the edge next to it, and what writes to it.

What differs between engines is in bank.py (PostgreSQL) and pay.py (MariaDB); the demo and its screen know regions by this alone.
"""

from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar

from infra.local.demo.part import Part, headrace


class Region(ABC):
    """A source of the demo, named after its region."""

    #: The database, and the source's name after the region's.
    database: ClassVar[str]
    #: What writes, in a few words.
    workload: ClassVar[str]

    def __init__(self, name: str, folder: Path, *, detached: bool) -> None:
        self.name = name
        self.source = f"{name}/{self.database}"
        self.edge_file = folder / f"edge-{name}.toml"
        self.edge = Part(f"edge-{name}", ["edge", "run", "--config", str(self.edge_file)], folder, detached=detached)

    def prepare(self, scale: int) -> None:
        """Make the database and its tables, begin to capture, and only then make the rows: all of them are in the log."""
        self.make_tables()
        headrace("edge", "init", "--config", str(self.edge_file))
        self.edge.start()
        self.fill(scale)

    @abstractmethod
    def make_tables(self) -> None:
        """Make the database with empty tables."""

    @abstractmethod
    def fill(self, scale: int) -> None:
        """Make the rows that are there before anybody writes."""

    @abstractmethod
    def write(self, *, clients: int, seconds: int, rate: int) -> None:
        """Start transactions: so many clients, for so long, so many a second; returns at once."""

    @abstractmethod
    def transactions(self) -> tuple[int, float]:
        """Wait for the writers to end; return how many transactions they committed, and in how many seconds."""

    @abstractmethod
    def stop_writing(self) -> None:
        """End the writers, if they are at work."""

    @abstractmethod
    def log_position(self) -> str:
        """Return the end of the source's log, as its own tools write it."""

    @abstractmethod
    def confirmed(self) -> str:
        """Return the place before which all of the log is acknowledged."""

    @abstractmethod
    def has_confirmed(self, position: str) -> bool:
        """Say whether all of the log before a place is acknowledged."""
