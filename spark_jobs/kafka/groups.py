"""Offsets of consumer groups: what a bridge noted next to a source's, and the mirror of the lake's own for lag tools.

Called by topics.py, and by what loads bronze.
"""

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

from headrace.configuration.kafka import KafkaConnection
from headrace.errors import NotConnected
from spark_jobs.kafka.client import (
    PATIENCE,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Place,
    TopicPartition,
    admin,
    consumer,
    explained,
)

_COORDINATING = frozenset(
    {KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.COORDINATOR_LOAD_IN_PROGRESS}
)

_log = logging.getLogger(__name__)


def read_committed(connection: KafkaConnection, group: str, places: Sequence[Place]) -> dict[Place, str]:
    """Return the metadata of a consumer group's offsets by partition; of open transactions, the values before them.

    Raises NeedsOperator when the lake may not read the group, else NotConnected.
    """
    # Not the administration client: librdkafka 2.16 crashes when it requests a group whose coordinator is still loading.
    client = consumer(connection, group)
    try:
        return {
            Place(each.topic, each.partition): each.metadata or ""
            for each in _request_offsets(client, places)
            if each.offset >= 0
        }
    except KafkaException as error:
        ours = explained(error, connection.bootstrap, places[0].topic)
        if isinstance(ours, NotConnected):
            # A user who may not see the group gets no answer at all.
            ours.hint += f" If it does, allow the lake's user to read the group {group!r}."
        raise ours from error
    finally:
        client.close()


def _request_offsets(client: Any, places: Sequence[Place]) -> list[TopicPartition]:
    """Return a group's offsets; waits for a coordinator that is still being found, or loads what its groups hold."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            offsets: list[TopicPartition] = client.committed(
                [TopicPartition(*place) for place in places], timeout=PATIENCE
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
    client = admin(connection)
    try:
        requests = [ConsumerGroupTopicPartitions(group, places)]
        done = client.alter_consumer_group_offsets(requests, request_timeout=PATIENCE)[group].result()
        for place in done.topic_partitions:
            if place.error is not None:
                raise KafkaException(place.error)
    except KafkaException as error:
        _log.warning("the offsets of group %s could not be mirrored: %s", group, error.args[0].str())
