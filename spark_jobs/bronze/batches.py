"""What a batch of bronze reads: a range of offsets of each partition, from where the table ends on, bounded in records.

Pure: takes what the table holds and what Kafka has. Called by bronze.
"""

import json
from collections.abc import Sequence
from dataclasses import replace

from spark_jobs.kafka.client import Topic
from spark_jobs.state.offsets import Progress

#: Partition to the first offset and the one after the last.
Ranges = dict[int, tuple[int, int]]
#: By topic; partitions without records are absent.
Batch = dict[str, Ranges]


def next_batch(held: Progress, topics: Sequence[Topic], limit: int) -> Batch:
    """Return what comes next, about `limit` offsets at most; empty when there is nothing.

    Each partition has a share in proportion to what it has left, so all of them end together.
    """
    left = {topic.name: _left(held, topic) for topic in topics}
    todo = sum(end - start for ranges in left.values() for start, end in ranges.values())
    taken = min(limit, todo)
    return {
        # Whole numbers: a share that is rounded in binary takes an offset more than the limit.
        name: {p: (start, start + -(-(end - start) * taken // todo)) for p, (start, end) in ranges.items()}
        for name, ranges in left.items()
        if ranges
    }


def _left(held: Progress, topic: Topic) -> Ranges:
    """Return all that a topic has after what is held; a partition that is new begins where Kafka does."""
    starts = _starts(held, topic)
    return {p: (start, topic.ends[p]) for p, start in starts.items() if topic.ends[p] > start}


def _starts(held: Progress, topic: Topic) -> dict[int, int]:
    offsets = held.of(topic.name).offsets
    return {p: max(offsets.get(p, 0), start) for p, start in sorted(topic.starts.items())}


def done(held: Progress, topics: Sequence[Topic], batch: Batch) -> Progress:
    """Return what is held once a batch is: an offset for every partition that there is."""
    ends = {
        topic.name: replace(
            held.of(topic.name),
            id=topic.id,
            offsets=held.of(topic.name).offsets
            | _starts(held, topic)
            | {p: end for p, (_, end) in batch.get(topic.name, {}).items()},
        )
        for topic in topics
    }
    return replace(held, topics=held.topics | ends)


def records_of(batch: Batch) -> int:
    """Return how many offsets a batch covers: its records, aborted ones and transactions' markers."""
    return sum(end - start for ranges in batch.values() for start, end in ranges.values())


def bounds(batch: Batch, which: int) -> str:
    """Return the first offsets (0) or those after the last (1) as Spark's Kafka source takes them."""
    return json.dumps({name: {str(p): ends[which] for p, ends in ranges.items()} for name, ranges in batch.items()})


def partitions(batch: Batch) -> str:
    """Return the partitions that a batch reads as Spark's Kafka source takes them."""
    return json.dumps({name: list(ranges) for name, ranges in batch.items()})
