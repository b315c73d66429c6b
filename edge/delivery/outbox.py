"""The window between the threads that capture, send and spool: guarded, and each side wakes the others.

The capturing side puts batches in and learns what is acknowledged; the sending side takes batches and reports outcomes; the
spooling side (edge/progress/spooler.py) keeps on disk what waits too long. A problem that ends the edge, found by any thread, is
left here for the capturing side to raise.

Empty batches made outside a session: while the database is unavailable, and when the edge ends.
"""

import threading
import time
from collections.abc import Callable, Iterable

from edge.delivery.window import Window
from edge.observability.figures import Figures
from edge.records.batcher import Batcher, SealedBatch
from headrace.configuration.edge import EdgeFile
from headrace.errors import Retryable
from headrace.position import Position

#: While batches are in flight, the next one is left open, to gather more, for this part of the time that the newest acknowledged
#: one took, within these bounds in seconds: a far side with much to do gets fewer and larger ones.
_LINGER_PART, _SHORTEST_LINGER, _LONGEST_LINGER = 0.25, 0.004, 0.05


def _nobody() -> None:
    """Wake nobody: the other side is not there yet."""


class Outbox:
    """A window of at most about `limit_bytes` compressed bytes in memory, shared by the threads of an edge."""

    def __init__(self, *, limit_bytes: int, tail: Position, confirmed: int) -> None:
        #: Guards the window; the spooling side, which looks at it closely, takes it itself.
        self.lock = threading.Lock()
        #: Held during every step of the spooling side, and while the capturing side goes back; taken before the other one.
        self.disk = threading.Lock()
        self.window = Window(tail, confirmed)
        self.limit_bytes = limit_bytes
        #: Called after batches were put in, by the capturing thread.
        self.wake_sender: Callable[[], None] = _nobody
        #: Called after the acknowledged tail moved or a problem was left, by any thread.
        self.wake_capture: Callable[[], None] = _nobody
        #: Called after something happened that is the spool's business, by any thread.
        self.wake_spooler: Callable[[], None] = _nobody
        #: Makes the spool drop what is read again from a place; returns its newest row and the last position of that.
        self.rewind_spool: Callable[[int], tuple[int, Position | None]] = lambda _place: (0, None)
        self.problem: Exception | None = None
        #: Why the session has to be opened again, where something has changed that is looked at only then.
        self._reopening: Retryable | None = None
        #: When the acknowledged tail moved last, by the monotonic clock.
        self.moved_at = time.monotonic()
        # How long the newest acknowledged batch took, in seconds.
        self._took = 0.0
        #: The acknowledged position that the checkpoint has durably.
        self.saved_position = tail

    @property
    def full(self) -> bool:
        """Whether capture has to wait."""
        window, limit = self.window, self.limit_bytes
        # What comes back from the spool leaves space for what goes there.
        return window.bytes - window.loaded_bytes >= max(limit - window.loaded_bytes, limit // 4)

    @property
    def empty(self) -> bool:
        """Whether everything that was put in is acknowledged."""
        return len(self.window) == 0

    @property
    def linger(self) -> float:
        """For how many seconds the next batch may be left open to gather more: 0 while nothing is in flight."""
        return 0.0 if self.empty else min(_LONGEST_LINGER, max(_SHORTEST_LINGER, self._took * _LINGER_PART))

    @property
    def batches(self) -> int:
        """How many batches are not acknowledged."""
        return len(self.window)

    @property
    def unsettled(self) -> tuple[int, int]:
        """How many deliveries have no outcome yet, and their compressed size."""
        with self.lock:
            return self.window.unsettled

    @property
    def bytes(self) -> int:
        """Compressed size of the unacknowledged batches in memory."""
        return self.window.bytes

    def fail(self, problem: Exception) -> None:
        """Leave a problem that ends the edge; the first one counts."""
        self.problem = self.problem or problem
        self.wake_capture()

    def reopen(self, reason: Retryable) -> None:
        """Have the session opened again."""
        self._reopening = reason
        self.wake_capture()

    def check_reopening(self) -> None:
        """Raise the reason for which the session has to be opened again, once."""
        reason, self._reopening = self._reopening, None
        if reason is not None:
            raise reason

    def check(self) -> None:
        """Raise the problem that some thread left."""
        if self.problem is not None:
            raise self.problem

    def put(self, batches: Iterable[SealedBatch]) -> None:
        """Append batches and wake the sender."""
        now = time.time()
        with self.lock:
            for batch in batches:
                self.window.add(batch, now)
            spooling = self.window.spooling
        (self.wake_spooler if spooling else self.wake_sender)()

    def note(self, place: int) -> None:
        """Let `place` be confirmed once all that is held now is acknowledged or spooled."""
        with self.lock:
            self.window.note(place)

    def progress(self) -> tuple[Position, int]:
        """Return the acknowledged position and the place that may be confirmed."""
        with self.lock:
            return self.window.acknowledged, self.window.confirmable

    def accepted_place(self) -> int:
        """Return the place below which the far side has everything; for figures."""
        with self.lock:
            window = self.window
            return window.acknowledged.commit if window.spooled > window.acknowledged else window.confirmable

    @property
    def tail(self) -> Position:
        """The position that the next batch follows."""
        return self.window.tail

    def reached(self) -> tuple[Position, int, Position]:
        """Return the acknowledged position, the place that may be confirmed, and up to where that relies on the spool."""
        with self.lock:
            window = self.window
            return window.acknowledged, window.confirmable, max(window.acknowledged, window.spooled)

    @property
    def sent(self) -> Position:
        """The greatest position that was ever given out to be sent."""
        return self.window.sent

    def saved(self, acknowledged: Position) -> None:
        """Learn that the checkpoint has this position: the spool is needed only for what comes after it."""
        self.saved_position = acknowledged
        if self.window.newest_row:
            self.wake_spooler()

    def rewind(self) -> None:
        """Drop what is not acknowledged and not spooled permanently, because the log is read again from the confirmed place."""
        with self.disk:
            row, _ = self.rewind_spool(self.progress()[1])
            with self.lock:
                self.window.spooling = False
                self.window.restart(self.window.acknowledged, row)

    def restart(self, tail: Position) -> None:
        """Drop what was put in since `rewind`; the next batch follows `tail`."""
        with self.lock:
            self.window.restart(tail, self.window.newest_row)

    def confirm_from(self, place: int) -> None:
        """Let no place be confirmed beyond this one but by what comes now: the log of another server goes on there.

        Only what the spool keeps that is not read again from there counts as spooled.
        """
        with self.disk:
            row, end = self.rewind_spool(place)
            with self.lock:
                window = self.window
                window.confirmable = place
                window.restart(window.acknowledged, row)
                window.rely_on(end)

    def take(self) -> tuple[int, SealedBatch] | None:
        """Return the next batch to send with the number of its delivery, or None."""
        with self.lock:
            return self.window.take()

    def accepted(self, delivery: int) -> bool:
        """Note an accepted delivery; wake capture and return True when the acknowledged tail moved."""
        with self.lock:
            moved = self.window.accepted(delivery)
            spooled = self.window.spooling or self.window.unloaded
            if moved:
                self._took = time.time() - self.window.acknowledged_put_at
        if moved:
            self.moved_at = time.monotonic()
            self.wake_capture()
            if spooled:
                self.wake_spooler()
        return moved

    def returned(self, delivery: int) -> bool:
        """Go back and hold until `go_on`; return whether the delivery was a current one."""
        with self.lock:
            return self.window.returned(delivery)

    def go_on(self) -> None:
        """Send again after `returned`."""
        with self.lock:
            self.window.go_on()

    def lost(self) -> None:
        """Go back: the link is gone."""
        with self.lock:
            self.window.lost()


#: How long the last batch, and what is ahead of it, may take to be accepted, in seconds.
_FINAL_SECONDS = 2.0
#: How long an edge that ends with an error waits for its first connection to the interconnect, in seconds.
_CONNECT_SECONDS = 5.0
_LOOK_SECONDS = 0.05


class Heartbeat:
    """Puts empty batches into the outbox, with the edge's figures."""

    def __init__(self, config: EdgeFile, outbox: Outbox, figures: Figures) -> None:
        self._source = config.source.name
        self._every = config.heartbeat_seconds
        self._outbox = outbox
        self._figures = figures
        self._sent_at = time.monotonic()

    def tick(self) -> None:
        """Send the figures, when it is time and nothing else is in flight."""
        figures, now = self._figures, time.monotonic()
        figures.turned_at = now
        figures.unacknowledged_batches, figures.unacknowledged_bytes = self._outbox.batches, self._outbox.bytes
        figures.unsettled = self._outbox.unsettled
        if now - self._sent_at >= self._every and self._outbox.empty:
            self._send()

    def final(self, state: str, reason: str, is_stopping: Callable[[], bool] = lambda: True) -> None:
        """Report that the edge ends and why; wait a moment until that has arrived, and before that for what is in flight.

        An edge that ends as soon as it starts, as with a slot that is gone, waits until it is connected, unless `is_stopping`.
        """
        self._figures.ended_state, self._figures.ended = state, reason
        if reason:
            self._wait_for_connection(is_stopping)
            self._wait()
        if not self._figures.interconnect_connected or not self._outbox.empty:
            return
        self._send()
        self._wait()

    def _wait_for_connection(self, is_stopping: Callable[[], bool]) -> None:
        figures, until = self._figures, time.monotonic() + _CONNECT_SECONDS
        while (
            not (figures.interconnect_connections or self._outbox.problem or is_stopping()) and time.monotonic() < until
        ):
            time.sleep(_LOOK_SECONDS)

    def _wait(self) -> None:
        """Wait a moment until everything is accepted; no longer when the interconnect is unavailable."""
        until = time.monotonic() + _FINAL_SECONDS
        while self._outbox.batches and self._figures.interconnect_connected and time.monotonic() < until:
            time.sleep(_LOOK_SECONDS)

    def _send(self) -> None:
        self._sent_at = time.monotonic()
        batcher = Batcher(source=self._source, tail=self._outbox.tail, figures=self._figures.for_batch)
        self._outbox.put([batcher.empty()])
