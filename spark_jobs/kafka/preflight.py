"""Whether Kafka still holds what the lake needs next, before anything is read.

Pure: takes what the table holds and what Kafka has. Called by bronze at every load, and by `headrace lake check`.
"""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from headrace.errors import NeedsOperator
from spark_jobs.kafka.client import Topic

_log = logging.getLogger(__name__)


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


def check_one_topic(held: Collection[str], topic: Topic, tables: Callable[[], Sequence[str]]) -> None:
    """Raise NeedsOperator before a first load when tables have topics of their own: their rows are not in this one.

    Warns at later loads: the topics may be somebody else's, or new in the bridge's file.
    """
    if not (found := tables()):
        return
    some = ", ".join(found[:3]) + (", …" if len(found) > 3 else "")
    if held:
        _log.warning(
            "Kafka has topics as of tables of topic %r, which are not loaded: %s. If the bridge writes them, set "
            "'topic_per_table = true' of the stream in the lake's file",
            topic.name,
            some,
        )
        return
    raise NeedsOperator(
        f"topic {topic.name!r} is of a stream with a topic for each table: {some}",
        hint="Set 'topic_per_table = true' for the stream in the lake's file. If those topics are somebody else's, the stream's "
        "own topic needs another name.",
    )


def check_compacted(compacted: Sequence[str]) -> None:
    """Raise NeedsOperator for tables' topics that Kafka compacts: what it drops there may be where a transaction ends."""
    if compacted:
        raise NeedsOperator(
            f"Kafka compacts {', '.join(compacted)}: changes are missing there, and with them where transactions end",
            hint='The lake loads topics that hold every change. Set "delete" for the table in the bridge\'s file and set the '
            "topic's cleanup.policy to it before anything is loaded; a compacted copy can be kept in a topic of its own.",
        )


def check_known(held: Collection[str], topics: Sequence[Topic], *, table: str) -> None:
    """Raise NeedsOperator when the table was loaded from a topic that the stream no longer has."""
    if gone := sorted(set(held) - {topic.name for topic in topics}):
        raise NeedsOperator(
            f"{table} was loaded from {', '.join(gone)}, which the stream no longer has",
            hint="Correct 'topic', 'topic_per_table' and 'prefix' of the stream in the lake's file, and let the lake's user read "
            "all of its topics. If the topic was deleted after all of it was loaded: 'headrace lake load STREAM --accept-gap'.",
        )


def check_identity(needed: Mapping[int, int], topic: Topic, *, topic_id: str | None, table: str) -> None:
    """Raise NeedsOperator when the topic is not the one that the table was loaded from."""
    beyond = {p: offset for p, offset in needed.items() if offset > topic.ends.get(p, 0)}
    if topic_id not in {None, topic.id} or beyond:
        ends = ", ".join(f"partition {p}: loaded up to {o}, ends at {topic.ends.get(p, 0)}" for p, o in beyond.items())
        raise NeedsOperator(
            f"topic {topic.name!r} is not the one that {table} was loaded from: it was deleted and created again"
            + (f" ({ends})" if ends else ""),
            hint="Its offsets begin at 0, so continuing would skip or mix records. Give the new topic a stream of its own in "
            f"the lake's file, or remove {table} if everything since the beginning is in the new topic.",
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
