"""The bridge of release 0.1 as an edge sees it: how it read a batch, and what a batch was to it. Frozen; nobody edits it.

Copied from headrace/batch.py and bridge/chain.py of commit 2540f17, without what only edges need. So a new edge is tested against
what a bridge of that release takes, without its code at hand.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec
import zstandard

from headrace.errors import CorruptInput
from headrace.position import Position

VERSION = 1
CONTENT_ENCODING = "zstd"
LARGEST_BODY = 256 * 1024 * 1024
Segment = tuple[int, int, int]
Figures = dict[str, int | float | str]


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """Records of one source in position order."""

    #: The source, `region/name`.
    source: str
    #: The position that the batch is chained to.
    follows: Position
    #: Of the first record, or `last` when there is none.
    first: Position
    #: Of the last record, or `follows` when there is none.
    last: Position
    #: Runs of positions: (commit, ordinal of the first, how many).
    segments: list[Segment]
    keys: list[bytes | None]
    values: list[bytes | None]
    #: The edge's own figures: how far it has read, its clock.
    figures: Figures = {}

    def __len__(self) -> int:
        """Return how many records the batch carries."""
        return len(self.values)

    @property
    def starts_epoch(self) -> bool:
        """Whether the batch says that it is the first of its epoch."""
        return self.follows.is_start

    def positions(self) -> Iterator[Position]:
        """Yield the position of each record, in order."""
        epoch = self.last.epoch
        for commit, ordinal, count in self.segments:
            for offset in range(count):
                yield Position(epoch, commit, ordinal + offset)

    def index_after(self, tail: Position) -> int:
        """Return the index of the first record whose position is greater than `tail`; the length when there is none."""
        if tail.epoch != self.last.epoch:
            return 0 if tail.epoch < self.last.epoch else len(self.values)
        index = 0
        for commit, ordinal, count in self.segments:
            if (commit, ordinal + count - 1) <= (tail.commit, tail.ordinal):
                index += count
            elif commit == tail.commit and ordinal <= tail.ordinal:
                return index + tail.ordinal - ordinal + 1
            else:
                return index
        return index


_BODY = msgspec.msgpack.Decoder(
    tuple[list[Segment], list[bytes | None], list[bytes | None], Figures],
)


def decode(properties: Mapping[str, Any] | None, content_encoding: str | None, body: bytes) -> Batch:
    """Return the batch of a message; raise CorruptInput, naming what is wrong, when it is none of ours."""
    names = _names(properties)
    follows, first, last = (Position.parse(names[name]) for name in ("follows", "first", "last"))
    if content_encoding != CONTENT_ENCODING:
        raise CorruptInput(f"content-encoding is {content_encoding!r}, not {CONTENT_ENCODING!r}")
    try:
        raw = zstandard.ZstdDecompressor().decompress(_bounded(body))
        segments, keys, values, figures = _BODY.decode(raw)
    except (zstandard.ZstdError, msgspec.MsgspecError) as error:
        raise CorruptInput("the body is truncated, damaged or not a batch") from error
    batch = Batch(
        source=names["source"],
        follows=follows,
        first=first,
        last=last,
        segments=segments,
        keys=keys,
        values=values,
        figures=figures,
    )
    _check(batch, names["count"])
    return batch


_TYPES = {"version": int, "source": str, "follows": str, "first": str, "last": str, "count": int}


def _names(properties: Mapping[str, Any] | None) -> Mapping[str, Any]:
    given = properties or {}
    if given.get("version", VERSION) != VERSION:
        raise CorruptInput(
            f"the message has version {str(given['version'])[:20]!r}, this bridge reads version {VERSION}",
            hint="Upgrade the older side of edge and bridge.",
        )
    for name, kind in _TYPES.items():
        if not isinstance(given.get(name), kind):
            raise CorruptInput(f"the message has no usable property {name!r}: it is not a Headrace batch")
    return given


def _bounded(body: bytes) -> bytes:
    size = zstandard.frame_content_size(body)
    if not 0 <= size <= LARGEST_BODY:
        raise CorruptInput(f"the body unpacks to {size} bytes, the limit is {LARGEST_BODY}")
    return body


def _check(batch: Batch, count: int) -> None:
    """Raise CorruptInput unless counts, ends and order of the batch agree with each other."""
    if not len(batch.keys) == len(batch.values) == count == sum(segment[2] for segment in batch.segments):
        raise CorruptInput("the counts of a batch disagree")
    if not batch.segments:
        if not batch.first == batch.last == batch.follows:
            raise CorruptInput("an empty batch does not end where it begins")
        return
    if any(segment[2] < 1 for segment in batch.segments):
        raise CorruptInput("a segment of a batch is empty")
    epoch = batch.last.epoch
    commit, ordinal, length = batch.segments[-1]
    first, last = Position(epoch, *batch.segments[0][:2]), Position(epoch, commit, ordinal + length - 1)
    if first != batch.first or last != batch.last:
        raise CorruptInput("the ends of a batch are not where its properties say")
    before = (0, -1)
    for commit, ordinal, length in batch.segments:
        if (commit, ordinal) < before:
            raise CorruptInput("the records of a batch are out of order")
        before = (commit, ordinal + length - 1)
    if batch.follows.epoch != epoch or batch.follows >= batch.first:
        raise CorruptInput("a batch does not follow what comes before it")


class Next(NamedTuple):
    """The next link: write the records from index `begin` on; those before are repeats of what is in Kafka."""

    begin: int
    #: Whether the batch starts an epoch that is not the tail's.
    starts_epoch: bool = False


class Repeat(NamedTuple):
    """All of it is in Kafka, or in the open transaction: write nothing, accept once that is committed."""


class Gap(NamedTuple):
    """Something between `tail` and `follows` is missing: it was overtaken, or lost. A `tail` of None: nothing is known."""

    follows: Position
    tail: Position | None


class Stale(NamedTuple):
    """It is of an epoch before the tail's: an old edge is still alive."""

    epoch: int
    tail: Position


Verdict = Next | Repeat | Gap | Stale


def judge(tail: Position | None, batch: Batch) -> Verdict:
    """Return what the batch is to a bridge whose last produced position is `tail`.

    Args:
        tail: None when neither Kafka's committed offsets nor its records know a position of the source; then only a batch
            that starts an epoch is a next link.
        batch: any batch of the source.
    """
    if tail is None or batch.last.epoch > tail.epoch:
        return Next(0, starts_epoch=True) if batch.starts_epoch else Gap(batch.follows, tail)
    if batch.last.epoch < tail.epoch:
        return Stale(batch.last.epoch, tail)
    if batch.follows > tail:
        return Gap(batch.follows, tail)
    if batch.last <= tail:
        return Repeat()
    return Next(batch.index_after(tail))
