"""What reading chunks is for every engine: statements in key order, conditions, and the row behind which the next chunk begins.

An engine adds how a statement is run at one moment of the database (`snapshot_reader` of edge/postgres
and edge/mysql).

A thread that reads chunks while the log is read: one job at a time, its outcome taken by the capturing thread.
"""

import shlex
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from queue import SimpleQueue
from typing import Any, Generic, Protocol, TypeVar

from edge.snapshot.plan import Key
from edge.snapshot.ports import Chunk, Database, Reader
from headrace.errors import NeedsOperator

_NO_LIMIT = 1 << 62


class Statements(Protocol):
    """The statements that read a table."""

    def select_after(self, where: str | None, after: Key | None, count: int) -> str:
        """Return the statement that selects rows behind a key, in key order."""

    def select_keys(self, where: str | None, keys: list[Key]) -> str:
        """Return the statement that selects the rows of these keys."""


D = TypeVar("D", bound=Database)
T = TypeVar("T")


class ChunkReader(ABC, Generic[D, T]):
    """A connection that reads chunks, with the engine's own handle of a table."""

    def __init__(self, database: D) -> None:
        self._database = database

    def rows(self, table: T, where: str | None, after: Key | None, count: int, limit_bytes: int) -> Chunk:
        """Return the next rows in key order, at most `count`, fewer when they grow beyond `limit_bytes`."""
        return self._read(table, self._statements(table).select_after(where, after, count), count, limit_bytes)

    def read_keys(self, table: T, where: str | None, keys: list[Key], limit_bytes: int) -> Chunk:
        """Return the rows of the first of these keys, of as many as do not grow beyond `limit_bytes`, at least one."""
        while True:
            statement = self._statements(table).select_keys(where, keys)
            chunk = self._read(table, statement, len(keys), limit_bytes if len(keys) > 1 else _NO_LIMIT)
            if chunk.size <= limit_bytes or len(keys) == 1:
                return replace(chunk, keys=len(keys))
            # The statement was cancelled, and which rows it had not reached is not known.
            keys = keys[: len(keys) // 2]

    def leave(self) -> None:
        """Leave the moment of which a table without a key is copied, if any."""

    def close(self) -> None:
        """Close the connection."""
        self.leave()
        self._database.close()

    @abstractmethod
    def _statements(self, table: T) -> Statements:
        """Return the statements that read a table."""

    @abstractmethod
    def _run(self, table: T, statement: str, limit_bytes: int) -> tuple[list[bytes], int, bool, Any]:
        """Run a statement at one moment of the database, at which the table is as described.

        Returns rows, their size in bytes, whether those are all, and by what it is determined which transactions that moment has.
        """

    @abstractmethod
    def _check(self, table: T) -> None:
        """Raise Retryable where the table is not as described any more."""

    @abstractmethod
    def _key_of(self, table: T, row: bytes) -> Key:
        """Return the key of a row."""

    def _read(self, table: T, statement: str, count: int, limit_bytes: int) -> Chunk:
        try:
            rows, size, whole, seen = self._run(table, statement, limit_bytes)
        except NeedsOperator:
            # The statement names columns that were there when the table was described.
            self._check(table)
            raise
        return Chunk(
            table=table,
            rows=rows,
            size=size,
            last=self._key_of(table, rows[-1]) if rows else None,
            end=whole and len(rows) < count,
            seen=seen,
        )


def where_clause(conditions: Sequence[str | None]) -> str:
    """Return the clause for all of these conditions that are given, an operator's own among them."""
    # A line comment at the end of a condition must not swallow what comes behind it.
    given = [f"({condition}\n)" for condition in conditions if condition]
    return f" where {' and '.join(given)}" if given else ""


#: Something to do with the reader.
Job = Callable[[Reader], Any]


class Worker:
    """Runs jobs in order; `wake` is called after each."""

    def __init__(self, connect: Callable[[], Reader], wake: Callable[[], None]) -> None:
        self._connect = connect
        self._wake = wake
        self._jobs: SimpleQueue[tuple[Job, Callable[[Any], None]] | None] = SimpleQueue()
        self._outcomes: deque[tuple[Callable[[Any], None], Any]] = deque()
        self._thread: threading.Thread | None = None
        #: Jobs whose outcome was not taken yet.
        self.busy = 0

    def do(self, job: Job, then: Callable[[Any], None]) -> None:
        """Do a job, then call `then` with its result, or with the exception that it raised, from `take`."""
        self.busy += 1
        self._jobs.put((job, then))
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="snapshot", daemon=True)
            self._thread.start()

    def take(self) -> None:
        """Hand over the outcomes that are there."""
        while self._outcomes:
            then, outcome = self._outcomes.popleft()
            self.busy -= 1
            then(outcome)

    def stop(self, seconds: float) -> None:
        """End the thread; a job that hangs ends with the process."""
        self._jobs.put(None)
        if self._thread is not None:
            self._thread.join(seconds)

    def _run(self) -> None:
        reader: Reader | None = None
        while (waiting := self._jobs.get()) is not None:
            job, then = waiting
            try:
                reader = reader or self._connect()
                outcome = job(reader)
            except Exception as error:  # noqa: BLE001 - the capturing thread decides what it means.
                outcome = error
                if reader is not None:
                    reader.close()
                reader = None
            self._outcomes.append((then, outcome))
            self._wake()
        if reader is not None:
            reader.close()


def unclear(table: str, why: str) -> NeedsOperator:
    """Return the error of an engine that cannot identify a table's rows by dead letters."""
    return NeedsOperator(
        f"dead letters do not identify the rows of {table}: {why}",
        hint=f'Copy the rows with a condition: headrace edge snapshot {shlex.quote(table)} --where "…".',
    )


def check_keys(table: str, keys: list[dict[str, Any]], names: Collection[str]) -> None:
    """Raise NeedsOperator unless the keys are of the columns that the table's key has now."""
    if any(set(key) != set(names) for key in keys):
        raise unclear(table, f"its key is now {', '.join(names)}")
