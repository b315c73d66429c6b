"""The plan in use: moved by requests and by what is acknowledged, and written when it moved. For the capturing thread alone."""

import logging
import time
from collections.abc import Callable
from pathlib import Path

from edge.snapshot.plan import Key, LogTable, Plan, State, TablePlan
from edge.snapshot.ports import Reader
from edge.snapshot.store import Request, SnapshotStore
from headrace.errors import NeedsOperator, NoSpace

_log = logging.getLogger(__name__)

#: Progress alone is written so often, in seconds.
_SAVE_SECONDS = 0.5


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
