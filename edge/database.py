"""An ordinary connection to a source's server, whatever its engine: all that the edge reads next to the log.

Every failure is NotConnected (try again) or NeedsOperator (with what fixes it). A connection serves one thread. Implemented by
edge/postgres/connection.py and edge/mysql/connection.py.
"""

from abc import ABC, abstractmethod
from typing import Any, Self


class Database(ABC):
    """An open connection, on which each statement commits by itself; a context that closes it."""

    @abstractmethod
    def rows(self, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows, none for a statement without a result."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection."""

    def value(self, query: str, *parameters: Any) -> Any:
        """Return the first column of the first row, None when there is no row."""
        rows = self.rows(query, *parameters)
        return rows[0][0] if rows else None

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connection."""
        self.close()
