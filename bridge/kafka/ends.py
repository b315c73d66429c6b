"""Where partitions begin and end: of all that are asked for in a few requests, each with its own error."""

from collections.abc import Collection, Mapping
from typing import Any

from bridge.kafka.client import PATIENCE, KafkaException, OffsetSpec, TopicPartition
from bridge.kafka.errors import error_of, translated
from bridge.model.ports import Partition
from headrace.errors import NeedsOperator, NotConnected, ReplicationError, Retryable

Bounds = Mapping[Partition, tuple[int, int] | ReplicationError]


def bounds(admin: Any, places: Collection[Partition]) -> Bounds:
    """Return the first offset of some partitions and the one after the last, or why it is not known.

    Raises NotConnected where nothing is known of any.
    """
    found: dict[Partition, tuple[int, int] | ReplicationError] = {**_unreadable(admin, places)}
    readable = [place for place in places if place not in found]
    if not readable:
        return found
    with translated("read the ends of topics", admin):
        asked = [
            admin.list_offsets({TopicPartition(*place): spec for place in readable}, request_timeout=PATIENCE)
            for spec in (OffsetSpec.earliest(), OffsetSpec.latest())
        ]
    low, high = ({(place.topic, place.partition): answer for place, answer in answers.items()} for answers in asked)
    for place in readable:
        try:
            with translated(f"read the ends of {place[0]}[{place[1]}]"):
                found[place] = low[place].result().offset, high[place].result().offset
        except (NotConnected, NeedsOperator, Retryable) as error:
            found[place] = error
    return found


def _unreadable(admin: Any, places: Collection[Partition]) -> dict[Partition, ReplicationError]:
    """Return those of some partitions that are not there, or have no leader: the ends of no other one are known with them."""
    topics = {topic for topic, _ in places}
    found: dict[Partition, ReplicationError] = {}
    if not topics:
        return found
    with translated("read the list of topics", admin):
        # One request, also where each table has a topic of its own.
        only = next(iter(topics)) if len(topics) == 1 else None
        there = admin.list_topics(only, timeout=PATIENCE).topics
    for place in places:
        topic, number = place
        if topic not in there:
            found[place] = NeedsOperator(
                f"topic {topic!r} is not in Kafka", hint="Run 'headrace bridge init' to make it."
            )
        elif there[topic].error is not None:
            found[place] = error_of(KafkaException(there[topic].error), f"read the ends of {topic}")
        elif number not in there[topic].partitions:
            found[place] = NeedsOperator(f"{topic} has no partition {number}", hint="Run 'headrace bridge init'.")
        elif there[topic].partitions[number].leader < 0:
            found[place] = NotConnected(
                f"Kafka: {topic}[{number}] has no leader", hint="Look at the brokers: 'headrace bridge doctor'."
            )
    return found
