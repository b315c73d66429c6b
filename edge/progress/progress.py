"""Moves the checkpoint after what is acknowledged or spooled, often enough and not more.

Guarantees that `confirmed`, which may be confirmed to the source, is durable in the checkpoint, and so is what it relies on.
Used by the capturing thread alone.
"""

import logging
import time
from collections.abc import Callable
from typing import Any

import msgspec

from edge.delivery.outbox import Outbox
from edge.progress.checkpoint import Checkpoint, State
from headrace.errors import NeedsOperator, NoSpace
from headrace.position import Position

_log = logging.getLogger(__name__)

#: Between two writes, in seconds: after changes were acknowledged, and when only idle log has passed.
_CHANGES_SECONDS, _IDLE_SECONDS = 0.2, 1.0
#: A slow disk gets at most one part in so many of the time; but after a single write that took long, as one next to a burst of
#: others does, the next is put off no longer than this, in seconds.
_SHARE, _LONGEST_SECONDS = 20, 5.0


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
        #: What may be confirmed to the source.
        self.confirmed = checkpoint.confirmed
        # Acknowledged and spooled, as they are in the checkpoint.
        self._positions = (checkpoint.position, checkpoint.promised or checkpoint.position)
        self._written_at = -_IDLE_SECONDS
        self._took = 0.0
        self._no_room = False

    def save(self, now: float) -> float | None:
        """Write the checkpoint if what is acknowledged or spooled moved and the last write is long enough ago.

        `now` is monotonic. Returns the seconds until a write that has to wait, None when nothing waits.
        """
        position, place, spooled = self._outbox.reached()
        if (position, spooled) == self._positions and place <= self.confirmed:
            return None
        pause = _IDLE_SECONDS if (position, spooled) == self._positions or self._no_room else _CHANGES_SECONDS
        wait = self._written_at + max(pause, min(_LONGEST_SECONDS, self._took * _SHARE)) - now
        if wait > 0:
            return wait
        try:
            self._write(position, place, spooled)
        except NoSpace as error:
            self._wait_for_room(error)
        return None

    def save_now(self) -> None:
        """Write the checkpoint if what is acknowledged or spooled moved; where the disk is full, leave it as it was."""
        try:
            self._save()
        except NoSpace as error:
            self._wait_for_room(error)

    def restart(self) -> Position:
        """Go back to what is acknowledged or spooled, write that, and return the position that the next batch follows.

        The log is then to be read again from the checkpoint's confirmed place. Raises NoSpace when the disk is full.
        """
        self._outbox.rewind()
        self._save()
        tail = self.checkpoint.tail
        self._outbox.restart(tail)
        return tail

    def replace(self, checkpoint: Checkpoint, *, until: int | None) -> None:
        """Write another checkpoint in place of this one, whose confirmed place may be a lower one.

        `until` is the place at which the former log was left, if it was. Raises NeedsOperator when batches from beyond it were
        sent: what became of them is not known here.
        """
        self._outbox.rewind()
        sent = self._outbox.sent
        if until is not None and sent.commit >= until:
            raise NeedsOperator(
                f"the former log was left at {until:016x}, and batches up to {sent} were sent: the far side may have changes "
                "that the server does not have any more",
                hint="Take the source's position from 'headrace bridge positions'. If the middle part of it is smaller than "
                f"{until:016x}, move the checkpoint to another folder and run 'headrace edge init --adopt --position POSITION'. "
                "Otherwise start a new epoch and copy again the tables that 'headrace verify' names.",
            )
        self._state.write(checkpoint)
        self.checkpoint, self.confirmed = checkpoint, checkpoint.confirmed
        self._outbox.confirm_from(checkpoint.confirmed)

    def _save(self) -> None:
        position, place, spooled = self._outbox.reached()
        if (position, spooled) != self._positions or place > self.confirmed:
            self._write(position, place, spooled)

    def _write(self, position: Position, place: int, spooled: Position) -> None:
        began = time.monotonic()
        advanced = msgspec.structs.replace(
            self._advanced(self.checkpoint, position, place), spooled=str(spooled) if spooled > position else ""
        )
        self._state.write(advanced)
        self._written_at = time.monotonic()
        self._took = self._written_at - began
        self.checkpoint, self.confirmed, self._positions = advanced, advanced.confirmed, (position, spooled)
        self._no_room = False
        self._outbox.saved(position)

    def _wait_for_room(self, error: NoSpace) -> None:
        """Confirm nothing to the source until there is space; what is read meanwhile is read again after a crash."""
        self._written_at = time.monotonic()
        if not self._no_room:
            self._no_room = True
            _log.warning("%s: the source keeps its log until there is space", error.message)
