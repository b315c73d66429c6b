"""Which of a source's partitions a record goes to. Frozen: another hash would break the order of every key.

One partition takes all, in commit order. With several, a record goes to `partitions[crc32(key) % len(partitions)]`, so a key
keeps its order; a record without a key goes to the first; a schema record goes to all, so that in each it stands ahead of the
changes that it describes. Called by the committer.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import NamedTuple
from zlib import crc32

from headrace.batch import Batch, Segment


class Share(NamedTuple):
    """The records of a batch that go to one partition, in order."""

    partition: int
    keys: list[bytes | None]
    values: list[bytes | None]


def shares(batch: Batch, index: int, partitions: Sequence[int]) -> Iterator[Share]:
    """Yield what of the batch, from record `index` on, goes to which partition."""
    if len(partitions) == 1:
        yield Share(
            partitions[0], batch.keys[index:] if index else batch.keys, batch.values[index:] if index else batch.values
        )
        return
    split = {partition: Share(partition, [], []) for partition in partitions}
    everywhere = list(split.values())
    ahead = {number for number in _glued(batch.segments) if batch.keys[number] is None}
    for number in range(index, len(batch)):
        key, value = batch.keys[number], batch.values[number]
        owner = partitions[crc32(key) % len(partitions)] if key is not None else partitions[0]
        for share in everywhere if number in ahead else (split[owner],):
            share.keys.append(key)
            share.values.append(value)
    yield from (share for share in everywhere if share.values)


def _glued(segments: list[Segment]) -> Iterator[int]:
    """Yield the indexes of records that have a segment of their own and the position of the record after them.

    Those without a key are schema records; with one, deletes that a tombstone follows, or beginnings of transactions.
    """
    index = 0
    for (commit, ordinal, count), after in zip(segments, chain(segments[1:], [(0, 0, 0)]), strict=True):
        if count == 1 and after[:2] == (commit, ordinal):
            yield index
        index += count
