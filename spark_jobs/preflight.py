"""Whether Kafka still holds what the lake needs next, before anything is read.

Pure: takes what the table says and what Kafka says. Called by bronze at every load, and by `headrace lake check`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from headrace.errors import NeedsOperator
from spark_jobs.kafka import Topic


@dataclass(frozen=True)
class Gap:
    """Offsets that the lake needs and Kafka no longer holds: from `start` up to, not including, `end`."""

    partition: int
    start: int
    end: int

    def __str__(self) -> str:
        """Return the range as an operator reads it."""
        return f"partition {self.partition}: offsets {self.start} to {self.end - 1} ({self.end - self.start} of them)"


def gaps(needed: Mapping[int, int], topic: Topic) -> list[Gap]:
    """Return what retention took before the lake had it; a partition that is new to the lake is needed from 0."""
    return [
        Gap(partition, needed.get(partition, 0), start)
        for partition, start in sorted(topic.starts.items())
        if needed.get(partition, 0) < start
    ]


def check_one_topic(needed: Mapping[int, int], topic: Topic, tables: Callable[[], Sequence[str]]) -> None:
    """Raise NeedsOperator before a first load when tables have topics of their own: their rows are not in this one."""
    if needed or not (found := tables()):
        return
    some = ", ".join(found[:3]) + (", …" if len(found) > 3 else "")
    raise NeedsOperator(
        f"topic {topic.name!r} is of a stream with a topic for each table: {some}",
        hint="The lake loads streams that have one topic: take 'tables' out of the stream in the bridge's file. If those "
        "topics are somebody else's, the stream's own topic needs another name.",
    )


def check_identity(needed: Mapping[int, int], topic: Topic, *, topic_id: str | None, table: str) -> None:
    """Raise NeedsOperator when the topic is not the one that the table was loaded from."""
    beyond = {p: offset for p, offset in needed.items() if offset > topic.ends.get(p, 0)}
    if topic_id not in {None, topic.id} or beyond:
        ends = ", ".join(f"partition {p}: loaded up to {o}, ends at {topic.ends.get(p, 0)}" for p, o in beyond.items())
        raise NeedsOperator(
            f"topic {topic.name!r} is not the one that {table} was loaded from: it was deleted and created again"
            + (f" ({ends})" if ends else ""),
            hint="Its offsets begin anew, so going on would skip or mix records. Give the new topic a stream of its own in "
            f"the lake's file, or move {table} away if everything since the beginning is in the new topic.",
        )


def check_retention(needed: Mapping[int, int], topic: Topic, *, stream: str) -> None:
    """Raise NeedsOperator with the exact ranges that retention took before the lake had them."""
    if missing := gaps(needed, topic):
        raise NeedsOperator(
            f"topic {topic.name!r} no longer holds what stream {stream!r} needs next: " + "; ".join(map(str, missing)),
            hint="Retention was shorter than the time between two loads. Restore the topic from a replica if there is one. To "
            f"go on without those records, knowing that the lake then lacks them: 'headrace lake load {stream} --accept-gap'; "
            "then verify, and repair the tables that differ.",
        )
