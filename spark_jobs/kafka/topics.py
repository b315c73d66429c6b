"""The topics of a stream: what they have, what a batch of bronze reads of them, and, where tables have topics of their own, up to
which position they have all of a source.

A batch is a range of offsets of each partition, from where the table ends on, bounded in records.

A bridge commits a source's position in one Kafka transaction with the records of all topics. So the positions are read first, and
the ends of all topics after that: whatever is at or below a position is before those ends. They are the high watermarks: of a
transaction that is committed one topic may still lack the marker, and readers are held back there; bronze has reached a position
when it has passed the ends. Positions are in the offsets of the bridges' consumer group; the lake's own group mirrors its offsets
for lag tools. Called by bronze and by preflight.py.
"""

import json
import logging
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from headrace.configuration.kafka import KafkaConnection
from headrace.configuration.lake import LakeFile
from headrace.errors import CorruptInput, NotConnected
from headrace.position import Position
from spark_jobs.kafka import client, requests
from spark_jobs.kafka.client import (
    TIMEOUT,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Place,
    Topic,
    TopicPartition,
    admin,
    consumer,
    explained,
    find_brokers,
)
from spark_jobs.state.offsets import Progress

#: Seconds for which a load waits until readers may pass the ends: as long as a bridge that died can hold them back, and more.
_TIMEOUT = 60
#: Sources whose positions are requested at the same time.
_AT_ONCE = 8

#: How the group of bridges, and a source's own of before, note a position: how many spaces part it, and which part that is.
_OF_BRIDGES, _FORMER = (4, 1), (2, 0)

_log = logging.getLogger(__name__)

#: The source of a partition that belongs to nobody any more (bridge/kafka/entries.py).
_NOBODY = "-"


@dataclass(frozen=True)
class Reach:
    """Positions, and the ends before which all of the sources up to them is."""

    positions: dict[str, str]
    heads: dict[Place, int]

    def passed(self, ends: dict[str, dict[int, int]]) -> bool:
        """Whether offsets of each topic's partitions lie at the ends, or beyond."""
        return all(head <= ends.get(topic, {}).get(partition, 0) for (topic, partition), head in self.heads.items())


def observe(lake: LakeFile, stream: str) -> Reach | None:
    """Return up to where each source is committed now, and the topics' ends for it; None for a stream with one topic."""
    if not lake.stream(stream).topic_per_table:
        return None
    own = client.describe(lake.kafka, lake.topic(stream))
    places = [Place(own.name, partition) for partition in own.ends]
    return Reach(_positions(lake, lake.stream(stream).sources, places), heads(lake, stream))


def heads(lake: LakeFile, stream: str) -> dict[Place, int]:
    """Return the ends of all topics of a stream with a topic for each table, whether readers may pass them or not."""
    return client.heads(lake.kafka, lake.topic(stream), lambda name: lake.has_topic(stream, name))


def _positions(lake: LakeFile, sources: Sequence[str], places: list[Place]) -> dict[str, str]:
    """Return the positions that bridges committed for sources, of several the newest; a source without one is absent.

    The offsets of the group of bridges carry `2 POSITION TIME SOURCE BRIDGE`; in a group of the source's own, a release of before
    that group wrote `POSITION TIME BRIDGE`.
    """
    notes: dict[str, list[tuple[str, str]]] = {}
    for position, at, owner in _of_group(lake, places).values():
        notes.setdefault(owner, []).append((at, position))

    def former(source: str) -> list[tuple[str, str]]:
        texts = _entries(lake, f"headrace.{source}", places, _FORMER).values()
        return [(at, position) for position, at, _ in texts]

    without = [source for source in sources if source not in notes]
    # A client for each group, and each takes a moment to find its coordinator.
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="positions") as pool:
        notes |= dict(zip(without, pool.map(former, without), strict=True))
    newest = {source: max(notes[source])[1] for source in sources if notes[source]}
    return {source: position for source, position in newest.items() if position}


def _of_group(lake: LakeFile, places: list[Place]) -> dict[Place, tuple[str, str, str]]:
    """Return what the group of bridges noted of some partitions: position, time and source."""
    texts = _entries(lake, f"{lake.kafka.prefix}.bridges", places, _OF_BRIDGES)
    return {place: (position, at, owner) for place, (_, position, at, owner, _) in texts.items()}


def _entries(lake: LakeFile, group: str, places: list[Place], form: tuple[int, int]) -> dict[Place, list[str]]:
    """Return the parts of what a group of bridges noted of some partitions.

    An offset that another tool committed concerns its partition alone: its source, if no other partition has its position, is not
    loaded any further until its bridge commits again.
    """
    entries: dict[Place, list[str]] = {}
    spaces, at = form
    for place, text in read_committed(lake.kafka, group, places).items():
        parts = text.split(" ", spaces)
        try:
            if len(parts) != spaces + 1:
                raise ValueError
            parts[at] = _parsed(parts[at])
        except (CorruptInput, ValueError):
            _log.warning(
                "group %s holds an offset that the bridge did not write: %s[%d]; keep other consumers out of it. "
                "'headrace bridge doctor' reports how it is put right",
                group,
                *place,
            )
        else:
            entries[place] = parts
    return entries


def owners(lake: LakeFile, stream: str) -> dict[int, str]:
    """Return the sources for which bridges committed last in the partitions of a stream's own topic, but those that are free now.

    Raises NeedsOperator when the lake may not read the group of bridges, else NotConnected.
    """
    own = client.describe(lake.kafka, lake.topic(stream))
    places = [Place(own.name, partition) for partition in own.ends]
    return {place.partition: owner for place, (_, _, owner) in _of_group(lake, places).items() if owner != _NOBODY}


def _parsed(position: str) -> str:
    return "" if position == "-" else str(Position.parse(position))


def describe(lake: LakeFile, stream: str, reach: Reach | None) -> list[Topic]:
    """Return the stream's topics as they are now, its own one first; raise NeedsOperator when one is compacted."""
    own = lake.topic(stream)
    names = [own] if reach is None else [own, *sorted({place.topic for place in reach.heads} - {own})]
    requests.check_compacted(client.find_compacted(lake.kafka, names[1:]))
    return client.describe_all(lake.kafka, names)


def ready(lake: LakeFile, stream: str, reach: Reach | None) -> list[Topic]:
    """Return the stream's topics as soon as readers may pass the ends, or after a minute as far as they may read."""
    topics = describe(lake, stream, reach)
    until = time.monotonic() + _TIMEOUT
    while reach is not None and not reach.passed({topic.name: topic.ends for topic in topics}):
        if time.monotonic() > until:
            _log.warning("stream %s: a transaction in Kafka stays open, and readers are held back before it", stream)
            break
        time.sleep(0.05)
        topics = client.describe_all(lake.kafka, [topic.name for topic in topics])
    return topics


def behind(held: Progress, topics: list[Topic]) -> bool:
    """Whether something is held that the topics did not have yet."""
    return any(offset > topic.ends.get(p, 0) for topic in topics for p, offset in held.of(topic.name).offsets.items())


def check(lake: LakeFile, stream: str, held: Progress, topics: list[Topic], table: str) -> None:
    """Raise NeedsOperator when the topics are others than those that the bronze table was loaded from."""
    own = topics[0]
    if not lake.stream(stream).topic_per_table:
        requests.check_one_topic(held.topics, own, lambda: client.tables_of(lake.kafka, own.name))
    requests.check_known(held.topics, topics, table=table)
    for topic in topics:
        held_of_topic = held.of(topic.name)
        requests.check_identity(held_of_topic.offsets, topic, topic_id=held_of_topic.id, table=table)


def check_retention(held: Progress, topics: list[Topic], stream: str) -> None:
    """Raise NeedsOperator with the exact ranges that retention took from a topic before the lake had them."""
    for topic in topics:
        requests.check_retention(held.of(topic.name).offsets, topic, stream=stream)


def todo(held: Progress, topics: list[Topic]) -> int:
    """Return how many offsets there are to go."""
    return sum(max(0, end - held.of(topic.name).offsets.get(p, 0)) for topic in topics for p, end in topic.ends.items())


_COORDINATING = frozenset(
    {KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.COORDINATOR_LOAD_IN_PROGRESS}
)


def read_committed(connection: KafkaConnection, group: str, places: Sequence[Place]) -> dict[Place, str]:
    """Return the metadata of a consumer group's offsets by partition; of open transactions, the values before them.

    Raises NeedsOperator when the lake may not read the group, else NotConnected.
    """
    # Not the administration client: librdkafka 2.16 crashes when it requests a group whose coordinator is still loading.
    group_consumer = consumer(connection, group)
    try:
        return {
            Place(each.topic, each.partition): each.metadata or ""
            for each in _request_offsets(group_consumer, places)
            if each.offset >= 0
        }
    except KafkaException as error:
        ours = explained(error, connection.bootstrap, places[0].topic)
        if isinstance(ours, NotConnected):
            # A user who may not see the group gets no answer at all.
            ours.hint += f" If it does, allow the lake's user to read the group {group!r}."
        raise ours from error
    finally:
        group_consumer.close()


def _request_offsets(group_consumer: Any, places: Sequence[Place]) -> list[TopicPartition]:
    """Return a group's offsets; waits for a coordinator that is still being found, or loads what its groups hold."""
    until = time.monotonic() + TIMEOUT
    while True:
        try:
            offsets: list[TopicPartition] = group_consumer.committed(
                [TopicPartition(*place) for place in places], timeout=TIMEOUT
            )
            for each in offsets:
                if each.error is not None:
                    raise KafkaException(each.error)
        except KafkaException as error:
            if error.args[0].code() not in _COORDINATING or time.monotonic() > until:
                raise
            time.sleep(0.1)
        else:
            return offsets


def mirror(connection: KafkaConnection, group: str, offsets: Mapping[Place, int]) -> None:
    """Commit offsets for a consumer group, so that lag tools see the lake; only log when it cannot be done.

    Nothing is ever read from there: the lake resumes from its own table.
    """
    places = [TopicPartition(*place, offset) for place, offset in sorted(offsets.items())]
    if not places:
        return
    # Named, so that it lives until it has answered.
    admin_client = admin(connection)
    try:
        find_brokers(admin_client, places[0].topic)
        requests = [ConsumerGroupTopicPartitions(group, places)]
        done = admin_client.alter_consumer_group_offsets(requests, request_timeout=TIMEOUT)[group].result()
        for place in done.topic_partitions:
            if place.error is not None:
                raise KafkaException(place.error)
    except KafkaException as error:
        _log.warning("the offsets of group %s could not be mirrored: %s", group, error.args[0].str())


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


def held_after(held: Progress, topics: Sequence[Topic], batch: Batch) -> Progress:
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
