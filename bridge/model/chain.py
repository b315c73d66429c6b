"""The chain: what a batch is, seen from the last position that the bridge has produced (design decision 2).

Pure: it touches no queue, no Kafka and no AMQP. The one rule catches loss, repeats and overtaking on any network in between,
for any way of cutting the same records into batches. Called by a lane for every batch.
"""

from typing import NamedTuple

from headrace.batch import Batch
from headrace.position import Position


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
