"""The spool's SQLite file: made privately, opened for durable writes, kept within its limit, and removed.

Guarantees that a transaction which ended without an error survives a crash of the machine (write-ahead log, synchronous=FULL,
the folder synchronised once the file is made). Assumes that one process has the state folder. Used by edge/progress/spool.py,
which defines what is in it.
"""

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from headrace import files
from headrace.errors import NeedsOperator, NoSpace
from headrace.formats import SPOOL

#: Of 64 kB batches so large a page wastes little; it is also the unit of the limit.
_PAGE_BYTES = 8192
#: The disk is full, reads or writes fail, or no file can be opened, as where descriptors run out.
_PASSING = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_NOMEM}
#: The write-ahead log is cut back to this after a checkpoint, in bytes.
_JOURNAL_BYTES = 8 << 20
_ABOUT = "create table about (version integer not null, source text not null)"
_BATCH = """
    create table batch (
        id integer primary key, first text not null, last text not null, confirm integer not null, put_at real not null,
        checksum integer not null, head blob not null, body blob not null
    )
"""


class SpoolFile:
    """One file, of one source."""

    def __init__(self, path: Path, source: str, limit_bytes: int) -> None:
        self.path = path
        self._source = source
        self._limit_bytes = limit_bytes
        self._connection: sqlite3.Connection | None = None

    @property
    def is_open(self) -> bool:
        """Whether the file is in use."""
        return self._connection is not None

    def connection(self) -> sqlite3.Connection:
        """Return the connection; opens the file, which is made if it is not there."""
        if self._connection is None:
            is_new = not self.path.exists()
            if is_new:
                # Only the owner may read rows; what SQLite puts next to the file is as private as the file.
                try:
                    self.path.touch(0o600)
                except OSError as error:
                    raise files.problem(self.path, "made", error) from error
            connection = None
            try:
                connection = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
                self._prepare(connection, is_new=is_new)
            except (sqlite3.Error, OSError) as error:
                if connection is not None:
                    connection.close()
                if is_new:
                    self.remove()
                if isinstance(error, OSError):
                    raise files.problem(self.path, "made", error) from error
                raise
            self._connection = connection
        return self._connection

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Make what is done inside durable as one, or nothing of it."""
        connection = self.connection()
        with _transaction(connection):
            yield connection

    def belongs(self) -> None:
        """Raise NeedsOperator unless the file is of this source, and of a release whose spools are read."""
        for (version,) in self.connection().execute("select version from about").fetchall():
            SPOOL.check(version, f"spool {self.path}")
        sources = [source for (source,) in self.connection().execute("select source from about")]
        if sources != [self._source]:
            raise NeedsOperator(
                f"spool {self.path} is of source {', '.join(map(repr, sources)) or 'none'}, not of {self._source!r}",
                hint="Give each source a state folder of its own.",
            )

    def close(self) -> None:
        """Close the file."""
        if self._connection is not None:
            with contextlib.suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None

    def remove(self) -> None:
        """Close and remove the file: its space is returned to the disk."""
        self.close()
        try:
            for ending in ("", "-wal", "-journal"):
                self.path.with_name(self.path.name + ending).unlink(missing_ok=True)
        except OSError as error:
            raise files.problem(self.path, "removed", error) from error

    def problem(self, error: Exception, needed: int = 0) -> NoSpace | NeedsOperator:
        """Return the error of a write of so many bytes that failed."""
        if may_pass(error):
            if needed and self._is_at_limit(needed):
                return NoSpace(f"the spool is full: no more fits into its {self._limit_bytes / 1e6:.1f} MB")
            return NoSpace(f"the disk of {self.path.parent} takes no more ({error})")
        return NeedsOperator(
            f"spool {self.path} cannot be written: {error}",
            hint="Fix the disk, then start the edge again: what the spool holds is checked first.",
        )

    def _prepare(self, connection: sqlite3.Connection, *, is_new: bool) -> None:
        # One process has the state folder: no shared memory next to the file, no other's locks.
        connection.execute("pragma locking_mode = exclusive")
        connection.execute(f"pragma page_size = {_PAGE_BYTES}")
        connection.execute("pragma journal_mode = wal")
        connection.execute("pragma synchronous = full")
        connection.execute(f"pragma journal_size_limit = {_JOURNAL_BYTES}")
        # What is there already is given back even where the limit was lowered.
        connection.execute(f"pragma max_page_count = {max(16, self._limit_bytes // _PAGE_BYTES)}")
        if is_new:
            with _transaction(connection):
                connection.execute(_ABOUT)
                connection.execute(_BATCH)
                connection.execute("insert into about values (?, ?)", (SPOOL.version, self._source))
            _sync_folder(self.path.parent)

    def _is_at_limit(self, needed: int) -> bool:
        if self._connection is None:
            return False
        pages, free = (
            self._connection.execute(f"pragma {name}").fetchone()[0] for name in ("page_count", "freelist_count")
        )
        # Every body may leave the best part of a page empty.
        return bool((pages - free) * _PAGE_BYTES + 1.2 * needed + 4 * _PAGE_BYTES > self._limit_bytes)


def may_pass(error: Exception) -> bool:
    """Whether an error is that of a disk or a process that takes nothing now, and not of a damaged file."""
    # The lowest byte of SQLite's extended codes is the plain one.
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF in _PASSING


@contextlib.contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("begin immediate")
    try:
        yield
        connection.execute("commit")
    except BaseException:
        # Some errors have ended it already.
        if connection.in_transaction:
            with contextlib.suppress(sqlite3.Error):
                connection.execute("rollback")
        raise


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
