"""Which transactions have been read beyond the checkpoint, as the GTID set that belongs to each place in the log.

Guarantees that the set returned for a place holds every transaction that ends at or before it, however often it is requested and
whether or not the checkpoint that was made with it became durable: a write may fail and be repeated later, and for as long as the
disk is full there may be any number of them. So the set grows here, not from what the last write consumed; memory does not grow
with the number of transactions. Used by the capturing thread alone.
"""

from collections import deque
from typing import NamedTuple

from edge.mysql.checkpoint import MysqlCheckpoint
from edge.mysql.events import Group
from edge.mysql.gtid import Gtids
from headrace.position import Position


class Mark(NamedTuple):
    """What a GTID set gains when everything below a place is read."""

    place: int
    group: Group


class GtidProgress:
    """The transactions that one session has read and the checkpoint does not include yet."""

    def __init__(self) -> None:
        #: Transactions that were read whole, oldest first: the decoder appends to it.
        self.marks: deque[Mark] = deque()
        # The greatest place that was requested, and the set that belongs to it; None before the first request.
        self._reached: tuple[int, Gtids] | None = None

    def restart(self) -> None:
        """Forget what was read: the log is read again from the checkpoint."""
        self.marks.clear()
        self._reached = None

    def advanced(self, checkpoint: MysqlCheckpoint, position: Position, place: int) -> MysqlCheckpoint:
        """Return the durable checkpoint moved to an acknowledged position and place."""
        marks = self.marks
        reached, gtids = self._reached or (checkpoint.confirmed, checkpoint.gtid_set)
        while marks and marks[0].place <= place:
            gtids = gtids.with_group(marks.popleft().group)
        # The set is that of the greatest place, so the place may not be a smaller one.
        reached = max(reached, place)
        self._reached = reached, gtids
        return checkpoint.advanced(position, reached, gtids)
