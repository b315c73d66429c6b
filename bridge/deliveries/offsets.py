"""Which offset of a partition may be committed: the one below which every record is settled. Pure.

A record is settled when its receiver accepted it or its dead letter is in Kafka. Memory is bounded by the caller, which stops to
read when `span` is too large.
"""

from collections import deque


class PartitionOffsets:
    """The offsets of one partition from the oldest one that is not settled on."""

    def __init__(self) -> None:
        #: The offset after the last one that was read; None before the first.
        self._next: int | None = None
        self._offsets: deque[int] = deque()
        self._settled: set[int] = set()

    def add(self, offset: int) -> bool:
        """Note that a record was read; False when it was noted before. Offsets ascend, with gaps where there is no record."""
        if self._next is not None and offset < self._next:
            return False
        self._offsets.append(offset)
        self._next = offset + 1
        return True

    def reach(self, end: int) -> None:
        """Note that there are no more records below `end`: what is at the end of a log is no record always."""
        self._next = end if self._next is None else max(self._next, end)

    def settle(self, offset: int) -> None:
        """Note that a record is settled."""
        self._settled.add(offset)
        while self._offsets and self._offsets[0] in self._settled:
            self._settled.discard(self._offsets.popleft())

    @property
    def committable(self) -> int | None:
        """The offset that may be committed; None while nothing is known."""
        return self._offsets[0] if self._offsets else self._next

    @property
    def span(self) -> int:
        """How many records were read from the oldest that is not settled on: so many are read again after a restart."""
        return len(self._offsets)

    @property
    def oldest(self) -> int | None:
        """The oldest offset that is not settled; None while all are."""
        return self._offsets[0] if self._offsets else None
