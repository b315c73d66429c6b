"""Keeps on disk what waits too long for the far side, and gives it back in order, from a thread of its own.

Spooling begins when the oldest batch has waited `after_seconds`, or when the window is full and nothing was accepted for two
seconds; it ends when what waits is young again. A window that is full while acceptances flow is no outage: capture waits, as
it does without a spool. Guarantees that a batch counts as spooled only when it is durable, and that rows go only when the
checkpoint has what they hold. When there is no space it logs that, capture waits, and it tries again.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Iterator

from edge.delivery.outbox import Outbox
from edge.delivery.window import Entry
from edge.observability.figures import Figures
from edge.progress.spool import Kept, Spool
from headrace.errors import NoSpace
from headrace.position import Position

_log = logging.getLogger(__name__)

#: With a full window and nothing accepted for so long, in seconds, the connection counts as blocked.
_BLOCKED_SECONDS = 2.0
#: Bytes that become durable together.
_WRITE_BYTES = 8 << 20
#: Between two looks when nothing wakes the thread, and between two attempts while there is no space, in seconds.
_LOOK_SECONDS, _RETRY_SECONDS = 0.5, 2.0
#: While some is accepted now and then, space comes and goes: that there is none is logged at most so often, in seconds.
_WARN_SECONDS = 60.0


class Spooler:
    """A spool next to an outbox."""

    def __init__(self, spool: Spool, outbox: Outbox, figures: Figures, *, after_seconds: float) -> None:
        self._spool = spool
        self._outbox = outbox
        self._figures = figures
        self._after = after_seconds
        self._wakeup = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="spooler", daemon=True)
        #: Until when, by the monotonic clock, nothing is written because there is no space; 0 while there is.
        self._full_until = 0.0
        self._warned_at = -_WARN_SECONDS
        outbox.window.open_spool(spool.first_row, spool.last_row, spool.end)
        outbox.wake_spooler = self._wakeup.set
        outbox.rewind_spool = self._rewind
        self._show()

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread and close the spool; what it holds stays there."""
        self._stopping = True
        self._wakeup.set()
        if self._thread.is_alive():
            self._thread.join(10)
        with self._outbox.disk:
            self._spool.close()

    def step(self) -> bool:
        """Delete, write and read what is due; return whether there may be more to do at once."""
        with self._outbox.disk:
            self._forget()
            more = self._write()
            more |= self._load()
            self._show()
        return more

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._wakeup.clear()
                if not self.step():
                    self._wakeup.wait(min(_LOOK_SECONDS, max(0.05, self._after)))
        except Exception as error:  # noqa: BLE001 - whatever it is, the capturing thread raises it.
            self._outbox.fail(error)

    def _forget(self) -> None:
        with self._room():
            before = len(self._spool)
            self._spool.forget(self._outbox.saved_position)
            if before and not len(self._spool):
                _log.info("the spool is empty: its last batch was accepted")
            if before != len(self._spool):
                self._full_until = 0.0

    def _write(self) -> bool:
        outbox, window = self._outbox, self._outbox.window
        now = time.monotonic()
        with outbox.lock:
            began = not window.spooling
            window.spooling = self._is_due(now, time.time())
            entries = window.unspooled(_WRITE_BYTES) if window.spooling else []
        if not entries:
            if not window.spooling and not len(self._spool):
                # What there was no space for has been accepted from memory.
                self._full_until = 0.0
            return False
        if began and not len(self._spool):
            _log.warning("nothing is accepted: batches go to the spool %s", self._spool.path)
        if now < self._full_until:
            return False
        written = self._append(entries)
        if not written:
            return False
        with outbox.lock:
            window.spool(written)
            window.unload(outbox.limit_bytes // 2)
        self._full_until = 0.0
        outbox.wake_capture()
        return True

    def _append(self, entries: list[Entry]) -> list[Entry]:
        """Return those of the batches that the spool has durably now; the more the better."""
        with self._room():
            while entries:
                try:
                    self._spool.append([(entry.batch, entry.confirm, entry.put_at) for entry in entries])
                except NoSpace:
                    if len(entries) == 1:
                        raise
                    entries = entries[: len(entries) // 2]
                else:
                    return entries
        return []

    def _load(self) -> bool:
        outbox, window = self._outbox, self._outbox.window
        with outbox.lock:
            joined = window.join()
            space = outbox.limit_bytes // 2 - window.loaded_bytes
            row, after = window.loaded_row + 1, window.acknowledged
            # Many at once, and not one for each that was accepted.
            wants_more = window.unloaded and space > outbox.limit_bytes // 4
        batches: list[Kept] = []
        if wants_more:
            with self._room():
                batches = self._spool.read(row, min(space, _WRITE_BYTES), after)
            with outbox.lock:
                for kept in batches:
                    window.load(*kept)
                joined |= window.join()
        if batches or joined:
            outbox.wake_sender()
        return bool(batches)

    def _is_due(self, now: float, clock: float) -> bool:
        """Whether what is captured goes to the spool; the outbox is locked."""
        window = self._outbox.window
        if not self._spool.limit_bytes or (oldest := window.oldest_at) is None:
            return False
        if clock - oldest >= self._after:
            return True
        waits = min(now - self._outbox.moved_at, clock - oldest)
        return waits >= min(_BLOCKED_SECONDS, self._after) and (window.spooling or self._outbox.full)

    def _rewind(self, place: int) -> tuple[int, Position | None]:
        self._spool.rewind(place)
        self._show()
        return self._spool.last_row, self._spool.end

    @contextlib.contextmanager
    def _room(self) -> Iterator[None]:
        """Let the thread go on when the disk or the spool is full."""
        try:
            yield
        except NoSpace as error:
            now = time.monotonic()
            if now - self._warned_at > _WARN_SECONDS:
                self._warned_at = now
                _log.warning(
                    "%s: capture waits, and from here on the source keeps its log. It goes on when there is space",
                    error.message,
                )
            self._figures.warned["spool"] = error.message
            self._full_until = now + _RETRY_SECONDS

    def _show(self) -> None:
        figures, spool = self._figures, self._spool
        figures.spool_bytes, figures.spool_limit_bytes = spool.bytes, spool.limit_bytes or None
        if not self._full_until:
            figures.warned.pop("spool", None)
