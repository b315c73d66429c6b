"""The unacknowledged window: what is in flight, what is in the spool, and what may be confirmed to the source.

Sans-I/O. An in-flight tracker and a spool cursor (edge/delivery/in_flight.py) together: the order of all batches is those
of the spool that are loaded, those of the spool that are not, those in memory alone. What is in memory alone waits in `behind`
while anything of the spool is not loaded, and while it is to be spooled. Not for several threads: edge/delivery/outbox.py guards
it.
"""

from collections import deque
from collections.abc import Iterator
from itertools import chain

from edge.delivery.in_flight import Entry, InFlight, SpoolCursor
from edge.records.batcher import SealedBatch
from headrace.position import Position


class Window:
    """Batches in order, from the oldest not accepted to the newest not sent."""

    def __init__(self, tail: Position, confirmed: int) -> None:
        self._flight = flight = InFlight(tail)
        self._cursor = SpoolCursor(tail)
        self._behind: deque[Entry] = deque()
        #: Return the next batch to send with the number of its delivery, or None when nothing may be sent now.
        self.take = flight.take
        #: As in edge/delivery/in_flight.py.
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
