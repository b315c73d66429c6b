"""Moves the checkpoint after what is acknowledged, often enough and not more.

Guarantees that `confirmed` is durable in the checkpoint: it is what the source may be told. Used by the capturing thread alone.
"""

import time
from collections.abc import Callable
from typing import Any

from edge.checkpoint import Checkpoint, State
from edge.outbox import Outbox
from headrace.position import Position

#: Between two writes, in seconds: after changes were acknowledged, and when only idle log has passed.
_CHANGES_SECONDS, _IDLE_SECONDS = 0.2, 1.0
#: A slow disk gets at most one part in so many of the time.
_SHARE = 20


class Progress:
    """The checkpoint in use, written when there is enough to write."""

    def __init__(
        self,
        state: State[Any],
        checkpoint: Checkpoint,
        outbox: Outbox,
        advanced: Callable[[Any, Position, int], Checkpoint],
    ) -> None:
        self._state = state
        self._outbox = outbox
        self._advanced = advanced
        self.checkpoint = checkpoint
        #: What the source may be told.
        self.confirmed = checkpoint.confirmed
        self._position = checkpoint.position
        self._written_at = -_IDLE_SECONDS
        self._took = 0.0

    def save(self, now: float) -> float | None:
        """Write the checkpoint if what is acknowledged moved and the last write is long enough ago (`now` is monotonic).

        Returns the seconds until a write that has to wait, None when nothing waits.
        """
        position, lsn = self._outbox.progress()
        if position == self._position and lsn <= self.confirmed:
            return None
        pause = _IDLE_SECONDS if position == self._position else _CHANGES_SECONDS
        wait = self._written_at + max(pause, self._took * _SHARE) - now
        if wait > 0:
            return wait
        self._write(position, lsn)
        return None

    def save_now(self) -> None:
        """Write the checkpoint if what is acknowledged moved."""
        position, lsn = self._outbox.progress()
        if position != self._position or lsn > self.confirmed:
            self._write(position, lsn)

    def restart(self) -> Position:
        """Write what is acknowledged, and return the position that the next batch follows when the log is read again."""
        self.save_now()
        return self.checkpoint.tail

    def _write(self, position: Position, lsn: int) -> None:
        began = time.monotonic()
        advanced = self._advanced(self.checkpoint, position, lsn)
        self._state.write(advanced)
        self._written_at = time.monotonic()
        self._took = self._written_at - began
        self.checkpoint, self.confirmed, self._position = advanced, advanced.confirmed, position
