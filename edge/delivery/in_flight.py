"""Batches in flight: which are sent, which are accepted, where sending goes on (go-back-N), and which are in the spool. Sans-I/O.

Guarantees that batches are given out in order; that they are acknowledged from the oldest on, without a hole; that after any
outcome but `accepted`, and after a lost link, sending goes back to the oldest batch that is not accepted. A batch too large to be
safe from overtaking travels with nothing else unsettled. Used by edge/delivery/window.py.
"""

from collections import deque
from dataclasses import dataclass

from edge.records.batcher import SealedBatch
from headrace.position import Position

#: Routers let messages from about 190 kB on be overtaken by smaller ones, in bytes.
ALONE_BYTES = 190_000


@dataclass(slots=True, eq=False)
class Entry:
    """A batch that is not acknowledged."""

    batch: SealedBatch
    #: Place that may be confirmed once this batch and all before it are accepted, or durable in the spool; 0 for none.
    confirm: int
    #: When it was captured, in seconds since 1970.
    put_at: float
    #: Its row in the spool; 0 while it is in memory alone.
    row: int = 0
    accepted: bool = False
    #: Whether it is acknowledged, and so not held any more.
    gone: bool = False


class InFlight:
    """Entries in order, from the oldest not accepted to the newest not sent."""

    def __init__(self, tail: Position) -> None:
        self.entries: deque[Entry] = deque()
        #: How many entries, from the oldest, are sent.
        self.sent_count = 0
        #: The greatest position that was ever given out.
        self.sent = tail
        #: Whether sending waits for `go_on`.
        self.held = False
        # Deliveries without an outcome; None for those of before the last going back.
        self._unsettled: dict[int, Entry | None] = {}
        self._deliveries = 0

    @property
    def unsettled(self) -> tuple[int, int]:
        """How many deliveries of this link have no outcome yet, and their compressed size."""
        bodies = [entry.batch.body for entry in self._unsettled.values() if entry is not None]
        return len(bodies), sum(map(len, bodies))

    def take(self) -> tuple[int, SealedBatch] | None:
        """Return the next batch to send with the number of its delivery, or None when nothing may be sent now."""
        if self.held or self.sent_count == len(self.entries):
            return None
        entry = self.entries[self.sent_count]
        if self._unsettled and (_is_large(entry) or self._carries_large):
            return None
        self.sent_count += 1
        self.sent = max(self.sent, entry.batch.last)
        self._deliveries += 1
        self._unsettled[self._deliveries] = entry
        return self._deliveries, entry.batch

    def accepted(self, delivery: int) -> list[Entry]:
        """Note that the far side has a delivery durably; return the entries that are acknowledged by that, oldest first."""
        entry = self._unsettled.pop(delivery, None)
        if entry is None:
            return []
        entry.accepted = True
        acknowledged = []
        while self.entries and self.entries[0].accepted:
            oldest = self.entries.popleft()
            self.sent_count -= 1
            oldest.gone = True
            acknowledged.append(oldest)
        return acknowledged

    def returned(self, delivery: int) -> bool:
        """Go back, and hold sending until `go_on`: a delivery was released or is in doubt. Return whether it was current."""
        if self._unsettled.pop(delivery, None) is None:
            return False
        self.go_back()
        self.held = True
        return True

    def go_on(self) -> None:
        """Send again after `returned`, from the oldest batch that is not accepted."""
        self.held = False

    def lost(self) -> None:
        """Go back: the link is gone, and no outcome of its deliveries will come."""
        self.go_back()
        self._unsettled.clear()
        self.held = False

    def go_back(self) -> None:
        """Send again from the oldest entry on."""
        # An outcome that still comes for an earlier delivery is not one of the next delivery of the same batch.
        self._unsettled = dict.fromkeys(self._unsettled)
        for entry in self.entries:
            entry.accepted = False
        self.sent_count = 0

    @property
    def _carries_large(self) -> bool:
        # A large one is alone, so there is only one to look at.
        return len(self._unsettled) == 1 and _is_large(next(iter(self._unsettled.values())))


def _is_large(entry: Entry | None) -> bool:
    return entry is not None and len(entry.batch.body) > ALONE_BYTES


class SpoolCursor:
    """Which rows of the spool (edge/progress/spool.py) are loaded, and up to which position the spool is relied on.

    Rows are numbered in the order of the batches.
    """

    def __init__(self, tail: Position) -> None:
        self.newest_row = self.loaded_row = 0
        #: The last position for which the spool is relied on: its batches are not read again from the confirmed place.
        self.relied_on = tail
        # First commit and last position of the batches of the spool that would still be read again.
        self._read_again: deque[tuple[int, Position]] = deque()

    @property
    def unloaded(self) -> int:
        """How many batches are in the spool alone."""
        return self.newest_row - self.loaded_row

    def append(self, entry: Entry) -> None:
        """Note that an entry is durable in the spool's next row."""
        self.newest_row += 1
        entry.row = self.newest_row
        self._read_again.append((entry.batch.first.commit, entry.batch.last))

    def load(self, row: int) -> None:
        """Note that the next row is loaded."""
        if row != self.loaded_row + 1:
            raise ValueError(f"row {row} of the spool does not come after row {self.loaded_row}")
        self.loaded_row = row

    def rely(self, confirmable: int) -> None:
        """Rely on the batches that are not read again from a place that may be confirmed."""
        while self._read_again and self._read_again[0][0] < confirmable:
            self.relied_on = max(self.relied_on, self._read_again.popleft()[1])

    def rewind(self, newest_row: int) -> None:
        """Forget the rows behind this one, which the log is read again for."""
        self._read_again.clear()
        self.newest_row, self.loaded_row = newest_row, min(self.loaded_row, newest_row)
