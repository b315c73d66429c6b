"""Which of a source's partitions, and of its topics, a record goes to. Frozen: another hash would break the order of every key.

One partition takes all, in commit order. With several, a record goes to `partitions[crc32(key) % len(partitions)]`, so a key
keeps its order; a record without a key goes to the first; a schema record goes to all, so that in each it is ahead of the
changes that it describes, and so does the mark of a table's copy. A source owns the same partitions in each of its topics. Called
by a lane.
"""

from collections.abc import Collection, Iterator, Sequence
from itertools import chain, pairwise
from zlib import crc32

from bridge.model.ports import Share
from bridge.model.table_router import TableRouter
from headrace.batch import Batch, Segment
from headrace.schema import COPY_MARK_HEAD


def shares(
    batch: Batch,
    index: int,
    topic: str,
    partitions: Sequence[int],
    tables: TableRouter | None = None,
    skipped: Collection[int] = (),
) -> list[Share]:
    """Return what of the batch, from record `index` on, goes to which partition of which topic.

    Args:
        batch: whose records are shared out.
        index: of the first that is.
        topic: the stream's own.
        partitions: those that the source owns.
        tables: where a table's records go, if not there.
        skipped: the indexes of records that go nowhere; only with `tables`.

    Raises CorruptInput for a record that does not name its table.
    """
    if tables is None and len(partitions) == 1:
        keys, values = batch.keys, batch.values
        headers = {at - index: given for at, given in batch.headers.items() if at >= index} or None
        return [
            Share(topic, partitions[0], keys[index:] if index else keys, values[index:] if index else values, headers)
        ]
    split: dict[tuple[str, int], Share] = {}
    ahead = {number for number in find_joined(batch.segments) if batch.keys[number] is None}
    home = topic
    for number in range(index, len(batch)):
        if number in skipped:
            continue
        key, value = batch.keys[number], batch.values[number]
        if number in ahead or (key is None and value is not None and value.startswith(COPY_MARK_HEAD)):
            owners, at = partitions, topic
        else:
            owners = (partitions[crc32(key) % len(partitions)] if key is not None else partitions[0],)
            # A tombstone goes where its delete went, which is right before it.
            if tables is not None and value is not None:
                home = tables.topic_of(key, value)
            at = home
        for owner in owners:
            share = split.get((at, owner))
            if share is None:
                share = split[at, owner] = Share(at, owner, [], [], {} if batch.headers else None)
            if share.headers is not None and number in batch.headers:
                share.headers[len(share.keys)] = batch.headers[number]
            share.keys.append(key)
            share.values.append(value)
    return list(split.values())


def find_joined(segments: list[Segment]) -> Iterator[int]:
    """Yield the indexes of records that have a segment of their own and the position of the record after them.

    Those without a key are schema records; with one, deletes that a tombstone follows, or beginnings of transactions.
    """
    index = 0
    for (commit, ordinal, count), after in pairwise(chain(segments, [(0, 0, 0)])):
        if count == 1 and after[:2] == (commit, ordinal):
            yield index
        index += count
