"""What a database engine gives the snapshot: an ordinary connection, a reader for chunks, and the place where they join the log.

The reader has a connection of its own, and a thread of its own uses it. The stream belongs to the decoder of the running
session and is used by the capturing thread alone, mostly from within `read` of that session: a watermark that was written comes
back in the log, and the decoder calls `on_watermark` at its place.

What the log has of a table while a chunk of it was read: sans-I/O, and of no engine.

Of the connection, which all that the edge reads next to the log goes over: every failure is NotConnected (try again) or
NeedsOperator (with what fixes it). A connection serves one thread. Implemented by edge/postgres/connection.py and
edge/mysql/connection.py.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, Self

from edge.snapshot.plan import Key, LogTable
from headrace.errors import Retryable
from headrace.position import Position
from headrace.schema import TableSchema


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


class MomentGone(Retryable):
    """The moment of which a table without a key is copied cannot be read any more: its copy begins again."""


#: Bytes of changes of a table without a key that are kept at most.
_MOST_KEPT = 16 * 1024 * 1024


class DedupWindow:
    """Open from a watermark to the next, again and again, while a table's snapshot runs."""

    def __init__(self) -> None:
        #: Keys, as records in JSON have them, of rows that changed.
        self.changed: set[bytes] = set()
        #: Those of them of which the log did not have all columns.
        self._partly: set[bytes] = set()
        #: Whether changes are noted.
        self.is_open = False
        #: Whether the table was emptied, and whether it was altered.
        self.truncated = False
        self.altered = False
        #: Whether the changes of a table without a key are kept: until its copy has begun.
        self.keeps_changes = False
        #: Which of them the moment lacks that is copied; None until that is known. Set by the snapshot's thread.
        self.lacks: Callable[[Any], bool] | None = None
        #: Its changes since the window opened, but for those that the moment is known to have: transaction, change and size.
        self.kept: list[tuple[Any, Any, int]] = []
        self._kept_bytes = 0

    def open(self) -> None:
        """Start again at a watermark: what is noted from here on counts."""
        self.changed, self._partly = set(), set()
        self.lacks, self.kept, self._kept_bytes = None, [], 0
        self.truncated = self.altered = False
        self.is_open = True

    def close(self) -> None:
        """Note no more."""
        self.open()
        self.is_open = False

    def change(self, key: bytes, former: bytes | None = None, *, whole: bool = True) -> None:
        """Note a change of a row: its key, its former one when that is another, and whether the log had all columns."""
        if not self.is_open:
            return
        self.changed.add(key)
        if former is not None:
            self.changed.add(former)
        if not whole:
            self._partly.add(key)

    def keep(self, transaction: Any, change: Any, size: int) -> None:
        """Keep a change of a table without a key, of so many bytes, in the engine's form.

        Where the moment lacks it, it belongs behind the beginning of the copy.
        """
        lacks = self.lacks
        if not self.is_open or not self.keeps_changes or (lacks is not None and not lacks(transaction)):
            return
        self.kept.append((transaction, change, size))
        self._kept_bytes += size
        if self._kept_bytes <= _MOST_KEPT:
            return
        if lacks is not None:
            self.kept = [pair for pair in self.kept if lacks(pair[0])]
            self._kept_bytes = sum(size for _, _, size in self.kept)
        if self._kept_bytes > _MOST_KEPT:
            # Too many: another moment is chosen.
            self.kept, self._kept_bytes, self.altered = [], 0, True

    def truncate(self) -> None:
        """Note that the table was emptied: what a chunk read before is gone."""
        self.truncated = True

    def alter(self) -> None:
        """Note that the table has another shape: a chunk that was read before may not fit."""
        self.altered = True

    def keeps(self, key: bytes) -> bool:
        """Whether a chunk's row belongs into the log's order where the window ends."""
        return not self.truncated and key not in self.changed

    def must_reread(self, key: bytes) -> bool:
        """Whether a row that is left out has to be read once more."""
        return not self.truncated and key in self._partly


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Rows of one table as a short transaction saw them, in key order."""

    #: The table and its rows, in the engine's own form.
    table: Any
    rows: list[bytes]
    #: Size of the rows, in bytes.
    size: int
    #: Key of the last row; None when there is no row.
    last: Key | None
    #: Whether no row comes behind them.
    end: bool
    #: By which the engine determines which transactions the chunk has; of a table without a key the first chunk alone has it.
    seen: Any = None
    #: Of a table without a key, in the first chunk: whether the moment that is copied lacks a transaction.
    lacks: Callable[[Any], bool] | None = None
    #: And whether it is not known of one; None where that is always known.
    is_unsure: Callable[[Any], bool] | None = None
    #: Of rows that were read by their keys, how many of the keys these are: all, or as many as their size allows.
    keys: int = 0


class Described(NamedTuple):
    """A table that can be copied."""

    #: The engine's own handle of it.
    table: Any
    #: Rows by the database's own statistics; -1 when it has none.
    estimate: int
    #: What identifies it in the log; None where every row in the log has all columns.
    log_table: LogTable | None = None
    #: Whether it has no key: then all chunks are of one moment, which is where the copy begins, and replace what consumers have.
    of_moment: bool = False


class Put(NamedTuple):
    """What became of a chunk."""

    #: Of its last row, or of the last change that the moment lacks, that went into the log's order; None when none did.
    position: Position | None
    #: Keys of rows that have to be read once more.
    again: list[Key]


class Reader(Protocol):
    """Reads chunks, and writes watermarks; every failure is NotConnected, Retryable, or NeedsOperator for this table."""

    def published(self) -> list[str]:
        """Return the names of all tables that the stream carries, `schema.table`."""

    def named(self, names: list[str]) -> list[str]:
        """Return the names under which the stream carries tables: their own, or their partitions'.

        A table that it does not carry keeps its name: it stays in the plan, and fails with what to do.
        """

    def describe(self, name: str, where: str | None) -> Described:
        """Return a table as it is now, with an estimate of the rows that a condition leaves of it.

        Raises NeedsOperator when it cannot be copied, with what to do.
        """

    def write_watermark(self, content: bytes, table: Any = None) -> None:
        """Write a watermark, which is in the log when this returns; where a table is given, it is as described just there.

        Raises Retryable for a table that was altered since it was described.
        """

    def rows(self, table: Any, where: str | None, after: Key | None, count: int, limit_bytes: int) -> Chunk:
        """Return the rows behind a key, at most `count`, fewer when they grow beyond `limit_bytes`.

        Of a table without a key, about so many, by their places at one moment: that at which those behind None were read.
        Raises MomentGone where that cannot be read any more.
        """

    def read_keys(self, table: Any, where: str | None, keys: list[Key], limit_bytes: int) -> Chunk:
        """Return the rows of the first of these keys that are there, of fewer keys where they grow beyond `limit_bytes`."""

    def leave(self) -> None:
        """Leave the moment of which a table without a key is copied, if any."""

    def close(self) -> None:
        """Close the connection."""


#: Called with the new key of a row that moved to it and whose log record lacks columns; None when the key cannot be determined.
Moved = Callable[[LogTable, Key | None], None]


class Stream(Protocol):
    """The decoder's side."""

    def follow(self, tables: Collection[LogTable], moved: Moved) -> None:
        """Report rows of these tables that move to another key without all of their columns, from here on; of no others."""

    def watch(self, table: Any, window: DedupWindow) -> None:
        """Report every change of a table to a window from here on."""

    def unwatch(self) -> None:
        """Report to no window any more."""

    def window_opened(self) -> None:
        """Note that a chunk is read behind the watermark that is read now."""

    def truncate(self, table: Any) -> Position:
        """Put a truncate of the table where the watermark is that is read now, and return its position."""

    def mark_copy(self, table: Any, mark: str) -> Position:
        """Put a mark of the table's copy (headrace.schema) where the watermark is that is read now, and return its position."""

    def schema_of(self, table: Any) -> TableSchema:
        """Return the schema that a mark of the table's copy has here."""

    def mark_copy_of_gone(self, schema: TableSchema, mark: str) -> Position:
        """Do as `mark_copy` for a table that does not exist any more, with the schema that an earlier mark of it had."""

    def fits(self, chunk: Chunk, window: DedupWindow) -> bool:
        """Whether a chunk can be put where the watermark is that is read now; if not, it has to be read again."""

    def put(self, chunk: Chunk, window: DedupWindow) -> Put:
        """Put the rows of a chunk that the window keeps where the watermark is that is read now."""


class Source(Protocol):
    """A session that can be copied from."""

    def reader(self) -> Reader:
        """Return a reader with a connection of its own; raises NotConnected or NeedsOperator."""

    def stream(self, on_watermark: Callable[[bytes], None]) -> Stream:
        """Return the decoder's side; from here on it calls `on_watermark` with the content of each watermark."""
