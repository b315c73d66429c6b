"""The unacknowledged window: what is in flight, what is in the spool, and what may be confirmed to the source. Sans-I/O.

`InFlight` has the batches in memory: which are sent, which are accepted, and where sending goes on (go-back-N). Batches are given
out in order, and acknowledged from the oldest on without a hole; after any outcome but `accepted`, and after a lost link, sending
goes back to the oldest batch that is not accepted. A batch too large to be safe from overtaking travels with nothing else
unsettled.

The order of all batches is: those of the spool that are loaded, those of the spool that are not, those in memory alone. What is
in memory alone waits in `behind` while anything of the spool is not loaded, and while it is to be spooled. Not for several
threads: edge/delivery/outbox.py guards it.
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


class Window:
    """Batches in order, from the oldest not accepted to the newest not sent."""

    def __init__(self, tail: Position, confirmed: int) -> None:
        self._flight = flight = InFlight(tail)
        self._cursor = SpoolCursor(tail)
        self._behind: deque[Entry] = deque()
        #: Return the next batch to send with the number of its delivery, or None when nothing may be sent now.
        self.take = flight.take
        #: As in edge/delivery/window.py.
        self.returned, self.go_on, self.lost = flight.returned, flight.go_on, flight.lost
        self._last = tail
        #: The last position of the accepted batches.
        self.acknowledged = tail
        #: When the newest of them was captured, in seconds since 1970; 0 before the first.
        self.acknowledged_put_at = 0.0
        #: Place below which everything is acknowledged or spooled.
        self.confirmable = confirmed
        #: Compressed size of the batches in memory, and of those among them that are in the spool too.
        self.bytes = self.loaded_bytes = 0
        #: Whether what is added goes to the spool.
        self.spooling = False

    def __len__(self) -> int:
        """Return how many batches are not acknowledged."""
        return len(self._flight.entries) + self.unloaded + len(self._behind)

    @property
    def tail(self) -> Position:
        """The position that the next batch follows."""
        return self._last

    @property
    def unsettled(self) -> tuple[int, int]:
        """How many deliveries of this link have no outcome yet, and their compressed size."""
        return self._flight.unsettled

    @property
    def sent(self) -> Position:
        """The greatest position that was ever given out."""
        return self._flight.sent

    @property
    def spooled(self) -> Position:
        """The last position for which the spool is relied on; it matters while it is greater than `acknowledged`."""
        return self._cursor.relied_on

    @property
    def newest_row(self) -> int:
        """The newest row of the spool."""
        return self._cursor.newest_row

    @property
    def loaded_row(self) -> int:
        """The newest row of the spool that was loaded."""
        return self._cursor.loaded_row

    @property
    def unloaded(self) -> int:
        """How many batches are in the spool alone."""
        return self._cursor.unloaded

    @property
    def oldest_at(self) -> float | None:
        """When the oldest batch was captured, in seconds since 1970; None when there is none, 0 when the spool has it."""
        if self._flight.entries:
            return self._flight.entries[0].put_at
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
        (self._behind if apart else self._flight.entries).append(Entry(batch, batch.confirm, put_at))
        self.bytes += len(batch.body)

    def note(self, place: int) -> None:
        """Let `place` be confirmed once all that is held now is accepted or spooled: nothing below it is still to come."""
        entries = self._behind or (() if self.unloaded else self._flight.entries)
        # An empty batch holds nothing back.
        newest = next((entry for entry in reversed(entries) if entry.batch.count), None)
        if newest is None or newest.row:
            self.confirmable = max(self.confirmable, place)
            self._cursor.rely(self.confirmable)
        else:
            newest.confirm = max(newest.confirm, place)

    def accepted(self, delivery: int) -> bool:
        """Note that the far side has a delivery durably; return whether the acknowledged tail moved."""
        acknowledged = self._flight.accepted(delivery)
        for entry in acknowledged:
            self._release(entry)
            self.acknowledged = max(self.acknowledged, entry.batch.last)
            self.acknowledged_put_at = entry.put_at
            self.confirmable = max(self.confirmable, entry.confirm)
        return bool(acknowledged)

    def restart(self, tail: Position, newest_row: int = 0) -> None:
        """Drop what the log is read again for, all but the spool up to a row; the next batch follows `tail`."""
        self._flight.go_back()
        kept = deque[Entry]()
        for entry in chain(self._flight.entries, self._behind):
            if 0 < entry.row <= newest_row:
                kept.append(entry)
            else:
                self._release(entry)
        self._flight.entries, self._behind = kept, deque()
        self._cursor.rewind(newest_row)
        self._last = tail

    # The spool's side.

    def open_spool(self, first_row: int, last_row: int, end: Position | None) -> None:
        """Begin with what a former process left in the spool, of which nothing is loaded."""
        self._cursor.newest_row, self._cursor.loaded_row = last_row, first_row - 1
        self._cursor.relied_on = max(self.spooled, end or self.spooled)

    def rely_on(self, end: Position | None) -> None:
        """Rely on the spool for nothing but what it has up to `end`, as the log is read again from another place."""
        self._cursor.relied_on = max(self.acknowledged, end or self.acknowledged)

    def unspooled(self, limit_bytes: int) -> list[Entry]:
        """Return the oldest batches with changes that are in memory alone, about as many bytes as the limit allows."""
        entries, size = list[Entry](), 0
        for entry in self._in_memory_alone():
            if entries and size + len(entry.batch.body) > limit_bytes:
                break
            entries.append(entry)
            size += len(entry.batch.body)
        return entries

    def spool(self, entries: list[Entry]) -> None:
        """Note that the oldest batches in memory alone are durable in the spool, in its next rows."""
        for entry in entries:
            self._cursor.append(entry)
            self.confirmable = max(self.confirmable, entry.confirm)
            if self._behind and self._behind[0] is entry:
                # It is loaded when its turn comes.
                self._behind.popleft()
                self.bytes -= len(entry.batch.body)
            else:
                self._cursor.loaded_row = entry.row
                if not entry.gone:
                    self.loaded_bytes += len(entry.batch.body)
        self._cursor.rely(self.confirmable)

    def unload(self, limit_bytes: int) -> None:
        """Release the newest spooled batches that are not sent, until no more than the limit of them is in memory."""
        flight = self._flight
        while self.loaded_bytes > limit_bytes and len(flight.entries) > flight.sent_count:
            row = flight.entries[-1].row
            if not row:
                break
            self._release(flight.entries.pop())
            self._cursor.loaded_row = row - 1

    def load(self, row: int, batch: SealedBatch, put_at: float) -> None:
        """Append the batch of the next row that is not loaded."""
        self._cursor.load(row)
        self._flight.entries.append(Entry(batch, batch.confirm, put_at, row))
        self.bytes += len(batch.body)
        self.loaded_bytes += len(batch.body)

    def join(self) -> bool:
        """Let what waits behind the spool be sent, if all of the spool is loaded; return whether it does now."""
        if self.unloaded or not self._behind:
            return False
        self._flight.entries.extend(self._behind)
        self._behind.clear()
        return True

    def _in_memory_alone(self) -> Iterator[Entry]:
        return chain((entry for entry in self._flight.entries if not entry.row and entry.batch.count), self._behind)

    def _release(self, entry: Entry) -> None:
        self.bytes -= len(entry.batch.body)
        if entry.row:
            self.loaded_bytes -= len(entry.batch.body)
