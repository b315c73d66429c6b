"""The unacknowledged window: which batches are on the way, and what the far side has for sure.

Sans-I/O. Guarantees that batches are given out in order; that the acknowledged tail moves only over batches that were
accepted, without a hole; that after any outcome but `accepted`, and after a lost link, sending goes back to the oldest
batch that is not accepted (go-back-N). A batch too large to be safe from overtaking travels with nothing else unsettled.

With a spool the order of all batches is: those of the spool that are loaded, those of the spool that are not, those in memory
alone. What is in memory alone waits in `behind` while anything of the spool is not loaded, and while it is to be spooled.
Not for several threads: edge/delivery/outbox.py guards it.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

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


class Window:
    """Batches in order, from the oldest not accepted to the newest not sent."""

    def __init__(self, tail: Position, confirmed: int) -> None:
        self._entries: deque[Entry] = deque()
        self._behind: deque[Entry] = deque()
        #: How many entries, from the oldest, are sent.
        self._sent = 0
        #: Deliveries without an outcome; None for those of before the last going back.
        self._unsettled: dict[int, Entry | None] = {}
        self._deliveries = 0
        self._last = tail
        #: The last position of the accepted batches.
        self.acknowledged = tail
        #: When the newest of them was captured, in seconds since 1970; 0 before the first.
        self.acknowledged_put_at = 0.0
        #: The last position that the spool holds permanently; it matters while it is greater than `acknowledged`.
        self.spooled = tail
        # First commit and last position of the batches of the spool that would still be read again.
        self._spooled: deque[tuple[int, Position]] = deque()
        #: The greatest position that was ever given out.
        self.sent = tail
        #: Place below which everything is acknowledged or spooled.
        self.confirmable = confirmed
        #: Compressed size of the batches in memory, and of those among them that are in the spool too.
        self.bytes = self.loaded_bytes = 0
        #: Rows of the spool: the newest, and the newest that was loaded.
        self.newest_row = self.loaded_row = 0
        #: Whether what is added goes to the spool.
        self.spooling = False
        #: Whether sending waits for `go_on`.
        self.held = False

    def __len__(self) -> int:
        """Return how many batches are not acknowledged."""
        return len(self._entries) + self.unloaded + len(self._behind)

    @property
    def tail(self) -> Position:
        """The position that the next batch follows."""
        return self._last

    @property
    def unloaded(self) -> int:
        """How many batches are in the spool alone."""
        return self.newest_row - self.loaded_row

    @property
    def oldest_at(self) -> float | None:
        """When the oldest batch was captured, in seconds since 1970; None when there is none, 0 when the spool has it."""
        if self._entries:
            return self._entries[0].put_at
        if self.unloaded:
            return 0.0
        return self._behind[0].put_at if self._behind else None

    def add(self, batch: SealedBatch, put_at: float = 0.0) -> None:
        """Append a batch, which must follow the one before it; an empty one that would have to wait is left out."""
        if batch.follows != self._last:
            raise ValueError(f"a batch follows {batch.follows}, the one before it ends at {self._last}")
        self._last = batch.last
        apart = self.spooling or self.unloaded or self._behind
        if apart and not batch.count:
            return
        (self._behind if apart else self._entries).append(Entry(batch, batch.confirm, put_at))
        self.bytes += len(batch.body)

    def note(self, place: int) -> None:
        """Let `place` be confirmed once all that is held now is accepted or spooled: nothing below it is still to come."""
        held = self._behind or (() if self.unloaded else self._entries)
        # An empty batch holds nothing back.
        newest = next((entry for entry in reversed(held) if entry.batch.count), None)
        if newest is None or newest.row:
            self.confirmable = max(self.confirmable, place)
            self._rely()
        else:
            newest.confirm = max(newest.confirm, place)

    def take(self) -> tuple[int, SealedBatch] | None:
        """Return the next batch to send with the number of its delivery, or None when nothing may be sent now."""
        if self.held or self._sent == len(self._entries):
            return None
        entry = self._entries[self._sent]
        if self._unsettled and (_is_large(entry) or self._carries_large):
            return None
        self._sent += 1
        self.sent = max(self.sent, entry.batch.last)
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
            oldest.gone = True
            self._release(oldest)
            self.acknowledged = max(self.acknowledged, oldest.batch.last)
            self.acknowledged_put_at = oldest.put_at
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

    def restart(self, tail: Position, newest_row: int = 0) -> None:
        """Drop what the log is read again for, all but the spool up to a row; the next batch follows `tail`."""
        self._go_back()
        kept = deque[Entry]()
        for entry in chain(self._entries, self._behind):
            if 0 < entry.row <= newest_row:
                kept.append(entry)
            else:
                self._release(entry)
        self._entries, self._behind = kept, deque()
        self._spooled.clear()
        self.newest_row, self.loaded_row = newest_row, min(self.loaded_row, newest_row)
        self._last = tail

    # The spool's side.

    def unspooled(self, limit_bytes: int) -> list[Entry]:
        """Return the oldest batches with changes that are in memory alone, about as many bytes as the limit allows."""
        found, size = list[Entry](), 0
        for entry in self._in_memory_alone():
            if found and size + len(entry.batch.body) > limit_bytes:
                break
            found.append(entry)
            size += len(entry.batch.body)
        return found

    def spool(self, entries: list[Entry]) -> None:
        """Note that the oldest batches in memory alone are durable in the spool, in its next rows."""
        for entry in entries:
            self.newest_row += 1
            entry.row = self.newest_row
            self.confirmable = max(self.confirmable, entry.confirm)
            self._spooled.append((entry.batch.first.commit, entry.batch.last))
            if self._behind and self._behind[0] is entry:
                # It is loaded when its turn comes.
                self._behind.popleft()
                self.bytes -= len(entry.batch.body)
            else:
                self.loaded_row = entry.row
                if not entry.gone:
                    self.loaded_bytes += len(entry.batch.body)
        self._rely()

    def unload(self, limit_bytes: int) -> None:
        """Let go of the newest spooled batches that are not sent, until no more than the limit of them is in memory."""
        while self.loaded_bytes > limit_bytes and len(self._entries) > self._sent and (row := self._entries[-1].row):
            self._release(self._entries.pop())
            self.loaded_row = row - 1

    def load(self, row: int, batch: SealedBatch, put_at: float) -> None:
        """Append the batch of the next row that is not loaded."""
        if row != self.loaded_row + 1:
            raise ValueError(f"row {row} of the spool does not come after row {self.loaded_row}")
        self._entries.append(Entry(batch, batch.confirm, put_at, row))
        self.loaded_row = row
        self.bytes += len(batch.body)
        self.loaded_bytes += len(batch.body)

    def join(self) -> bool:
        """Let what waits behind the spool be sent, if all of the spool is loaded; return whether it does now."""
        if self.unloaded or not self._behind:
            return False
        self._entries.extend(self._behind)
        self._behind.clear()
        return True

    def _in_memory_alone(self) -> Iterator[Entry]:
        return chain((entry for entry in self._entries if not entry.row and entry.batch.count), self._behind)

    def _rely(self) -> None:
        """Note which of the spool's batches are not read again from the place that may be confirmed."""
        while self._spooled and self._spooled[0][0] < self.confirmable:
            self.spooled = max(self.spooled, self._spooled.popleft()[1])

    def _release(self, entry: Entry) -> None:
        self.bytes -= len(entry.batch.body)
        if entry.row:
            self.loaded_bytes -= len(entry.batch.body)

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


def _is_large(entry: Entry | None) -> bool:
    return entry is not None and len(entry.batch.body) > ALONE_BYTES
