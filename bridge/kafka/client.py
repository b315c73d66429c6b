"""Kafka's clients and their settings: all are made here. The one module of the bridge that imports confluent_kafka.

How long a client is of use is in bridge/kafka/lifetime.py, what its errors mean in bridge/kafka/errors.py.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from confluent_kafka import (
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic, OffsetSpec, ResourceType

from bridge.kafka.lifetime import Lifetime, cluster
from headrace.configuration.kafka import KafkaConnection
from headrace.errors import ConfigurationError, ReplicationError
from headrace.waiting import BoundedClient

__all__ = [
    "TIMESTAMP_NOT_AVAILABLE",
    "Consumer",
    "KafkaError",
    "KafkaException",
    "NewPartitions",
    "NewTopic",
    "OffsetSpec",
    "TopicCollection",
    "TopicPartition",
    "admin",
    "broker_resource",
    "consumer",
    "delivery_consumer",
    "member",
    "producer",
    "record_producer",
    "request_consumer",
    "topic_resource",
    "uncommitted_consumer",
]

#: Seconds that any one request to Kafka may take before it counts as unreachable.
TIMEOUT = 10.0
#: After this long without an end Kafka itself aborts a transaction, in milliseconds: the longest that a bridge which
#: died and that nobody replaced can hold back `read_committed` readers.
TRANSACTION_TIMEOUT = 10_000
#: Between two signs of life of a bridge to its group, in milliseconds.
HEARTBEAT_MILLISECONDS = 300
#: About what a large transaction holds, in bytes before compression.
_LARGEST_REQUEST = 16_000_000

# librdkafka's own lines are for --verbose: what matters of them is logged once, by us.
_client_log = logging.getLogger("bridge.kafka.librdkafka")
_client_log.addFilter(lambda _record: logging.getLogger().isEnabledFor(logging.DEBUG))


def producer(connection: KafkaConnection, transactional_id: str, smallest: int) -> Any:
    """Return a transactional producer that is not yet initialised; `smallest` is the least `max.message.bytes` of its topics.

    Nobody reads its delivery reports: any failure fails the commit. They are had all the same, as a flush without them looks only
    every 10 ms whether it is done. What may wait in its queue is bounded by the size of a transaction, not by the queue.
    """
    settings = _common(connection) | {
        "transactional.id": transactional_id,
        "transaction.timeout.ms": TRANSACTION_TIMEOUT,
        # No longer than that.
        "socket.timeout.ms": TRANSACTION_TIMEOUT - 1_000,
        "enable.idempotence": True,
        "acks": "all",
        # Measured on 500-byte records, CPU a record: lz4 1.4 us, none 1.9, zstd 2.0, snappy 1.7.
        "compression.type": "lz4",
        # All records of a transaction go in one request, or as few as the topics' limits allow, once it is flushed. Over records
        # that may not be sent before the answer to those in flight, the client spins: with requests of 1 MB it takes three times
        # the CPU for a record, on a core that a broker on the same machine may need.
        "linger.ms": 5_000,
        # What Kafka answers while it still ends the transaction before: the default of 100 ms is longer than a transaction.
        "retry.backoff.ms": 5,
        "batch.size": min(_LARGEST_REQUEST, smallest - 512),
        "batch.num.messages": 100_000,
        # Each topic has its own limit, which is checked before (bridge/kafka/topics.py).
        "message.max.bytes": 1_000_000_000,
        "queue.buffering.max.messages": 0,
        "queue.buffering.max.kbytes": 1024 * 1024,
    }
    return _client(Producer, settings)


def uncommitted_consumer(connection: KafkaConnection, group: str) -> Any:
    """Return a consumer that reads committed offsets also while an open transaction may change them."""
    settings = _common(connection) | {
        "group.id": group,
        "isolation.level": "read_uncommitted",
        "enable.auto.commit": False,
    }
    return _client(Consumer, settings)


def consumer(connection: KafkaConnection, group: str) -> Any:
    """Return a `read_committed` consumer that never commits by itself and reports where a partition ends."""
    settings = _common(connection) | {
        "group.id": group,
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "enable.partition.eof": True,
        # The default reads ahead up to 64 MB; and when it has, looks again only after a second.
        "queued.max.messages.kbytes": 8192,
        "fetch.queue.backoff.ms": 5,
        # What it reads is there: the broker, which holds back an empty answer for 500 ms by default, need not wait for more.
        "fetch.wait.max.ms": 10,
    }
    return _client(Consumer, settings)


def member(
    connection: KafkaConnection, group: str, instance: str, session_seconds: float, noted: Callable[[Any], None]
) -> Any:
    """Return a consumer that takes part in a group and moves as few partitions as it can; it is not there to read."""
    settings = _common(connection) | {
        "group.id": group,
        "group.instance.id": instance,
        "error_cb": noted,
        "partition.assignment.strategy": "cooperative-sticky",
        "session.timeout.ms": int(session_seconds * 1000),
        # By the answers to heartbeats members learn of a rebalance: a planned restart costs sources up to two of them.
        "heartbeat.interval.ms": HEARTBEAT_MILLISECONDS,
        "enable.auto.commit": False,
        "auto.offset.reset": "latest",
    }
    return _client(Consumer, settings)


class Administrator:
    """An administration client that threads share, and that can be replaced.

    A client can stop finding its brokers: seen with librdkafka 2.16 after an overloaded cluster had fenced its only one for a
    moment. New clients were answered, and this one's every call ended in a timeout, for as long as anybody looked.
    """

    def __init__(self, connection: KafkaConnection) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._lifetime = Lifetime(connection)
        self._make()

    def __getattr__(self, name: str) -> Any:
        """Return what the present client has by this name."""
        if self._lifetime.is_stale():
            self.renew(at_once=True)
        return getattr(self._client, name)

    def renew(self, *, at_once: bool = False) -> None:
        """Go on with a new client, unless this one is new, or `at_once`."""
        with self._lock:
            if at_once or time.monotonic() - self._made_at >= TIMEOUT:
                # Without a password or a token there is no other client yet.
                with suppress(ReplicationError):
                    self._make()

    def note_brokers(self, topic: str, seconds: float) -> None:
        """Note where the brokers are now, for clients that are made later; it is asked together with a topic.

        Asked for the cluster alone, librdkafka 2.16 ends the process where the answer names no broker, as after the only one was
        fenced for a moment (`rd_kafka_admin_response_parse: Assertion 'rko_result' failed`).
        """
        answer = self.list_topics(topic, timeout=seconds)
        hosts = ((f"[{each.host}]" if ":" in each.host else each.host, each.port) for each in answer.brokers.values())
        cluster(self._connection.bootstrap).note(answer.cluster_id or "", [f"{host}:{port}" for host, port in hosts])

    def _make(self) -> None:
        refusals: deque[tuple[float, Any]] = deque(maxlen=4)

        def note(error: Any) -> None:
            if error.code() in {KafkaError._AUTHENTICATION, KafkaError._SSL}:  # noqa: SLF001 - named so.
                refusals.append((time.monotonic(), error))

        client = _client(AdminClient, _common(self._connection) | {"error_cb": note})
        self._client = BoundedClient(client, lambda: KafkaException(KafkaError(KafkaError._TIMED_OUT)))  # noqa: SLF001
        self.refusals, self._made_at = refusals, time.monotonic()


def admin(connection: KafkaConnection) -> Administrator:
    """Return an administration client, which threads may share."""
    return Administrator(connection)


def topic_resource(topic: str) -> Any:
    """Return the name under which a topic's configuration is asked for."""
    return ConfigResource(ResourceType.TOPIC, topic)


def broker_resource(broker: int) -> Any:
    """Return the name under which a broker's configuration is asked for."""
    return ConfigResource(ResourceType.BROKER, str(broker))


def _client(kind: Any, settings: dict[str, Any]) -> Any:
    """Return a client; raise ConfigurationError where it cannot be made of what the files hold now."""
    try:
        return kind(settings, logger=_client_log)
    except KafkaException as error:
        raise ConfigurationError(
            f"Kafka's client cannot be made: {error.args[0].str()}",
            hint="Check [kafka] authority, certificate and key.",
        ) from error


def _common(connection: KafkaConnection) -> dict[str, Any]:
    return {
        **connection.librdkafka(),
        "bootstrap.servers": cluster(connection.bootstrap).bootstrap,
        "client.id": "headrace-bridge",
        "socket.keepalive.enable": True,
        "socket.timeout.ms": 15_000,
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 1_000,
        "topic.metadata.refresh.interval.ms": 30_000,
        "allow.auto.create.topics": False,
    }


def delivery_consumer(
    connection: KafkaConnection, group: str, session_seconds: float, on_commit: Callable[[Any, Any], None]
) -> Any:
    """Return a consumer that reads a delivery's topic in a group, and commits on request alone.

    `on_commit` is called with the error, None where there is none, and the partitions of each commit that nobody waited for.
    """
    settings = _reading(connection, group) | {
        "partition.assignment.strategy": "cooperative-sticky",
        "session.timeout.ms": int(session_seconds * 1000),
        "heartbeat.interval.ms": int(session_seconds * 1000 / 5),
        "on_commit": on_commit,
        "fetch.wait.max.ms": 100,
    }
    return _client(Consumer, settings)


def request_consumer(connection: KafkaConnection, group: str) -> Any:
    """Return a consumer that is assigned what it reads, and takes part in no group; idle, it asks the broker seldom."""
    return _client(Consumer, _reading(connection, group) | {"fetch.wait.max.ms": 500})


def _reading(connection: KafkaConnection, group: str) -> dict[str, Any]:
    return _common(connection) | {
        "group.id": group,
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        # A new group begins where the topic does: nothing that was ever written is passed over.
        "auto.offset.reset": "earliest",
        "enable.partition.eof": True,
        # A topic that was deleted and made again, or has more partitions, is noticed so soon.
        "topic.metadata.refresh.interval.ms": 5_000,
        "queued.max.messages.kbytes": 4096,
        "fetch.queue.backoff.ms": 5,
    }


def record_producer(connection: KafkaConnection) -> Any:
    """Return an idempotent producer without transactions, which reports on each record."""
    settings = _common(connection) | {
        "enable.idempotence": True,
        "acks": "all",
        "compression.type": "lz4",
        "linger.ms": 5,
        # The topic's limit decides.
        "message.max.bytes": 1_000_000_000,
        "delivery.timeout.ms": 30_000,
    }
    return _client(Producer, settings)
