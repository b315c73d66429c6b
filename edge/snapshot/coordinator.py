"""Copies existing rows next to the stream, chunk by chunk, as planned (design decision 10; DBLog, arXiv 2010.12597).

A watermark is written to the log; when it comes back, the window opens and a chunk is read; then the next watermark is written,
and where that one is in the log the chunk's rows take their place, without those that changed meanwhile. It is the watermark
ahead of the next chunk as well. Guarantees that the plan is never ahead of what is acknowledged; that no transaction is held
longer than one chunk; that a failure here ends a table's snapshot at most, never the stream. One for each session: what was on
in flight with the session before is read again. Everything but the worker's jobs runs in the capturing thread.

PostgreSQL's log leaves large values out that did not change. A row that moves from a key that is not copied yet to one that
is would lack them permanently, so rows of a table that is copied in part are followed from the first byte of each session on,
whether the table's turn has come or not, and those that move are read once more.

The beginning and the end of a whole table's copy are marked, so that consumers can wait for all of it. Before the beginning is
marked the plan notes durably that the copy is open: if it is cancelled or fails, this session or a later one marks its end.
"""

import logging
import secrets
import time
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any

from edge.snapshot.active_plan import ActivePlan, TableCopy
from edge.snapshot.chunk_reader import Job, Worker
from edge.snapshot.plan import Key, LogTable, TablePlan
from edge.snapshot.ports import Chunk, DedupWindow, Described, MomentGone, Reader, Source
from edge.snapshot.store import Request
from headrace.errors import NeedsOperator, NoSpace, NotConnected, Retryable
from headrace.position import Position
from headrace.schema import COPY_BEGINS, COPY_ENDS
from headrace.waiting import Backoff

_log = logging.getLogger(__name__)

#: Requests are looked for so often, in seconds.
_REQUEST_SECONDS = 0.25
#: Chunks that are not acknowledged: more of them would only make the stream wait behind them.
_MOST_UNACKNOWLEDGED = 2
#: A chunk that does not fit is read again at once so many times, and then after pauses; from so many times on that is reported.
_AT_ONCE, _REPORTED = 3, 6


class Phase(Enum):
    """Where the snapshot of the present table is; everything else follows from it.

    IDLE ── a table is due ──▶ DESCRIBING ── it can be copied ──▶ READY ⇄ WATERMARK_SENT
      ▲                            │                                │           │
      └──────── the table is done, cancelled, failed, or tried again later ─────┘

    A copy that was cancelled or failed takes the same path once more where its end still has to be marked.
    """

    #: No table is being copied.
    IDLE = "idle"
    #: The table is looked up in the catalog.
    DESCRIBING = "describing"
    #: The table is known, and no watermark is awaited: all is read, or reading waits.
    READY = "ready"
    #: A watermark was written and is awaited in the log, perhaps with a chunk that was read ahead of it.
    WATERMARK_SENT = "watermark sent"


class SnapshotCoordinator:
    """The snapshots of one session; `run_due` is to be called often."""

    def __init__(
        self,
        control: ActivePlan,
        source: Source,
        *,
        acknowledged: Callable[[], Position],
        wake: Callable[[], None],
        aim_bytes: int,
        worker: Callable[[Callable[[], Reader], Callable[[], None]], Worker] = Worker,
    ) -> None:
        self._active = control
        self._acknowledged = acknowledged
        self._aim_bytes = aim_bytes
        self._worker = worker(source.reader, wake)
        self._stream = source.stream(self._on_watermark)
        self._window = DedupWindow()
        self._backoff = Backoff(first=0.2, longest=10.0)
        self._now = self._looked_at = self._not_before = 0.0
        # How often in succession a chunk did not fit, and the pauses before it is read again.
        self._misfits, self._misfit_backoff = 0, Backoff(first=0.1, longest=5.0)
        # Watermarks of other sessions are not ours.
        self._session, self._number = secrets.token_hex(8), 0
        self.phase = Phase.IDLE
        # The table of any phase but IDLE, and its copy once it is described.
        self._plan: TablePlan | None = None
        self._copy: TableCopy | None = None
        # Whether it was cancelled or failed, and only the end of its copy is to be marked.
        self._only_end = False
        # Tables whose description failed when the ends of their copies were to be marked: the next session tries again.
        self._cannot_end: set[str] = set()
        # The watermark that was sent last, and the chunk that was read ahead of some watermark.
        self._expected = b""
        self._read: tuple[bytes, Chunk | None] = (b"", None)
        # Why requests cannot be read; empty while they can.
        self._unreadable = ""
        self._follow_moved_rows()

    def run_due(self, now: float) -> float:
        """Do what is due at a time of a monotonic clock; return the seconds until something may be due again."""
        self._now = now
        self._active.save_moved()
        self._worker.take()
        if now - self._looked_at >= _REQUEST_SECONDS:
            self._looked_at = now
            self._take_request()
        self._note_acknowledged(now)
        self._active.save_due(now)
        if self.phase in {Phase.IDLE, Phase.READY} and not self._worker.busy and now >= self._not_before:
            self._advance()
        return _REQUEST_SECONDS

    def close(self) -> None:
        """Note what is acknowledged, and read no more; what cannot be noted is copied again."""
        try:
            self._note_acknowledged(time.monotonic())
            self._active.save_rest()
        except NeedsOperator as error:
            # What ended the session counts; the next one meets this again.
            _log.warning("%s", error.message)
        finally:
            self._reset()
            self._worker.stop(1.0)

    def _take_request(self) -> None:
        """Take the request that has waited longest; one for tables waits for the worker, which looks up their names."""
        try:
            waiting = self._active.oldest()
            self._unreadable = ""
        except (NoSpace, NeedsOperator) as error:
            # Nobody but the snapshots waits for it.
            if error.message != self._unreadable:
                self._unreadable = error.message
                _log.warning("snapshot requests wait: %s", error.message)
            waiting = None
        if waiting is not None and waiting[1].kind != "snapshot":
            self._active.take(*waiting, waiting[1].tables)
        elif waiting is not None and not self._worker.busy:
            path, request = waiting
            self._submit(
                lambda reader: self._active.resolved(reader, request),
                lambda tables: self._take(path, request, tables),
            )
        copy = self._copy
        if (
            copy is not None
            and copy.of_moment
            and self._active.plan.paused
            and copy.plan.unfinished
            and not copy.all_read
        ):
            # A pause may last, and the moment's transaction with it.
            self._begin_again(copy.plan, "it is paused")
        if self._plan is not None and not self._plan.unfinished and not self._only_end:
            _log.info("the snapshot of %s was cancelled", self._plan.name)
            self._reset()
            self._follow_moved_rows()

    def _take(self, path: Path, request: Request, tables: list[str]) -> None:
        self._active.take(path, request, tables)
        if request.restart and self._plan is not None and self._plan.name in tables:
            self._reset()
            self._follow_moved_rows()

    def _note_acknowledged(self, now: float) -> None:
        copy = self._copy
        if copy is None:
            return
        if copy.settle(self._acknowledged(), now):
            self._active.progressed()
        if not copy.finished:
            return
        if copy.plan.unfinished:
            _log.info("the snapshot of %s is done: %d rows", copy.plan.name, copy.plan.rows)
            self._active.ended(copy.plan, "done")
        else:
            _log.info("the end of the %s copy of %s is marked", copy.plan.state, copy.plan.name)
            self._active.end_marked(copy.plan)
        self._reset()
        self._follow_moved_rows()

    def _advance(self) -> None:
        """Take the step that no watermark leads to."""
        if self.phase is Phase.IDLE:
            abandoned = (it for it in self._active.plan.abandoned() if it.name not in self._cannot_end)
            plan = next(abandoned, None) or self._active.plan.next
            if plan is not None:
                self.phase, self._plan, self._only_end = Phase.DESCRIBING, plan, not plan.unfinished
                where = plan.where if plan.unfinished else None
                self._submit(
                    lambda reader: reader.describe(plan.name, where),
                    lambda described: self._begin(plan, described),
                )
        elif self._can_read() or self._can_end():
            self._write_watermark(None)

    def _begin(self, plan: TablePlan, described: Described) -> None:
        """Start a table, or go on with it, or come to the end of one that was given up."""
        # It may have been cancelled meanwhile.
        if plan is not self._plan or plan.unfinished is self._only_end:
            return
        self._cannot_end.discard(plan.name)
        if not self._only_end:
            try:
                self._active.started(plan, described.estimate, described.log_table, of_moment=described.of_moment)
            except NoSpace as error:
                self._reset()
                self._pause(error)
                return
            self._follow_moved_rows()
            _log.info("%s the snapshot of %s", "going on with" if plan.cursor else "starting", plan.name)
        self.phase = Phase.READY
        self._copy = TableCopy(plan, described.table, self._aim_bytes, of_moment=described.of_moment)
        self._window.keeps_changes = self._copy.of_moment and self._copy.begins
        self._stream.watch(described.table, self._window)

    def _can_read(self) -> bool:
        copy = self._copy
        if copy is None or copy.all_read or self._active.plan.paused or not copy.plan.unfinished:
            return False
        return copy.unacknowledged < _MOST_UNACKNOWLEDGED

    def _can_end(self) -> bool:
        copy = self._copy
        return copy is not None and copy.ends and (self._only_end or not self._active.plan.paused)

    def _write_watermark(self, read: Callable[[Reader], Chunk] | None) -> None:
        """Read a chunk if need be, then write the watermark behind it; the chunk waits until that comes back.

        A watermark without a chunk may be the place of the copy's marks and of its truncate, which have the table's columns.
        """
        self._number += 1
        held = self._copy.table if self._copy is not None and read is None else None
        self.phase = Phase.WATERMARK_SENT
        self._expected = content = f"{self._session}:{self._number}".encode()

        def job(reader: Reader) -> None:
            chunk = read(reader) if read is not None else None
            self._read = content, chunk
            if chunk is not None:
                self._window.lacks = chunk.lacks
            reader.write_watermark(content, held)

        self._submit(job, lambda _: self._backoff.reset())

    def _on_watermark(self, content: bytes) -> None:
        """Put the chunk that was read where its watermark is in the log, and have the next one read."""
        copy, window = self._copy, self._window
        if self.phase is not Phase.WATERMARK_SENT or content != self._expected or copy is None:
            return
        self.phase = Phase.READY
        chunk = self._read[1] if self._read[0] == content else None
        self._read = b"", None
        if copy.of_moment and not (copy.begins or copy.all_read) and (window.truncated or window.altered):
            # What is copied is not what was there at the copy's beginning any more.
            self._begin_again(copy.plan, "it was emptied or altered, or its changes are too many")
            return
        if chunk is None:
            self._put_marks(copy)
        elif not self._stream.fits(chunk, window):
            copy.redo()
            self._pause_misfit(copy)
            chunk = None
        else:
            self._misfits = 0
            self._misfit_backoff.reset()
            if copy.of_moment and copy.begins:
                self._put_beginning(copy)
                window.keeps_changes = False
        sent = copy.read(chunk) if chunk is not None else None
        # The next chunk is read while this one is put: for both this is the watermark.
        reads_on = self._can_read() and self._now >= self._not_before
        if reads_on:
            self._write_watermark(copy.next())
        if chunk is not None and sent is not None:
            sent(self._stream.put(chunk, window))
        if reads_on:
            window.open()
            self._stream.window_opened()
        else:
            window.close()

    def _pause_misfit(self, copy: TableCopy) -> None:
        """Put off the next attempt at a chunk that lacks what the stream had before it, or whose table was altered meanwhile."""
        self._misfits += 1
        if self._misfits > _AT_ONCE:
            self._not_before = self._now + self._misfit_backoff.pause()
        if self._misfits == _REPORTED:
            _log.warning(
                "the snapshot of %s waits for a transaction that readers do not see yet, as one whose commit waits for a standby",
                copy.plan.name,
            )

    def _put_marks(self, copy: TableCopy) -> None:
        """Mark that a copy begins, with a truncate where it replaces what consumers have, or that it ends.

        One of a moment begins with its first chunk.
        """
        if not copy.of_moment:
            self._put_beginning(copy)
        if copy.ends:
            copy.marked(self._mark_end(copy), end=True)

    def _put_beginning(self, copy: TableCopy) -> None:
        if copy.begins:
            copy.plan.marked_schema = self._stream.schema_of(copy.table)
            self._active.progressed()
            copy.marked(self._stream.mark_copy(copy.table, COPY_BEGINS), end=False)
        if copy.replaces:
            copy.replaced(self._stream.truncate(copy.table))

    def _mark_end(self, copy: TableCopy) -> Position:
        if copy.table is not None:
            return self._stream.mark_copy(copy.table, COPY_ENDS)
        assert copy.plan.marked_schema is not None
        return self._stream.mark_copy_of_gone(copy.plan.marked_schema, COPY_ENDS)

    def save_moved(self) -> None:
        """Make durable which rows have to be read once more, before anything behind their changes is sent."""
        self._active.save_moved()

    def _follow_moved_rows(self) -> None:
        self._stream.follow(self._active.followed, self._on_row_moved)

    def _on_row_moved(self, log_table: LogTable, key: Key | None) -> None:
        """Have a row read once more that moved without all of its columns: its new key may be among those that are copied."""
        for plan in [plan for plan in self._active.plan.unfinished() if plan.log_table == log_table]:
            if key is None:
                self._begin_again(plan, "its key was altered")
                continue
            if self._copy is not None and plan is self._copy.plan:
                self._copy.moved(key)
            self._active.moved(plan, key)

    def _begin_again(self, plan: TablePlan, reason: str) -> None:
        """Copy a table again from its first row."""
        _log.warning("the snapshot of %s begins again: %s", plan.name, reason)
        if plan is self._plan:
            self._reset()
        self._active.restart(plan)

    def _submit(self, job: Job, then: Callable[[Any], None]) -> None:
        """Do a job, and then what follows; a failure ends the attempt at the table, or its snapshot."""
        plan, only_end = self._plan, self._only_end

        def done(outcome: Any) -> None:
            if not isinstance(outcome, Exception):
                then(outcome)
                return
            if self._plan is plan:
                self._reset()
            if isinstance(outcome, MomentGone) and plan is not None and plan.unfinished:
                self._begin_again(plan, outcome.message)
            elif isinstance(outcome, NotConnected | Retryable):
                self._pause(outcome)
            elif isinstance(outcome, NeedsOperator):
                _log.error("snapshot of %s: %s. %s", plan and plan.name, outcome.message, outcome.hint)
                self._not_before = self._now + self._backoff.pause()
                if plan is not None and plan.unfinished:
                    self._active.ended(plan, "failed", f"{outcome.message}. {outcome.hint}")
                elif plan is not None and only_end and plan.marked_schema is not None:
                    _log.info("the end of the copy of %s is marked with the schema of its beginning", plan.name)
                    self.phase, self._plan, self._only_end = Phase.READY, plan, True
                    self._copy = TableCopy(plan, None, self._aim_bytes)
                elif plan is not None and only_end:
                    self._cannot_end.add(plan.name)
                    _log.warning("the end of the copy of %s cannot be marked: consumers wait for a new copy", plan.name)
            else:
                raise outcome

        self._worker.do(job, done)

    def _pause(self, error: NotConnected | Retryable) -> None:
        pause = self._backoff.pause()
        self._not_before = self._now + pause
        _log.warning("snapshot: %s; trying again in %.1f s", error.message, pause)

    def _reset(self) -> None:
        """Be done with a table, or with the attempt at it."""
        if self._copy is not None and self._copy.of_moment:
            self._worker.do(lambda reader: reader.leave(), lambda _: None)
        self.phase, self._plan, self._copy, self._only_end = Phase.IDLE, None, None, False
        self._read = b"", None
        self._stream.unwatch()
        self._window.close()
