"""Cuts a source's records into batches, chained by position (design decisions 2 and 3).

The decoder appends records straight to `keys` and `values`; everything else happens once a transaction or once a batch. A batch
is cut before a change is added, never after it, and never sealed within a transaction, so the newest change is always in the
open batch when its commit comes. A schema record is always in the batch of the change that it goes ahead of, a tombstone in that
of its delete.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import zstandard
from msgspec.structs import replace

from headrace.batch import LARGEST_BODY, Batch, Figures, Headers, Segment, encode
from headrace.errors import NeedsOperator
from headrace.position import Position

if TYPE_CHECKING:
    from edge.records.avro_records import AvroRecords
    from edge.records.cloud_events import CloudEvents

#: Bounds of the open batch, in bytes before compression.
SMALLEST, LARGEST = 16 * 1024, 4 * 1024 * 1024
#: How much rows in JSON shrink, before anything is known, and how fast the guess rises to what is seen.
_FIRST_RATIO, _WEIGHT = 6.0, 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedBatch:
    """A finished batch: what is sent, and what may be confirmed to the source once it is acknowledged."""

    properties: dict[str, Any]
    body: bytes
    follows: Position
    last: Position
    count: int
    #: Every transaction that ends at or below this LSN is wholly in this batch or in earlier ones; 0 if none ends here.
    confirm: int
    #: Size of the body before compression, in bytes.
    raw_bytes: int
    #: When the last change was committed, in milliseconds since 1970; 0 for an empty batch.
    commit_ms: int

    @property
    def first(self) -> Position:
        """The position of its first record."""
        return Position.parse(self.properties["first"])


class Batcher:
    """The open batch of a source, and those that are closed and not yet taken."""

    def __init__(
        self,
        *,
        source: str,
        tail: Position,
        target_bytes: int = 64 * 1024,
        repeat_schema_until: int = 0,
        avro: "AvroRecords | None" = None,
        events: "CloudEvents | None" = None,
        figures: Callable[[], Figures] | None = None,
    ) -> None:
        # The decoder holds on to neither list: both are new in each batch.
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        #: By how many bytes the values may grow before the batch is cut; the decoder takes from it what it adds.
        self.free_bytes = 0
        #: Batches that were cut and not taken yet.
        self.closed: list[SealedBatch] = []
        #: Transactions that ended since somebody last set this to 0.
        self.transactions = 0
        #: Changes too large for a record, that other records replace; counted by the decoder.
        self.dead_letters = 0
        #: Whether each change of the present transaction carries its schema record (edge/progress/notes.py).
        self.repeats_schema = False
        #: Up to which place they do.
        self.repeat_schema_until = repeat_schema_until
        #: What puts changes into Avro; None where records are JSON.
        self.avro = avro
        # What gives records the headers of CloudEvents; None where they have none.
        self._events = events
        self._limit = 0
        self._source = source
        self._tail = tail
        self._target = target_bytes
        self._ratio = _FIRST_RATIO
        self._figures: Callable[[], Figures] = figures or dict
        self._segments: list[Segment] = []
        # When the transaction of each segment was committed.
        self._times: list[int] = []
        self._headers: Headers = {}
        self._confirm = 0
        # Of the present transaction, and of the newest change.
        self._commit = self._commit_ms = self._last_ms = 0
        self._in_transaction = False
        # Where in the open batch the present segment begins, and the ordinal of its first record.
        self._since = self._ordinal = 0
        # A bridge takes 262,144 headers in a batch, and an event has eight of them.
        self._most = LARGEST if events is None else LARGEST // 2
        self._largest = self._most
        self._aim()

    def limit_values(self, largest: int) -> None:
        """Keep the free space at most this large, in bytes, so that the decoder looks at whatever is larger."""
        self._largest = min(self._most, largest)
        self._aim()

    @property
    def open_bytes(self) -> int:
        """Size of the open batch's values, in bytes; 0 when nothing is open."""
        return self._limit - self.free_bytes

    def begin(self, commit: int, commit_ms: int) -> None:
        """Start a transaction, which commits at an LSN and a time in milliseconds."""
        self._commit, self._commit_ms = commit, commit_ms
        self._since, self._ordinal = len(self.values), 0
        self._in_transaction = True
        self.repeats_schema = commit <= self.repeat_schema_until

    def add_ahead(self, value: bytes | None, ordinal: int, key: bytes | None = None) -> None:
        """Add a record, a schema record mostly, with the position of the change that is added next, whatever space there is."""
        self._alone(key, value, ordinal)
        self._ordinal = ordinal

    def add_header(self, name: str, value: bytes) -> None:
        """Give the record that was added last a header."""
        self._headers.setdefault(len(self.values) - 1, []).append((name, value))
        self.free_bytes -= len(value)

    def add_tombstone(self, key: bytes, ordinal: int) -> None:
        """Add a tombstone, with the position of the delete that was added last."""
        self._alone(key, None, ordinal)
        self._ordinal = ordinal + 1

    def skip(self, ordinal: int) -> None:
        """Leave out a position: the next change has this ordinal."""
        self._close_segment()
        self._since, self._ordinal = len(self.values), ordinal

    def _alone(self, key: bytes | None, value: bytes | None, ordinal: int) -> None:
        self._close_segment()
        self.keys.append(key)
        self.values.append(value)
        self.free_bytes -= len(value or b"")
        self._segments.append((self._commit, ordinal, 1))
        self._times.append(self._commit_ms)
        self._since = len(self.values)

    def commit(self, end_lsn: int) -> None:
        """End a transaction, whose changes are all added."""
        self._close_segment()
        self._since = len(self.values)
        self._in_transaction = False
        self.transactions += 1
        self._confirm = end_lsn

    def cut(self, ordinal: int) -> None:
        """Close the open batch, in which something is, before the change of this ordinal is added."""
        self._close_segment()
        self.closed.append(self._sealed())
        self._since, self._ordinal = 0, ordinal

    def take(self) -> list[SealedBatch]:
        """Return the batches that were cut since the last call."""
        taken = self.closed
        if taken:
            self.closed = []
        return taken

    def seal(self) -> SealedBatch | None:
        """Close the open batch and return it; take what was cut first.

        None when it is empty, and within a transaction, whose newest change may turn out to be its last.
        """
        if self._in_transaction or not self.values:
            return None
        sealed = self._sealed()
        self._since = 0
        return sealed

    def empty(self) -> SealedBatch:
        """Return an empty batch at the tail, with the edge's figures; for a source that is idle."""
        if self.values:
            raise ValueError("an empty batch would overtake the open one")
        return self._encode(
            Batch(
                source=self._source,
                follows=self._tail,
                first=self._tail,
                last=self._tail,
                segments=[],
                keys=[],
                values=[],
                figures=self._figures(),
            ),
            commit_ms=0,
        )

    def _close_segment(self) -> None:
        count = len(self.values) - self._since
        if count:
            self._segments.append((self._commit, self._ordinal, count))
            self._times.append(self._commit_ms)
            self._last_ms = self._commit_ms

    def _sealed(self) -> SealedBatch:
        segments, epoch = self._segments, self._tail.epoch
        commit, ordinal, count = segments[-1]
        sealed = self._encode(
            Batch(
                source=self._source,
                follows=self._tail,
                first=Position(epoch, *segments[0][:2]),
                last=Position(epoch, commit, ordinal + count - 1).check(),
                segments=segments,
                keys=self.keys,
                values=self.values,
                figures=self._figures(),
                headers=self._headers,
            ),
            commit_ms=self._last_ms,
        )
        if sealed.raw_bytes > LARGEST_BODY:
            # No bridge would take it, so it is not sent: what comes before it still is.
            raise NeedsOperator(
                f"the change of {self._source} at position {sealed.last} makes a batch of {sealed.raw_bytes} bytes, more than "
                f"the {LARGEST_BODY} that a bridge unpacks",
                hint="Take its table out of the publication and start a new epoch; where REPLICA IDENTITY FULL carries its large "
                "columns twice, a key as identity halves it.",
            )
        # A small batch is no measure for large ones. What shrinks less than the last one did is noticed at once, what shrinks
        # more by and by: a batch too large is worse than one too small.
        if sealed.raw_bytes >= SMALLEST:
            # The headers of events are not among the values that the open batch's size is counted by.
            ratio = (sealed.raw_bytes if self._events is None else self.open_bytes) / len(sealed.body)
            self._ratio = min(ratio, self._ratio + _WEIGHT * (ratio - self._ratio))
        self._tail = sealed.last
        self.keys, self.values, self._segments, self._times, self._headers = [], [], [], [], {}
        self._confirm = 0
        self._aim()
        return sealed

    def _encode(self, batch: Batch, *, commit_ms: int) -> SealedBatch:
        if self.avro is not None and len(batch):
            keys, values, written = self.avro.encode(batch.keys, batch.values)
            batch = replace(batch, keys=keys, values=values, written=written)
        if self._events is not None and len(batch):
            batch = replace(batch, headers=self._events.headers(batch, self._times))
        properties, body = encode(batch)
        return SealedBatch(
            properties=properties,
            body=body,
            follows=batch.follows,
            last=batch.last,
            count=len(batch),
            confirm=self._confirm if len(batch) else 0,
            raw_bytes=zstandard.frame_content_size(body),
            commit_ms=commit_ms,
        )

    def _aim(self) -> None:
        self._limit = self.free_bytes = int(min(self._largest, max(SMALLEST, self._target * self._ratio)))
