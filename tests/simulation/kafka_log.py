"""Kafka's partition logs as transactions see them: records, markers, the last stable offset, the `read_committed` view."""

from collections.abc import Iterator
from typing import Any, NamedTuple


class Entry(NamedTuple):
    """A record, or the marker that ends a transaction in this partition (`commit` is not None)."""

    producer: int
    epoch: int
    key: bytes | None
    value: bytes | None
    commit: bool | None = None
    headers: tuple[tuple[str, bytes], ...] = ()
    #: When it was written, in milliseconds since 1970.
    at: int = 0


class PartitionLog:
    """One partition."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        #: What is before this offset was deleted.
        self.begin = 0
        #: First offset of each open transaction, by producer.
        self.open: dict[int, int] = {}
        #: (producer, first, last offset) of aborted ones.
        self._aborted: list[tuple[int, int, int]] = []
        #: The greatest epoch that wrote here, by producer: an older one is refused.
        self._epochs: dict[int, int] = {}

    def write(self, key: bytes | None, value: bytes | None, headers: Any = (), at: int = 0) -> int:
        """Write a record of no transaction; return its offset."""
        self.entries.append(Entry(-1, -1, key, value, None, tuple(headers or ()), at))
        return len(self.entries) - 1

    def append(self, producer: int, epoch: int, records: list[tuple[Any, ...]]) -> bool:
        """Write records of an open transaction; return False when a later epoch of the producer has written."""
        if epoch < self._epochs.get(producer, -1):
            return False
        self._epochs[producer] = epoch
        self.open.setdefault(producer, len(self.entries))
        self.entries += [
            Entry(producer, epoch, key, value, None, tuple(headers or ())) for key, value, headers in records
        ]
        return True

    def mark(self, producer: int, epoch: int, *, commit: bool) -> None:
        """End the producer's transaction here."""
        self._epochs[producer] = max(epoch, self._epochs.get(producer, -1))
        first = self.open.pop(producer, None)
        if first is not None and not commit:
            self._aborted.append((producer, first, len(self.entries)))
        self.entries.append(Entry(producer, epoch, None, None, commit))

    @property
    def end(self) -> int:
        """The offset that the next record gets."""
        return len(self.entries)

    @property
    def stable_end(self) -> int:
        """The last stable offset: `read_committed` reads up to there."""
        return min(self.open.values(), default=len(self.entries))

    def committed(self, begin: int = 0) -> Iterator[tuple[int, Entry]]:
        """Yield what `read_committed` reads from an offset on."""
        for offset in range(max(begin, self.begin), self.stable_end):
            entry = self.entries[offset]
            if entry.commit is None and not self._is_aborted(entry.producer, offset):
                yield offset, entry

    def _is_aborted(self, producer: int, offset: int) -> bool:
        return any(each == producer and first <= offset < last for each, first, last in self._aborted)
