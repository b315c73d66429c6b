"""Cuts a source's records into batches, chained by position (design decisions 2 and 3).

The decoder appends records straight to `keys` and `values`; everything else happens once a transaction or once a batch. A batch
is cut before a change is added, never after it, so the newest change is always in the open batch when its commit comes.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headrace.batch import Batch, Figures, Segment, encode
from headrace.position import Position

_SMALLEST, _LARGEST = 16 * 1024, 4 * 1024 * 1024
#: How much JSON of rows shrinks, before anything is known, and how fast the guess follows what is seen.
_FIRST_RATIO, _WEIGHT = 6.0, 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedBatch:
    """A finished batch: what is sent, and what the source may be told once it is acknowledged."""

    properties: dict[str, Any]
    body: bytes
    follows: Position
    last: Position
    count: int
    #: Every transaction that ends at or below this LSN is wholly in this batch or in earlier ones; 0 if none ends here.
    confirm: int
    #: Size of keys and values, in bytes.
    raw_bytes: int
    #: When the last change was committed, in milliseconds since 1970; 0 for an empty batch.
    commit_ms: int


class Batcher:
    """The open batch of a source, and those that are closed and not yet taken."""

    def __init__(
        self,
        *,
        source: str,
        tail: Position,
        target_bytes: int = 64 * 1024,
        figures: Callable[[], Figures] | None = None,
    ) -> None:
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        #: Size of the open batch's keys and values, in bytes; the decoder adds to it.
        self.open_bytes = 0
        #: The open batch is cut before it grows beyond this.
        self.limit = 0
        self._source = source
        self._tail = tail
        self._target = target_bytes
        self._ratio = _FIRST_RATIO
        self._figures = figures or dict
        self._segments: list[Segment] = []
        self._closed: deque[SealedBatch] = deque()
        self._confirm = 0
        self._commit = self._commit_ms = 0
        # Where in the open batch the present segment begins, and the ordinal of its first record.
        self._since = self._ordinal = 0
        self._aim()

    def begin(self, commit: int, commit_ms: int) -> None:
        """Start a transaction, which commits at an LSN and a time in milliseconds."""
        self._commit, self._commit_ms = commit, commit_ms
        self._since, self._ordinal = len(self.values), 0

    def glue(self, value: bytes, ordinal: int) -> None:
        """Add a schema record, with the position of the change that comes next."""
        self._close_segment()
        self.keys.append(None)
        self.values.append(value)
        self.open_bytes += len(value)
        self._segments.append((self._commit, ordinal, 1))
        self._since, self._ordinal = len(self.values), ordinal

    def commit(self, end_lsn: int) -> None:
        """End a transaction."""
        self._close_segment()
        self._since = len(self.values)
        self._confirm = end_lsn

    def cut(self, ordinal: int) -> None:
        """Close the open batch before the change of this ordinal is added to it."""
        self._close_segment()
        self._closed.append(self._sealed())
        self._since, self._ordinal = 0, ordinal

    def take(self) -> list[SealedBatch]:
        """Return the batches that were cut since the last call."""
        taken = list(self._closed)
        self._closed.clear()
        return taken

    def seal(self) -> SealedBatch | None:
        """Close the open batch and return it; None when nothing is open. Between transactions, or within one."""
        if not self.values:
            return None
        ordinal = self._ordinal + len(self.values) - self._since
        self._close_segment()
        self._since, self._ordinal = 0, ordinal
        return self._sealed()

    def empty(self) -> SealedBatch:
        """Return an empty batch at the tail, with the edge's figures; for a source that has nothing to say."""
        tail = self._tail
        properties, body = encode(
            Batch(
                source=self._source,
                follows=tail,
                first=tail,
                last=tail,
                segments=[],
                keys=[],
                values=[],
                figures=self._figures(),
            )
        )
        return SealedBatch(
            properties=properties, body=body, follows=tail, last=tail, count=0, confirm=0, raw_bytes=0, commit_ms=0
        )

    def _close_segment(self) -> None:
        count = len(self.values) - self._since
        if count:
            self._segments.append((self._commit, self._ordinal, count))

    def _sealed(self) -> SealedBatch:
        segments, epoch = self._segments, self._tail.epoch
        commit, ordinal, count = segments[-1]
        batch = Batch(
            source=self._source,
            follows=self._tail,
            first=Position(epoch, *segments[0][:2]),
            last=Position(epoch, commit, ordinal + count - 1).check(),
            segments=segments,
            keys=self.keys,
            values=self.values,
            figures=self._figures(),
        )
        properties, body = encode(batch)
        sealed = SealedBatch(
            properties=properties,
            body=body,
            follows=self._tail,
            last=batch.last,
            count=len(self.values),
            confirm=self._confirm,
            raw_bytes=self.open_bytes,
            commit_ms=self._commit_ms,
        )
        self._ratio += _WEIGHT * (self.open_bytes / len(body) - self._ratio)
        self._aim()
        self._tail = batch.last
        # The lists are the decoder's too: it appends to them without asking.
        self.keys.clear()
        self.values.clear()
        self._segments = []
        self._confirm = self.open_bytes = 0
        return sealed

    def _aim(self) -> None:
        self.limit = int(min(_LARGEST, max(_SMALLEST, self._target * self._ratio)))
