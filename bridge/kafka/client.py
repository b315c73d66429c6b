"""Kafka's client: settings, and what its errors mean to us. The one module of the bridge that imports confluent_kafka.

Every function raises only our own errors. Called by the committer, by positions and by topics.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic, OffsetSpec, ResourceType

from bridge.kafka.ports import Fenced, OldGeneration
from headrace.configuration.kafka import KafkaConnection
from headrace.errors import NeedsOperator, NotConnected, ReplicationError, Retryable

__all__ = [
    "Consumer",
    "KafkaError",
    "KafkaException",
    "NewPartitions",
    "NewTopic",
    "OffsetSpec",
    "TopicPartition",
    "admin",
    "broker_resource",
    "consumer",
    "delivery_consumer",
    "error_of",
    "is_instance_fenced",
    "letter_producer",
    "member",
    "producer",
    "request_consumer",
    "topic_resource",
    "translated",
    "uncommitted_consumer",
]

#: Seconds that any one request to Kafka may take before it counts as unreachable.
PATIENCE = 10.0
#: After this long without an end Kafka itself aborts a transaction, in milliseconds: the longest that a bridge which
#: died and that nobody replaced can hold back `read_committed` readers.
TRANSACTION_TIMEOUT = 10_000
#: Between two signs of life of a bridge to its group, in milliseconds.
HEARTBEAT_MILLISECONDS = 300
#: About what a large transaction holds, in bytes before compression.
_LARGEST_REQUEST = 16_000_000

# librdkafka's own lines are for --verbose: what matters of them is said once, in our words.
_client_log = logging.getLogger("bridge.kafka.librdkafka")
_client_log.addFilter(lambda _record: logging.getLogger().isEnabledFor(logging.DEBUG))


_AWAY = "Trying again. If it lasts, too few brokers are up: 'headrace bridge doctor' names the partitions that cannot be written."
_UNREACHABLE = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001 - the client's own error codes are named so.
        KafkaError._TRANSPORT,  # noqa: SLF001
        KafkaError._TIMED_OUT,  # noqa: SLF001
        KafkaError._RESOLVE,  # noqa: SLF001
        KafkaError._WAIT_COORD,  # noqa: SLF001
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.REQUEST_TIMED_OUT,
    }
)

_FENCED = frozenset(
    {
        KafkaError._FENCED,  # noqa: SLF001
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.INVALID_PRODUCER_ID_MAPPING,
    }
)

_OLD_GENERATION = frozenset(
    {
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError.REBALANCE_IN_PROGRESS,
    }
)

#: What a cluster answers whose brokers are up in too small a number. A transaction whose end cannot be written is "concurrent"
#: with each that is tried after it.
_TOO_FEW = frozenset(
    {
        KafkaError.CONCURRENT_TRANSACTIONS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    }
)

_REFUSED = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "Allow the bridge's user to write to the topic.",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "Allow the bridge's user to read and write groups named 'headrace.*'.",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Allow the bridge's user transactional ids named 'headrace.*'.",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "Allow the bridge's user idempotent writes.",
    KafkaError.SASL_AUTHENTICATION_FAILED: "Check the bridge's user and password at Kafka.",
    KafkaError._AUTHENTICATION: "Check the bridge's user and password at Kafka.",  # noqa: SLF001
    KafkaError.UNKNOWN_TOPIC_OR_PART: "Run 'headrace bridge init'.",
    KafkaError._UNKNOWN_TOPIC: "Run 'headrace bridge init'.",  # noqa: SLF001
    KafkaError.MSG_SIZE_TOO_LARGE: "Raise max.message.bytes on the topic.",
    KafkaError._UNKNOWN_PARTITION: "Run 'headrace bridge init'.",  # noqa: SLF001
    KafkaError.INVALID_TRANSACTION_TIMEOUT: "Raise the broker's 'transaction.max.timeout.ms'.",
}


@contextmanager
def translated(doing: str, client: Any = None) -> Iterator[None]:
    """Turn the client's errors into ours: `doing` says what was tried, "commit jakarta/bank".

    With the administration client, brokers that cannot be reached because they and we do not trust each other are an operator's.
    """
    try:
        yield
    except KafkaException as error:
        ours = _ours(error.args[0], doing)
        distrust = _distrust(client) if client is not None and isinstance(ours, NotConnected) else ""
        if distrust:
            raise NeedsOperator(
                f"Kafka and this bridge do not trust each other: {distrust}",
                hint="Check [kafka] security_protocol, user, password, authority and the name in bootstrap.",
            ) from error
        raise ours from error


def error_of(error: Any, doing: str) -> ReplicationError:
    """Return the error of ours that one of the client's means."""
    return _ours(error.args[0], doing)


def is_instance_fenced(error: Any) -> bool:
    """Whether another process has joined a group with this one's instance name."""
    # As the fatal error of a client it has lost its code.
    return bool(error.code() == KafkaError.FENCED_INSTANCE_ID or "fenced by other consumer" in error.str())


def _distrust(client: Any) -> str:
    """Return what a broker, or we, refused in the last seconds; empty when nothing."""
    client.poll(0)
    since = time.monotonic() - 2 * PATIENCE
    return next((error.str()[:300] for at, error in reversed(client.refusals) if at > since), "")


def _ours(error: Any, doing: str) -> ReplicationError:
    code, text = error.code(), f"Kafka: cannot {doing}: {error.str()} ({error.name()})"
    if code in _FENCED:
        return Fenced(text)
    if code in _OLD_GENERATION:
        return OldGeneration(text)
    if code in _REFUSED:
        return NeedsOperator(text, hint=_REFUSED[code])
    hint = _AWAY if code in _TOO_FEW else ""
    if code in _UNREACHABLE:
        return NotConnected(text, hint=hint)
    return Retryable(text, hint=hint)


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
        # that may not be sent before the answer to those on the way, the client spins: with requests of 1 MB it takes three times
        # the CPU for a record, on a core that a broker beside it may want.
        "linger.ms": 5_000,
        # What Kafka answers while it still ends the transaction before: the default of 100 ms is longer than a transaction.
        "retry.backoff.ms": 5,
        "batch.size": min(_LARGEST_REQUEST, smallest - 512),
        "batch.num.messages": 100_000,
        # Each topic has its own limit, which is checked before (bridge/kafka/record_limits.py).
        "message.max.bytes": 1_000_000_000,
        "queue.buffering.max.messages": 0,
        "queue.buffering.max.kbytes": 1024 * 1024,
    }
    return Producer(settings, logger=_client_log)


def uncommitted_consumer(connection: KafkaConnection, group: str) -> Any:
    """Return a consumer that is told committed offsets also while an open transaction may change them."""
    settings = _common(connection) | {
        "group.id": group,
        "isolation.level": "read_uncommitted",
        "enable.auto.commit": False,
    }
    return Consumer(settings, logger=_client_log)


def consumer(connection: KafkaConnection, group: str) -> Any:
    """Return a `read_committed` consumer that never commits by itself and says where a partition ends."""
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
    return Consumer(settings, logger=_client_log)


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
    return Consumer(settings, logger=_client_log)


class Administrator:
    """An administration client that threads share, and that can be made anew.

    A client can stop finding its brokers: seen with librdkafka 2.16 after an overloaded cluster had fenced its only one for a
    moment. New clients were answered, and this one's every call ended in a timeout, for as long as anybody looked.
    """

    def __init__(self, connection: KafkaConnection) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._make()

    def __getattr__(self, name: str) -> Any:
        """Return what the present client has by this name."""
        return getattr(self._client, name)

    def renew(self) -> None:
        """Go on with a new client, unless this one is new."""
        with self._lock:
            if time.monotonic() - self._made_at >= PATIENCE:
                # Without a password or a token there is no other client yet.
                with suppress(ReplicationError):
                    self._make()

    def _make(self) -> None:
        refusals: deque[tuple[float, Any]] = deque(maxlen=4)

        def note(error: Any) -> None:
            if error.code() in {KafkaError._AUTHENTICATION, KafkaError._SSL}:  # noqa: SLF001 - named so.
                refusals.append((time.monotonic(), error))

        self._client = AdminClient(_common(self._connection) | {"error_cb": note}, logger=_client_log)
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


def _common(connection: KafkaConnection) -> dict[str, Any]:
    return {
        **connection.librdkafka(),
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
    """Return a consumer that reads a delivery's topic in a group, and commits when it is told to and never by itself.

    `on_commit` is called with the error, None where there is none, and the partitions of each commit that nobody waited for.
    """
    settings = _common(connection) | {
        "group.id": group,
        "isolation.level": "read_committed",
        "partition.assignment.strategy": "cooperative-sticky",
        "session.timeout.ms": int(session_seconds * 1000),
        "heartbeat.interval.ms": int(session_seconds * 1000 / 5),
        "on_commit": on_commit,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        # A new group begins where the topic does: nothing that was ever written is passed over.
        "auto.offset.reset": "earliest",
        "enable.partition.eof": True,
        # A topic that was deleted and made again, or has more partitions, is noticed so soon.
        "topic.metadata.refresh.interval.ms": 5_000,
        "queued.max.messages.kbytes": 4096,
        "fetch.queue.backoff.ms": 5,
        "fetch.wait.max.ms": 100,
    }
    return Consumer(settings, logger=_client_log)


def request_consumer(connection: KafkaConnection, group: str) -> Any:
    """Return a consumer that is assigned what it reads, and takes part in no group; idle, it asks the broker seldom."""
    settings = _common(connection) | {
        "group.id": group,
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "earliest",
        "enable.partition.eof": True,
        "topic.metadata.refresh.interval.ms": 5_000,
        "queued.max.messages.kbytes": 4096,
        "fetch.queue.backoff.ms": 5,
        "fetch.wait.max.ms": 500,
    }
    return Consumer(settings, logger=_client_log)


def letter_producer(connection: KafkaConnection) -> Any:
    """Return an idempotent producer of dead letters, which reports on each."""
    settings = _common(connection) | {
        "enable.idempotence": True,
        "acks": "all",
        "compression.type": "lz4",
        "linger.ms": 5,
        # The topic's limit decides.
        "message.max.bytes": 1_000_000_000,
        "delivery.timeout.ms": 30_000,
    }
    return Producer(settings, logger=_client_log)
