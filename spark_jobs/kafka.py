"""What the lake asks of Kafka: where a topic begins and ends, and the mirror of the lake's own offsets.

Guarantees that every answer is of committed records (the end is the last stable offset). The only module here that imports
the Kafka client; the records themselves are read by Spark. Called by the preflight and by bronze.
"""

import logging
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from confluent_kafka import ConsumerGroupTopicPartitions, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka import TopicCollection as Topics
from confluent_kafka.admin import AdminClient, OffsetSpec

from headrace.configuration.kafka import KafkaConnection
from headrace.errors import NeedsOperator, NotConnected, ReplicationError

#: Seconds that one question to the cluster may take.
_PATIENCE = 30

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Topic:
    """A topic as it stands now."""

    name: str
    #: Kafka's own id of the topic: another one after it was deleted and created again.
    id: str
    #: First offset that each partition still holds.
    starts: dict[int, int]
    #: Offset that the next committed record of each partition will have.
    ends: dict[int, int]


def describe(connection: KafkaConnection, name: str) -> Topic:
    """Return the topic as it stands; raise NotConnected, or NeedsOperator when there is no such topic."""
    client = _client(connection)
    _refusals.clear()
    try:
        found = client.describe_topics(Topics([name]), request_timeout=_PATIENCE)[name].result()
        partitions = [TopicPartition(name, partition.id) for partition in found.partitions]
        bounds = []
        for spec in (OffsetSpec.earliest(), OffsetSpec.latest()):
            answers = client.list_offsets(
                dict.fromkeys(partitions, spec),
                isolation_level=IsolationLevel.READ_COMMITTED,
                request_timeout=_PATIENCE,
            )
            bounds.append({place.partition: answer.result().offset for place, answer in answers.items()})
    except KafkaException as error:
        client.poll(0)
        raise _explain(error, connection.bootstrap, name) from error
    return Topic(name=name, id=str(found.topic_id), starts=bounds[0], ends=bounds[1])


def tables_of(connection: KafkaConnection, name: str) -> list[str]:
    """Return the topics that look like those of a stream's tables, `NAME.schema.table`, as far as the lake may see them."""
    try:
        found = _client(connection).list_topics(timeout=_PATIENCE).topics
    except KafkaException as error:
        raise _explain(error, connection.bootstrap, name) from error
    return sorted(each for each in found if each.startswith(f"{name}.") and each.count(".") == name.count(".") + 2)


def mirror(connection: KafkaConnection, group: str, topic: str, offsets: Mapping[int, int]) -> None:
    """Commit offsets for a consumer group, so that lag tools see the lake; only log when it cannot be done.

    Nothing is ever read from there: the lake resumes from its own table.
    """
    places = [TopicPartition(topic, partition, offset) for partition, offset in sorted(offsets.items())]
    if not places:
        return
    # Named, so that it lives until it has answered.
    client = _client(connection)
    try:
        wanted = [ConsumerGroupTopicPartitions(group, places)]
        done = client.alter_consumer_group_offsets(wanted, request_timeout=_PATIENCE)[group].result()
        for place in done.topic_partitions:
            if place.error is not None:
                raise KafkaException(place.error)
    except KafkaException as error:
        _log.warning("the offsets of group %s could not be mirrored: %s", group, error.args[0].str())


def _client(connection: KafkaConnection) -> AdminClient:
    # The client would log every attempt to connect; its last word comes back as an exception.
    return AdminClient({**connection.client(), "log_level": 0, "reconnect.backoff.ms": 500, "error_cb": _note})


#: What brokers, or this side, refused of late: it comes here before the client's own last word, which does not tell.
_refusals: deque[str] = deque(maxlen=4)


def _note(error: KafkaError) -> None:
    if error.code() in {KafkaError._AUTHENTICATION, KafkaError._SSL}:  # noqa: SLF001 - named so.
        _refusals.append(error.str())


def _explain(error: KafkaException, bootstrap: str, topic: str) -> ReplicationError:
    reason: KafkaError = error.args[0]
    if reason.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.UNKNOWN_TOPIC_ID):
        return NeedsOperator(
            f"Kafka at {bootstrap} has no topic {topic!r}",
            hint="Create the bridge's topics with 'headrace bridge init', or correct the stream's 'topic' in the lake's file.",
        )
    if reason.code() in (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED):
        return NeedsOperator(
            f"Kafka at {bootstrap} does not let the lake describe topic {topic!r}",
            hint="Allow the lake's user to describe and read the topic.",
        )
    if _refusals:
        return NeedsOperator(
            f"Kafka and the lake do not trust each other: {_refusals.pop()[:300]}",
            hint="Check [kafka] security_protocol, user, password, authority and the name in bootstrap in the lake's file.",
        )
    return NotConnected(
        f"Kafka at {bootstrap} does not answer: {reason.str()}",
        hint="Check [kafka] bootstrap in the lake's file, and that the cluster runs.",
    )
