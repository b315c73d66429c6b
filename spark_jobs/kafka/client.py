"""Kafka's topics, where they begin and end; and Kafka's client, with what its errors mean to the lake.

Guarantees that a topic's end is the last stable offset: every answer but `heads` is of committed records. The only module here
that imports the Kafka client; the records themselves are read by Spark. Called by topics.py, topics.py, and by what loads bronze.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka import TopicCollection as Topics
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec, ResourceType

from headrace.configuration.kafka import KafkaConnection
from headrace.errors import NeedsOperator, NotConnected, ReplicationError
from headrace.waiting import BoundedClient

__all__ = [
    "TIMEOUT",
    "ConsumerGroupTopicPartitions",
    "KafkaError",
    "KafkaException",
    "Place",
    "Topic",
    "TopicPartition",
    "admin",
    "answer_consumer",
    "consumer",
    "describe",
    "describe_all",
    "explained",
    "find_brokers",
    "find_compacted",
    "heads",
    "request_producer",
    "tables_of",
]

#: Seconds that one request to the cluster may take.
TIMEOUT = 30


class Place(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


@dataclass(frozen=True)
class Topic:
    """A topic as it is now."""

    name: str
    #: Kafka's own id of the topic: another one after it was deleted and created again.
    id: str
    #: First offset that each partition still holds.
    starts: dict[int, int]
    #: Offset that the next committed record of each partition will have.
    ends: dict[int, int]


def describe(
    connection: KafkaConnection, name: str, *, timeout: float = TIMEOUT, by: BoundedClient | None = None
) -> Topic:
    """Return the topic as it is now, by a client of its own or a given one; see `describe_all`."""
    return describe_all(connection, [name], timeout=timeout, by=by)[0]


def describe_all(
    connection: KafkaConnection, names: Sequence[str], *, timeout: float = TIMEOUT, by: BoundedClient | None = None
) -> list[Topic]:
    """Return topics as they are now; raise NotConnected, or NeedsOperator when there is one that is not.

    Kafka has `timeout` seconds for each of three answers.
    """
    client, name = admin(connection) if by is None else by, names[0]
    descriptions: dict[str, Any] = {}
    try:
        for name, described in client.describe_topics(Topics(list(names)), request_timeout=timeout).items():
            descriptions[name] = described.result()
        places = [
            Place(name, partition.id)
            for name, description in descriptions.items()
            for partition in description.partitions
        ]
        starts, ends = (
            _bounds(client, connection, places, spec, IsolationLevel.READ_COMMITTED, timeout=timeout)
            for spec in (OffsetSpec.earliest(), OffsetSpec.latest())
        )
    except KafkaException as error:
        client.poll(0)
        raise explained(error, connection.bootstrap, name) from error

    def of(name: str, bounds: Mapping[Place, int]) -> dict[int, int]:
        return {place.partition: offset for place, offset in bounds.items() if place.topic == name}

    return [
        Topic(name=name, id=str(descriptions[name].topic_id), starts=of(name, starts), ends=of(name, ends))
        for name in names
    ]


def heads(connection: KafkaConnection, own: str, belongs: Callable[[str], bool]) -> dict[Place, int]:
    """Return the offset that the next record gets in each partition of some topics, committed or not (the high watermark).

    `own` is a topic that is there.
    """
    client = admin(connection)
    try:
        find_brokers(client, own)
        topics = client.list_topics(timeout=TIMEOUT).topics
    except KafkaException as error:
        client.poll(0)
        raise explained(error, connection.bootstrap, own) from error
    places = [
        Place(name, partition) for name, topic in topics.items() if belongs(name) for partition in topic.partitions
    ]
    return _bounds(client, connection, places, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)


def _bounds(
    client: BoundedClient,
    connection: KafkaConnection,
    places: Sequence[Place],
    spec: OffsetSpec,
    isolation: IsolationLevel,
    *,
    timeout: float = TIMEOUT,
) -> dict[Place, int]:
    specs = dict.fromkeys((TopicPartition(*place) for place in places), spec)
    if not specs:
        return {}
    offsets: dict[Place, int] = {}
    for place, answer in client.list_offsets(specs, isolation_level=isolation, request_timeout=timeout).items():
        try:
            offsets[Place(place.topic, place.partition)] = answer.result().offset
        except KafkaException as error:
            client.poll(0)
            raise explained(error, connection.bootstrap, place.topic) from error
    return offsets


def tables_of(connection: KafkaConnection, name: str) -> list[str]:
    """Return the topics that look like those of a stream's tables, `NAME.schema.table`, of those that the lake may see."""
    client = admin(connection)
    try:
        find_brokers(client, name)
        names = client.list_topics(timeout=TIMEOUT).topics
    except KafkaException as error:
        raise explained(error, connection.bootstrap, name) from error
    return sorted(each for each in names if each.startswith(f"{name}.") and each.count(".") == name.count(".") + 2)


def find_compacted(connection: KafkaConnection, names: Sequence[str]) -> list[str]:
    """Return those of some topics that Kafka compacts; raise NeedsOperator where it does not return the setting."""
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
    if not resources:
        return []
    client, compacted_names = admin(connection), []
    for resource, answer in client.describe_configs(resources, request_timeout=TIMEOUT).items():
        try:
            if "compact" in str(answer.result()["cleanup.policy"].value):
                compacted_names.append(str(resource.name))
        except KafkaException as error:
            raise explained(error, connection.bootstrap, resource.name) from error
    return sorted(compacted_names)


def admin(connection: KafkaConnection) -> BoundedClient:
    """Return an administration client."""
    _refusals.clear()
    # The client would log every attempt to connect; its last word comes back as an exception.
    settings = {**connection.librdkafka(), "log_level": 0, "reconnect.backoff.ms": 500, "error_cb": _note}
    return BoundedClient(AdminClient(settings), lambda: KafkaException(KafkaError(KafkaError._TIMED_OUT)))  # noqa: SLF001


def find_brokers(client: BoundedClient, topic: str) -> None:
    """Have a new administration client find the cluster's brokers, by describing a topic; raise its own error.

    One that knows none yet takes a quarter of a second to list topics, or to find a group's coordinator.
    """
    client.describe_topics(Topics([topic]), request_timeout=TIMEOUT)[topic].result()


def consumer(connection: KafkaConnection, group: str) -> Consumer:
    """Return a consumer that does not read: it requests the offsets of its group."""
    _refusals.clear()
    return Consumer(
        {
            **connection.librdkafka(),
            "group.id": group,
            "enable.auto.commit": False,
            # Otherwise Kafka's answer waits for the transaction that a busy bridge always has open.
            "isolation.level": "read_uncommitted",
            "log_level": 0,
            "error_cb": _note,
        }
    )


def answer_consumer(connection: KafkaConnection) -> Consumer:
    """Return a consumer that is assigned the answers to requests, and takes part in no group."""
    _refusals.clear()
    return Consumer(
        {
            **connection.librdkafka(),
            "group.id": f"{connection.prefix}.requests",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "fetch.queue.backoff.ms": 5,
            "log_level": 0,
            "error_cb": _note,
        }
    )


def request_producer(connection: KafkaConnection) -> Producer:
    """Return a producer of requests, which waits for nothing more to send with one."""
    return Producer(
        {
            **connection.librdkafka(),
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": 0,
            "log_level": 0,
            "error_cb": _note,
        }
    )


#: What brokers, or this side, refused of the newest client: it comes here before the client's own last message, which lacks it.
_refusals: deque[str] = deque(maxlen=4)


def _note(error: KafkaError) -> None:
    if error.code() in {KafkaError._AUTHENTICATION, KafkaError._SSL}:  # noqa: SLF001 - named so.
        _refusals.append(error.str())


def explained(error: KafkaException, bootstrap: str, topic: str) -> ReplicationError:
    """Return our error for one of the client's: `topic` was requested."""
    reason: KafkaError = error.args[0]
    if reason.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.UNKNOWN_TOPIC_ID):
        return NeedsOperator(
            f"Kafka at {bootstrap} has no topic {topic!r}",
            hint="Create the bridge's topics with 'headrace bridge init', or correct the stream's 'topic' in the lake's file.",
        )
    if reason.code() in (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED):
        return NeedsOperator(
            f"Kafka at {bootstrap} does not let the lake describe topic {topic!r}",
            hint="Allow the lake's user to read the topic, and, where tables have topics of their own, to describe its settings "
            "(DescribeConfigs).",
        )
    if reason.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
        return NeedsOperator(
            f"Kafka at {bootstrap} does not let the lake read where a source of topic {topic!r} was committed",
            hint="Allow the lake's user to read the groups 'headrace.SOURCE' of the stream's sources.",
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
