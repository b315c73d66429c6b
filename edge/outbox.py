"""The window between the thread that captures and the thread that sends: guarded, and each side wakes the other.

The capturing side puts batches in and learns what is acknowledged; the sending side takes batches and reports outcomes. A
problem that ends the edge, found by any thread, is left here for the capturing side to raise.
"""

import threading
from collections.abc import Callable, Iterable

from edge.batcher import SealedBatch
from edge.window import Window
from headrace.position import Position


def _nobody() -> None:
    """Wake nobody: the other side is not there yet."""


class Outbox:
    """A window of at most about `limit_bytes` compressed bytes, shared by two threads."""

    def __init__(self, *, limit_bytes: int, tail: Position, confirmed: int) -> None:
        self._lock = threading.Lock()
        self._window = Window(tail, confirmed)
        self._limit = limit_bytes
        #: Called after batches were put in, by the capturing thread.
        self.wake_sender: Callable[[], None] = _nobody
        #: Called after the acknowledged tail moved or a problem was left, by any thread.
        self.wake_capture: Callable[[], None] = _nobody
        self.problem: Exception | None = None

    @property
    def full(self) -> bool:
        """Whether capture has to wait."""
        return self._window.bytes >= self._limit

    @property
    def empty(self) -> bool:
        """Whether everything that was put in is acknowledged."""
        return len(self._window) == 0

    @property
    def batches(self) -> int:
        """How many batches are not acknowledged."""
        return len(self._window)

    @property
    def bytes(self) -> int:
        """Compressed size of the batches that are not acknowledged."""
        return self._window.bytes

    def fail(self, problem: Exception) -> None:
        """Leave a problem that ends the edge; the first one counts."""
        self.problem = self.problem or problem
        self.wake_capture()

    def check(self) -> None:
        """Raise the problem that some thread left."""
        if self.problem is not None:
            raise self.problem

    def put(self, batches: Iterable[SealedBatch]) -> None:
        """Append batches and wake the sender."""
        with self._lock:
            for batch in batches:
                self._window.add(batch)
        self.wake_sender()

    def note(self, lsn: int) -> None:
        """Let `lsn` be confirmed once all that is held now is acknowledged."""
        with self._lock:
            self._window.note(lsn)

    def progress(self) -> tuple[Position, int]:
        """Return the acknowledged position and the LSN that may be confirmed."""
        with self._lock:
            return self._window.acknowledged, self._window.confirmable

    def restart(self, tail: Position) -> None:
        """Drop every batch, because the log is read again; the next one follows `tail`."""
        with self._lock:
            self._window.restart(tail)

    def take(self) -> tuple[int, SealedBatch] | None:
        """Return the next batch to send with the number of its delivery, or None."""
        with self._lock:
            return self._window.take()

    def accepted(self, delivery: int) -> bool:
        """Note an accepted delivery; wake capture and return True when the acknowledged tail moved."""
        with self._lock:
            moved = self._window.accepted(delivery)
        if moved:
            self.wake_capture()
        return moved

    def returned(self, delivery: int) -> bool:
        """Go back and hold until `go_on`; return whether the delivery was a current one."""
        with self._lock:
            return self._window.returned(delivery)

    def go_on(self) -> None:
        """Send again after `returned`."""
        with self._lock:
            self._window.go_on()

    def lost(self) -> None:
        """Go back: the link is gone."""
        with self._lock:
            self._window.lost()
