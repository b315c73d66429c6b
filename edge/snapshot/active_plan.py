"""The plan in use, and the copy of a table that is under way by it. For the capturing thread alone.

The plan is moved by requests and by what is acknowledged, and written when it moved. A copy has what is to be read next, what was
sent, and how far it is acknowledged: chunks are sent in the order in which they were read, and acknowledged in that order, and an
attempt begins where the plan notes that the one before it was acknowledged.
"""

import logging
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from edge.snapshot.plan import Key, LogTable, Plan, State, TablePlan
from edge.snapshot.ports import Chunk, Put, Reader
from edge.snapshot.store import Request, SnapshotStore
from headrace.errors import NeedsOperator, NoSpace
from headrace.position import Position

_log = logging.getLogger(__name__)

#: Progress alone is written so often, in seconds.
_SAVE_SECONDS = 0.5
#: Keys that are read once more in one chunk, at most: fewer where their rows are large.
_MOST_AGAIN = 1_000
#: How fast the rate follows what is seen.
_WEIGHT = 0.2


class ActivePlan:
    """The plan of the state folder, in the present epoch."""

    def __init__(
        self, folder: SnapshotStore, epoch: int, copied: Callable[[str, int], None] = lambda _table, _started_ms: None
    ) -> None:
        """`copied` is called when a whole table was copied again, with its name and when that began, in milliseconds."""
        self._folder = folder
        self._copied = copied
        self.plan: Plan = folder.plan()
        self._dirty = self.plan.enter(epoch) and bool(self.plan.tables)
        self._saved_at = 0.0
        self._is_full = self._has_moved = False
        # The keys of one table's list of rows that are read once more.
        self._noted_in: list[Key] = []
        self._noted: set[tuple[str, ...]] = set()
        # Requests that took effect, to be removed once the plan is written.
        self._taken: list[Path] = []

    def oldest(self) -> tuple[Path, Request] | None:
        """Return the request that has waited longest, with its file; None when none waits."""
        return next((waits for waits in self._folder.waiting() if waits[0] not in self._taken), None)

    @staticmethod
    def resolved(reader: Reader, request: Request) -> list[str]:
        """Return the names of the tables that a request for snapshots means."""
        if not request.tables:
            return reader.published()
        return reader.named(request.tables)

    def take(self, path: Path, request: Request, tables: list[str]) -> None:
        """Let a request take effect; `tables` are those that it means."""
        plan, now_ms = self.plan, time.time_ns() // 1_000_000
        if request.kind == "cancel":
            plan.cancel(tables, now_ms)
        elif request.kind == "snapshot":
            plan.add_all(tables, where=request.where, replace=request.replace, now_ms=now_ms, restart=request.restart)
        else:
            plan.paused = request.kind == "pause"
        _log.info("snapshot request taken: %s %s", request.kind, ", ".join(tables))
        self._taken.append(path)
        self._dirty = True
        self._save_if_possible()

    def started(self, table: TablePlan, estimate: int, log_table: LogTable | None, *, of_moment: bool = False) -> None:
        """Note that a table is being copied; from its first row where it is not the table of before, or has another key.

        `of_moment`: it has no key, and is replaced by the rows of one moment.

        Durable when this returns, so before a row is read.
        """
        continues = log_table == table.log_table if log_table is None else log_table.continues(table.log_table)
        if not continues and not table.is_at_first_row:
            _log.warning("the snapshot of %s begins again: the table or its key is not the one of before", table.name)
            table.restart()
        if table.is_of_whole_table and table.is_at_first_row:
            table.marks_open = True
        table.replace = table.replace or of_moment
        table.state, table.estimate, table.log_table = "running", estimate, log_table
        table.started_ms = table.started_ms or time.time_ns() // 1_000_000
        self.save()

    @property
    def followed(self) -> set[LogTable]:
        """The tables of which a part may be copied already, and not all."""
        return {table.log_table for table in self.plan.unfinished() if table.log_table is not None}

    def restart(self, table: TablePlan) -> None:
        """Copy a table again from its first row; durable before the log behind it can be confirmed."""
        table.restart()
        self.save()

    def moved(self, table: TablePlan, key: Key) -> None:
        """Note a row that has to be read once more; `save_moved` makes it durable."""
        # The list is another one whenever rows were read or settled.
        if self._noted_in is not table.again or len(self._noted) != len(table.again):
            self._noted_in, self._noted = table.again, set(map(tuple, table.again))
        if tuple(key) not in self._noted:
            table.again.append(key)
            self._noted.add(tuple(key))
            self._has_moved = True

    def save_moved(self) -> None:
        """Make rows durable that have to be read once more: before the log behind their changes can be confirmed."""
        if self._has_moved:
            self.save()

    def ended(self, table: TablePlan, state: State, problem: str = "") -> None:
        """Note that a table is done, or why it is not."""
        if state == "done":
            table.marks_open = False
        table.state, table.problem, table.rows_per_second = state, problem, 0.0
        table.finished_ms = time.time_ns() // 1_000_000
        self._dirty = True
        self._save_if_possible()
        if state == "done" and table.replace and table.where is None:
            self._copied(table.name, table.started_ms)

    def end_marked(self, table: TablePlan) -> None:
        """Note that consumers have the end of a copy that was cancelled or failed."""
        table.marks_open = False
        self._dirty = True
        self._save_if_possible()

    def progressed(self) -> None:
        """Note that the plan has moved: it is written soon."""
        self._dirty = True

    def save_due(self, now: float) -> None:
        """Write the plan if it has moved and the last write is long enough ago; where the disk is full, try again later."""
        if self._dirty and now - self._saved_at >= _SAVE_SECONDS:
            self._saved_at = now
            self._save_if_possible()

    def save(self) -> None:
        """Write the plan, and then remove the requests that it follows from; raise NoSpace or NeedsOperator."""
        self._dirty = True
        self._folder.save(self.plan)
        self._dirty = self._is_full = self._has_moved = False
        while self._taken:
            self._folder.taken(self._taken[0])
            self._taken.pop(0)

    def save_rest(self) -> None:
        """Write the plan if it has moved since it was written, and the disk takes it: what is not noted is copied again."""
        try:
            self._save_if_possible()
        except NeedsOperator as error:
            _log.warning("%s", error.message)

    def _save_if_possible(self) -> None:
        """Write the plan if it has moved; it stays to be written where the disk takes nothing now."""
        if not self._dirty:
            return
        try:
            self.save()
        except NoSpace as error:
            if not self._is_full:
                self._is_full = True
                _log.warning("%s: the snapshot goes on, and notes how far it is when there is space", error.message)


class _Sent(NamedTuple):
    """A chunk in flight, and where the plan is when it is acknowledged."""

    position: Position | None
    rows: int
    cursor: Key | None
    whole: bool
    #: How many chunks it is: the mark of a copy is none.
    chunks: int
    #: Keys that were read once more, and keys that have to be.
    done: list[Key]
    again: list[Key]


class TableCopy:
    """An attempt at a table, from where the plan is; of one that was cancelled or failed only the end is to be marked."""

    def __init__(self, plan: TablePlan, table: Any, aim_bytes: int, *, of_moment: bool = False) -> None:
        self.plan = plan
        self.table = table
        self._cursor, self._whole, self._again = plan.cursor, plan.whole, list(plan.again)
        self._to_read: list[Key] = []
        self._most_again = _MOST_AGAIN
        # The keys of a list of rows that are read once more.
        self._noted_in: list[Key] = []
        self._noted: set[tuple[str, ...]] = set()
        self._sent: deque[_Sent] = deque()
        self._size = ChunkSize(aim_bytes)
        self._settled_at = time.monotonic()
        #: Whether all chunks are of one moment, as those of a table without a key, which begins where the first one is put.
        self.of_moment = of_moment
        #: Whether consumers still need the truncate that empties the table.
        self.replaces = plan.replace and plan.is_at_first_row and plan.unfinished
        #: Whether the beginning still has to be marked.
        self.begins = plan.is_of_whole_table and plan.is_at_first_row and plan.unfinished
        self._is_abandoned = not plan.unfinished
        # Whether the end was marked behind all that was sent, or need not be: its beginning was not.
        self._end_marked = not plan.marks_open

    @property
    def unacknowledged(self) -> int:
        """How many chunks are in flight."""
        return sum(sent.chunks for sent in self._sent)

    @property
    def all_read(self) -> bool:
        """Whether nothing is left to be read."""
        return self._is_abandoned or (self._whole and not self._again)

    @property
    def ends(self) -> bool:
        """Whether only the end still has to be marked."""
        return self.all_read and not self._end_marked and not self._sent

    @property
    def finished(self) -> bool:
        """Whether everything is acknowledged."""
        if self._sent or not self._end_marked:
            return False
        return self._is_abandoned or (self.all_read and self.plan.whole and not self.plan.again)

    def next(self) -> Callable[[Reader], Chunk]:
        """Return the job that reads the next chunk."""
        plan, table, size, after = self.plan, self.table, self._size, self._cursor
        if not self._whole:
            rows, limit = size.rows, size.limit_bytes
            return lambda reader: reader.rows(table, plan.where, after, rows, limit)
        self._to_read, self._again = self._again[: self._most_again], self._again[self._most_again :]
        keys, limit = self._to_read, size.limit_bytes
        return lambda reader: reader.read_keys(table, plan.where, keys, limit)

    def redo(self) -> None:
        """Let the chunk that was read last be read again."""
        self._again, self._to_read = self._to_read + self._again, []

    def read(self, chunk: Chunk) -> Callable[[Put], None]:
        """Go on behind a chunk; call what this returns with what became of it."""
        keys, unread, self._to_read = self._to_read[: chunk.keys], self._to_read[chunk.keys :], []
        if keys:
            self._again = unread + self._again
            self._most_again = len(keys) if unread else min(_MOST_AGAIN, self._most_again * 2)
        else:
            self._size.read(len(chunk.rows), chunk.size)
            self._cursor, self._whole = chunk.last or self._cursor, chunk.end
        cursor, whole, rows = self._cursor, self._whole, 0 if keys else len(chunk.rows)

        def sent(put: Put) -> None:
            self._again += put.again
            self._sent.append(_Sent(put.position, rows, cursor, whole, 1, keys, put.again))

        return sent

    def replaced(self, position: Position) -> None:
        """Note that the truncate was written."""
        self.replaces = False
        self._sent.append(_Sent(position, 0, self._cursor, self._whole, 1, [], []))

    def marked(self, position: Position, *, end: bool) -> None:
        """Note that the beginning or the end was marked."""
        if end:
            self._end_marked = True
        else:
            self.begins = False
        self._sent.append(_Sent(position, 0, self._cursor, self._whole, 0, [], []))

    def moved(self, key: Key) -> None:
        """Let a row be read once more."""
        # The list is another one whenever rows were read.
        if self._noted_in is not self._again or len(self._noted) != len(self._again):
            self._noted_in, self._noted = self._again, set(map(tuple, self._again))
        if tuple(key) not in self._noted:
            self._again.append(key)
            self._noted.add(tuple(key))
            # The end is marked once more behind that row.
            self._end_marked = not self.plan.marks_open

    def settle(self, acknowledged: Position, now: float) -> bool:
        """Move the plan over the chunks that are acknowledged; return whether it moved."""
        moved, plan, rows = False, self.plan, 0
        while self._sent and (self._sent[0].position is None or self._sent[0].position <= acknowledged):
            sent = self._sent.popleft()
            plan.cursor, plan.whole = sent.cursor, sent.whole
            if sent.done or sent.again:
                # One that moved again since is still to be read.
                done = set(map(tuple, sent.done)).difference(map(tuple, self._again))
                keys = {tuple(key): key for key in plan.again if tuple(key) not in done}
                keys |= {tuple(key): key for key in sent.again if tuple(key) not in keys}
                plan.again = list(keys.values())
            plan.chunks += sent.chunks
            rows += sent.rows
            moved = True
        if moved:
            plan.rows += rows
            seconds = max(1e-3, now - self._settled_at)
            self._settled_at = now
            rate = rows / seconds
            plan.rows_per_second = round(rate * _WEIGHT + plan.rows_per_second * (1 - _WEIGHT), 1)
        return moved


#: Bounds, in rows. The upper one bounds how long a chunk holds up the stream behind it.
FEWEST, MOST = 100, 10_000
_FIRST = 1_000
#: A chunk is ended where it is when it grows beyond so many times the aim.
_TOO_MUCH = 2


class ChunkSize:
    """The aim for a table's chunks, in bytes, and the number of rows that should meet it."""

    def __init__(self, aim_bytes: int) -> None:
        self._aim = aim_bytes
        #: Rows to read next.
        self.rows = _FIRST
        #: Bytes at which a chunk is ended, however many rows were requested.
        self.limit_bytes = aim_bytes * _TOO_MUCH

    def read(self, rows: int, size: int) -> None:
        """Note what the last chunk had."""
        if rows:
            fitting = self._aim * rows // max(1, size)
            # It grows step by step: rows that are narrow so far are no measure for the next ones.
            self.rows = max(FEWEST, min(MOST, fitting, self.rows * 4))
