"""The unacknowledged window: which batches are on the way, and what the far side has for sure.

Sans-I/O. Guarantees that batches are given out in order; that the acknowledged tail moves only over batches that were
accepted, without a hole; that after any outcome but `accepted`, and after a lost link, sending goes back to the oldest
batch that is not accepted (go-back-N). A batch too large to be safe from overtaking travels with nothing else unsettled.
Not for several threads: edge/outbox.py guards it.
"""

from collections import deque
from dataclasses import dataclass

from edge.batcher import SealedBatch
from headrace.position import Position

#: Routers let messages from about 190 kB on be overtaken by smaller ones, in bytes.
ALONE_BYTES = 190_000


@dataclass(slots=True)
class _Entry:
    batch: SealedBatch
    #: LSN that may be confirmed once this batch and all before it are accepted; 0 for none.
    confirm: int
    accepted: bool = False


class Window:
    """Batches in order, from the oldest not accepted to the newest not sent."""

    def __init__(self, tail: Position, confirmed: int) -> None:
        self._entries: deque[_Entry] = deque()
        #: How many entries, from the oldest, are sent.
        self._sent = 0
        #: Deliveries without an outcome; None for those of before the last going back.
        self._unsettled: dict[int, _Entry | None] = {}
        self._deliveries = 0
        self._last = tail
        #: The last position of the accepted batches.
        self.acknowledged = tail
        #: LSN below which everything is acknowledged.
        self.confirmable = confirmed
        #: Compressed size of all batches held.
        self.bytes = 0
        #: Whether sending waits for `go_on`.
        self.held = False

    def __len__(self) -> int:
        """Return how many batches are held."""
        return len(self._entries)

    def add(self, batch: SealedBatch) -> None:
        """Append a batch, which must follow the one before it."""
        if batch.follows != self._last:
            raise ValueError(f"a batch follows {batch.follows}, the one before it ends at {self._last}")
        self._last = batch.last
        self._entries.append(_Entry(batch, batch.confirm))
        self.bytes += len(batch.body)

    def note(self, lsn: int) -> None:
        """Let `lsn` be confirmed once all that is held now is accepted: nothing below it is still to come."""
        if not self._entries:
            self.confirmable = max(self.confirmable, lsn)
        else:
            newest = self._entries[-1]
            newest.confirm = max(newest.confirm, lsn)

    def take(self) -> tuple[int, SealedBatch] | None:
        """Return the next batch to send with the number of its delivery, or None when nothing may be sent now."""
        if self.held or self._sent == len(self._entries):
            return None
        entry = self._entries[self._sent]
        if self._unsettled and (_is_large(entry) or self._carries_large):
            return None
        self._sent += 1
        self._deliveries += 1
        self._unsettled[self._deliveries] = entry
        return self._deliveries, entry.batch

    def accepted(self, delivery: int) -> bool:
        """Note that the far side has a delivery durably; return whether the acknowledged tail moved."""
        entry = self._unsettled.pop(delivery, None)
        if entry is None:
            return False
        entry.accepted = True
        moved = False
        while self._entries and self._entries[0].accepted:
            oldest = self._entries.popleft()
            self._sent -= 1
            self.bytes -= len(oldest.batch.body)
            self.acknowledged = max(self.acknowledged, oldest.batch.last)
            self.confirmable = max(self.confirmable, oldest.confirm)
            moved = True
        return moved

    def returned(self, delivery: int) -> bool:
        """Go back, and hold sending until `go_on`: a delivery was released or is in doubt. Return whether it was current."""
        if self._unsettled.pop(delivery, None) is None:
            return False
        self._go_back()
        self.held = True
        return True

    def go_on(self) -> None:
        """Send again after `returned`, from the oldest batch that is not accepted."""
        self.held = False

    def lost(self) -> None:
        """Go back: the link is gone, and no outcome of its deliveries will come."""
        self._go_back()
        self._unsettled.clear()
        self.held = False

    def restart(self, tail: Position) -> None:
        """Drop every batch: the log is read again from what is confirmed, and the next batch follows `tail`."""
        self._go_back()
        self._entries.clear()
        self.bytes = 0
        self._last = tail

    @property
    def _carries_large(self) -> bool:
        # A large one is alone, so there is only one to look at.
        return len(self._unsettled) == 1 and _is_large(next(iter(self._unsettled.values())))

    def _go_back(self) -> None:
        # An outcome that still comes for an earlier delivery says nothing of the next one of the same batch.
        self._unsettled = dict.fromkeys(self._unsettled)
        for entry in self._entries:
            entry.accepted = False
        self._sent = 0


def _is_large(entry: _Entry | None) -> bool:
    return entry is not None and len(entry.batch.body) > ALONE_BYTES
