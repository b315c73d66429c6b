"""The spool: batches on this machine's disk that the far side has not accepted, in order (design decision 8).

One file in the state folder, there only while it holds something. Guarantees that what `append` returned from is durable,
that it is given back byte for byte or not at all (each row has a checksum), and that the file stays within its limit.
Knows batches and positions alone, no engine. Not for several threads at once: edge/progress/spooler.py sees to that.
"""

import contextlib
import logging
import shutil
import sqlite3
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from edge.progress.spool_file import SpoolFile, may_pass
from edge.records.batcher import SealedBatch
from headrace import files
from headrace.errors import CorruptInput, NeedsOperator, NoSpace
from headrace.formats import UNREADABLE
from headrace.position import Position

_log = logging.getLogger(__name__)

_NAME = "spool.sqlite"
_ROWS_AT_ONCE = 256
#: What reading a damaged file raises; a column of SQLite's holds values of any type, whatever it was declared as.
_DAMAGED = (sqlite3.Error, CorruptInput, TypeError, LookupError, *UNREADABLE)
_READ = "select id, first, last, confirm, put_at, checksum, head, body from batch where id between ? and ? order by id"


def spool_limit(folder: Path) -> int:
    """Return how many megabytes a spool in this folder may have at most: as many as its volume, without the reserve."""
    return max(0, shutil.disk_usage(folder).total - files.RESERVE_BYTES) >> 20


class Kept(NamedTuple):
    """A batch of the spool."""

    #: Rows are numbered in the order of the batches, without a hole.
    row: int
    batch: SealedBatch
    #: When it was captured, in seconds since 1970.
    put_at: float


class Spool:
    """The batches of one source, from the oldest that is not accepted on."""

    def __init__(self, folder: Path, source: str, limit_bytes: int) -> None:
        self._source = source
        self._file = SpoolFile(folder / _NAME, source, limit_bytes)
        self.path = self._file.path
        self.limit_bytes = limit_bytes
        #: Number of the oldest row, and of the newest; the newest is less by one when there is none.
        self.first_row, self.last_row = 1, 0
        #: Size of the bodies, in bytes.
        self.bytes = 0
        #: Last position of the newest row; None when there is none.
        self.end: Position | None = None

    def __len__(self) -> int:
        """Return how many batches it holds."""
        return self.last_row - self.first_row + 1

    def open(self, acknowledged: Position, promised: Position | None, confirmed: int) -> None:
        """Take up what a former process left, checked whole, without what is read again from the confirmed place.

        That place is the checkpoint's: what became durable here after its last writing is read again.
        `promised` is the position up to which the checkpoint requires the spool to hold what is not acknowledged; None when
        nothing depends on it. Raises NeedsOperator, naming the range that is lost, unless it is all there.
        """
        if promised is not None and promised <= acknowledged:
            promised = None
        try:
            exists = self._check_rows(acknowledged, confirmed)
        except _DAMAGED as error:
            if may_pass(error):
                raise self._file.problem(error) from error
            if promised is not None:
                raise self.lost(acknowledged, promised, f"is damaged ({error})") from error
            _log.warning("spool %s is damaged (%s); nothing depends on it, so it is removed", self.path, error)
            self._drop()
            return
        if promised is not None and (self.end is None or self.end < promised):
            why = f"ends at {self.end or 'its beginning'}" if exists else "is gone"
            raise self.lost(acknowledged, promised, why)

    def promised(self) -> Position | None:
        """Return the position up to which the file, by its own note, has everything; None when there is none.

        Raises NeedsOperator when it cannot be read.
        """
        if not self.path.exists():
            return None
        try:
            self._file.belongs()
            (last,) = self._file.connection().execute("select max(last) from batch where confirm > 0").fetchone()
            return Position.parse(last) if last else None
        except _DAMAGED as error:
            if may_pass(error):
                raise self._file.problem(error) from error
            raise NeedsOperator(
                f"spool {self.path} is damaged ({error}): what it held is lost here, because the source may have discarded it",
                hint="Move it to another folder, run 'headrace edge init --adopt --new-epoch', and copy again the tables that "
                "'headrace verify' names.",
            ) from error
        finally:
            self.close()

    def lost(self, acknowledged: Position, promised: Position, why: str) -> NeedsOperator:
        """Return the error for what only the spool had."""
        return NeedsOperator(
            f"spool {self.path} {why}: it alone held the changes of {self._source} after {acknowledged} up to {promised}, "
            "because they were confirmed to the source",
            hint=f"Put the file back if you have it. Otherwise those changes are lost here: move {self.path.name}* and the "
            "checkpoint to another folder, run 'headrace edge init --adopt --new-epoch', and copy again the tables that "
            "'headrace verify' names.",
        )

    def append(self, batches: Sequence[tuple[SealedBatch, int, float]]) -> None:
        """Make batches durable behind the newest: each with the place that it lets be confirmed and when it was captured.

        Raises NoSpace, with nothing of them kept, when they do not fit.
        """
        self._hold_reserve()
        row = self.last_row
        try:
            with self._file.transaction() as connection:
                # What `open` and `rewind` left out.
                connection.execute("delete from batch where id < ? or id > ?", (self.first_row, self.last_row))
                for batch, confirm, put_at in batches:
                    row += 1
                    head, body = _head(batch), batch.body
                    connection.execute(
                        "insert into batch values (?, ?, ?, ?, ?, ?, ?, ?)",
                        (row, str(batch.first), str(batch.last), confirm, put_at, _checksum(head, body), head, body),
                    )
        except (sqlite3.Error, NoSpace) as error:
            if not len(self):
                files.give_up_reserve(self.path.parent)
            if isinstance(error, NoSpace):
                raise
            raise self._file.problem(error, sum(len(batch.body) for batch, _, _ in batches)) from error
        self.last_row = row
        for batch, _, _ in batches:
            self.bytes += len(batch.body)
            self.end = batch.last

    def read(self, row: int, limit_bytes: int, after: Position) -> list[Kept]:
        """Return the batches from a row on, which follows a position: about as many bytes as the limit allows, at least one.

        Raises NoSpace when the first of them cannot be read now, and NeedsOperator when it is damaged.
        """
        batches: list[Kept] = []
        try:
            for kept in self._rows(row):
                batches.append(kept)
                limit_bytes -= len(kept.batch.body)
                if limit_bytes <= 0:
                    break
        except _DAMAGED as error:
            if not batches and may_pass(error):
                raise self._file.problem(error) from error
            if not batches:
                raise self.lost(after, self.end or after, f"is damaged ({error})") from error
        return batches

    def forget(self, acknowledged: Position) -> None:
        """Delete the batches up to an acknowledged position; the file goes with the last one.

        Raises NoSpace when a full disk does not even let rows go.
        """
        while self._file.is_open and len(self):
            if self.end is not None and self.end <= acknowledged:
                self._drop()
                return
            try:
                row, size = self._acknowledged_rows(acknowledged)
                if row < self.first_row:
                    return
                # Deleting writes too, and returns nothing to the volume until the last row goes with the file.
                self._hold_reserve()
                with self._file.transaction() as connection:
                    connection.execute("delete from batch where id <= ?", (row,))
            except sqlite3.Error as error:
                raise self._file.problem(error) from error
            self.first_row = row + 1
            self.bytes -= size

    def rewind(self, confirmed: int) -> None:
        """Leave out the newest batches whose changes all commit at the confirmed place or after it: they are read again."""
        # The file is open, and has no row, where the first batch did not fit.
        if not self._file.is_open or not len(self):
            return
        try:
            self._measure(self.first_row, self.last_row, confirmed)
        except sqlite3.Error as error:
            raise self._file.problem(error) from error

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _check_rows(self, acknowledged: Position, confirmed: int) -> bool:
        """Open the file if there is one, leave out what is acknowledged or read again, and check every row that is left."""
        if not self.path.exists():
            return False
        self._file.belongs()
        # Nothing is deleted here: the disk may be full.
        first, last = (
            self._file.connection()
            .execute("select min(id), max(id) from batch where last > ?", (str(acknowledged),))
            .fetchone()
        )
        if first is not None:
            self._measure(first, last, confirmed)
        if not len(self):
            self._drop()
            return True
        before = acknowledged
        for number, kept in enumerate(self._rows(self.first_row), self.first_row):
            if kept.row != number or kept.batch.follows > before:
                raise CorruptInput(f"nothing follows {before}")
            before = kept.batch.last
        return True

    def _measure(self, first: int, last: int, confirmed: int) -> None:
        """Take the rows from one to another for the spool, without those at the end that are read again."""
        connection = self._file.connection()
        between = "from batch where id between ? and ?"
        (end,) = connection.execute("select last from batch where id = ?", (last,)).fetchone()
        again = Position(Position.parse(end).epoch, confirmed, 0)
        (newest,) = connection.execute(f"select max(id) {between} and first < ?", (first, last, str(again))).fetchone()
        if newest is None:
            self._drop()
            self.first_row, self.last_row = first, first - 1
            return
        self.first_row, self.last_row = first, newest
        (self.bytes,) = connection.execute(f"select sum(length(body)) {between}", (first, newest)).fetchone()
        (end,) = connection.execute("select last from batch where id = ?", (newest,)).fetchone()
        self.end = Position.parse(end)

    def _rows(self, row: int) -> Iterator[Kept]:
        cursor = self._file.connection().execute(_READ, (row, self.last_row))
        with contextlib.closing(cursor):
            for columns in cursor:
                yield _decode_row(*columns)

    def _acknowledged_rows(self, acknowledged: Position) -> tuple[int, int]:
        """Return the newest row of the next few that is acknowledged, and the size of those few up to it."""
        row, size = 0, 0
        for number, last, length in self._file.connection().execute(
            "select id, last, length(body) from batch where id >= ? order by id limit ?",
            (self.first_row, _ROWS_AT_ONCE),
        ):
            if last > str(acknowledged):
                break
            row, size = number, size + length
        return row, size

    def _hold_reserve(self) -> None:
        """Have space for the checkpoint, without which no row ever goes, behind whatever is written here; NoSpace without it."""
        try:
            files.hold_reserve(self.path.parent)
        except NoSpace as error:
            raise NoSpace(f"the disk of {self.path.parent} takes no more ({error.message})") from error

    def _drop(self) -> None:
        """Remove the file, of which nothing is needed any more."""
        self._file.remove()
        files.give_up_reserve(self.path.parent)
        self.first_row, self.bytes, self.end = self.last_row + 1, 0, None


def _head(batch: SealedBatch) -> bytes:
    """Return everything of a batch but its body."""
    return msgspec.msgpack.encode(
        {each.name: getattr(batch, each.name) for each in fields(batch) if each.name != "body"}
    )


def _decode_row(
    row: int, first: str, last: str, confirm: int, put_at: float, checksum: int, head: bytes, body: bytes
) -> Kept:
    if _checksum(head, body) != checksum:
        raise CorruptInput(f"the checksum of row {row} is wrong")
    batch = msgspec.convert(
        msgspec.msgpack.decode(head, type=dict[str, Any]) | {"body": body, "confirm": confirm}, SealedBatch
    )
    # What is asked of the file goes by its columns, which the checksum does not cover.
    if (first, last) != (str(batch.first), str(batch.last)):
        raise CorruptInput(f"row {row} is of other positions than its batch")
    # A clock that was set back must not make a batch look younger than new.
    return Kept(row, batch, min(put_at, time.time()))


def _checksum(head: bytes, body: bytes) -> int:
    return zlib.crc32(body, zlib.crc32(head))
