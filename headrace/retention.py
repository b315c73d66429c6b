"""How long Kafka keeps what the lake has not loaded: for the console, its metrics and `headrace lake check`.

A record that Kafka's retention removes before a load is lost to the lake, so this is the time that is left to repair loads.
Kafka removes a segment when its newest record is older than `retention.ms`: a record is kept for that long, or a little longer.
`retention.bytes`, which removes by size, is not considered. Reads topics with the lake's own connection; the one module of
headrace that imports Kafka's client.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec, ResourceType

from headrace.configuration.kafka import KafkaConnection
from headrace.errors import NeedsOperator, NotConnected, ReplicationError
from headrace.waiting import BoundedClient

#: Seconds that one request to the cluster may take, and in which the first records of all partitions are read.
_TIMEOUT = 15.0
_REFUSED = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.SASL_AUTHENTICATION_FAILED,
}


class Partition(NamedTuple):
    """A partition of a topic."""

    topic: str
    number: int


@dataclass(frozen=True)
class StoredRange:
    """The records that Kafka has of a partition."""

    #: Offset of the first record, and the one that the next committed record will have.
    start: int
    end: int
    #: Seconds for which a record is kept at least; None where age removes nothing.
    retention: float | None


@dataclass(frozen=True, kw_only=True)
class StreamRetention:
    """For how long Kafka keeps what a stream's bronze table lacks."""

    #: Seconds for which a record is kept, by the topic that keeps them least; None where age removes nothing.
    retention: float | None
    #: When the oldest record that bronze lacks may be removed, in seconds since 1970; None while bronze lacks nothing.
    removal_at: float | None

    def headroom(self, now: float) -> float | None:
        """Return the seconds until then: the whole retention while bronze lacks nothing, 0 when it may be too late."""
        if self.retention is None or self.removal_at is None:
            return self.retention
        return max(0.0, self.removal_at - now)


class RetentionReader:
    """Reads the retention of one stream's topics, with a client that streams may share; remembers when records were written."""

    def __init__(self, reader: "KafkaReader") -> None:
        self._reader = reader
        #: When the first record that bronze lacks was written, by partition and offset: read again only when the offset changes.
        self._times: dict[tuple[Partition, int], float] = {}

    def read(self, is_topic: Callable[[str], bool], loaded: Mapping[tuple[str, int], int]) -> StreamRetention | None:
        """Return for how long Kafka keeps what is not loaded, of topics chosen by their names; None where there are none.

        `loaded` has the offset of the first record that bronze lacks, by topic and partition. Raises NotConnected, NeedsOperator.
        """
        ranges = self._reader.read_ranges(is_topic)
        if not ranges:
            return None
        missing = find_first_missing(loaded, ranges)
        unread = {
            partition: offset
            for partition, offset in missing.items()
            if offset >= ranges[partition].start and (partition, offset) not in self._times
        }
        for partition, written_at in self._reader.read_times(unread).items() if unread else ():
            self._times[partition, unread[partition]] = written_at
        self._times = {place: written_at for place, written_at in self._times.items() if place in missing.items()}
        times = {partition: self._times.get((partition, offset)) for partition, offset in missing.items()}
        return compute_retention(ranges, missing, times)


def find_first_missing(
    loaded: Mapping[tuple[str, int], int], ranges: Mapping[Partition, StoredRange]
) -> dict[Partition, int]:
    """Return the offset of the first record that bronze lacks, of each partition that has one and where age removes records."""
    offsets = {partition: loaded.get(partition, 0) for partition in ranges}
    return {
        partition: offsets[partition]
        for partition, stored in ranges.items()
        if stored.retention is not None and offsets[partition] < stored.end
    }


def compute_retention(
    ranges: Mapping[Partition, StoredRange],
    missing: Mapping[Partition, int],
    times: Mapping[Partition, float | None],
) -> StreamRetention:
    """Return how long a stream is kept; `times`: when the first record that bronze lacks was written, where that is known."""
    removals = []
    for partition, offset in missing.items():
        stored, written_at = ranges[partition], times.get(partition)
        if offset < stored.start:
            # Removed already.
            removals.append(0.0)
        elif written_at is not None and stored.retention is not None:
            removals.append(written_at + stored.retention)
    retentions = [stored.retention for stored in ranges.values() if stored.retention is not None]
    return StreamRetention(retention=min(retentions, default=None), removal_at=min(removals, default=None))


class KafkaReader:
    """Reads the topics of one cluster, with one client."""

    def __init__(self, connection: KafkaConnection) -> None:
        self._connection = connection
        client = AdminClient({**connection.librdkafka(), "log_level": 0, "reconnect.backoff.ms": 500})
        self._admin = BoundedClient(client, lambda: KafkaException(KafkaError(KafkaError._TIMED_OUT)))  # noqa: SLF001

    def read_ranges(self, is_topic: Callable[[str], bool]) -> dict[Partition, StoredRange]:
        """Return what Kafka has of some topics, chosen by their names; raise NotConnected or NeedsOperator."""
        try:
            topics = self._admin.list_topics(timeout=_TIMEOUT).topics
            partitions = [
                Partition(name, number)
                for name, topic in topics.items()
                if is_topic(name)
                for number in topic.partitions
            ]
            if not partitions:
                return {}
            retentions = self._read_retentions(list(dict.fromkeys(partition.topic for partition in partitions)))
            starts, ends = (
                self._read_offsets(partitions, spec) for spec in (OffsetSpec.earliest(), OffsetSpec.latest())
            )
        except KafkaException as error:
            raise self._explain(error) from error
        return {
            partition: StoredRange(starts[partition], ends[partition], retentions[partition.topic])
            for partition in partitions
        }

    def read_times(self, offsets: Mapping[Partition, int]) -> dict[Partition, float]:
        """Return when the first committed record at or after an offset of each partition was written, in seconds since 1970.

        A partition that has none, or whose record does not come in time, is absent.
        """
        times: dict[Partition, float] = {}
        waiting = set(offsets)
        consumer = Consumer(
            {
                **self._connection.librdkafka(),
                "group.id": f"{self._connection.prefix}.console",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.partition.eof": True,
                # One record of each partition is enough.
                "queued.min.messages": 1,
                "fetch.message.max.bytes": 65_536,
                "log_level": 0,
            }
        )
        try:
            consumer.assign([TopicPartition(*partition, offset) for partition, offset in offsets.items()])
            until = time.monotonic() + _TIMEOUT
            while waiting and (left := until - time.monotonic()) > 0:
                if (message := consumer.poll(left)) is None:
                    continue
                problem = message.error()
                if problem is not None and problem.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - named so.
                    continue
                partition = Partition(str(message.topic()), int(message.partition() or 0))
                if partition in waiting:
                    waiting.remove(partition)
                    consumer.incremental_unassign([TopicPartition(*partition)])
                    if problem is None:
                        times[partition] = message.timestamp()[1] / 1000
        except KafkaException as error:
            raise self._explain(error) from error
        finally:
            consumer.close()
        return times

    def _read_retentions(self, topics: list[str]) -> dict[str, float | None]:
        resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
        answers = self._admin.describe_configs(resources, request_timeout=_TIMEOUT)
        return {str(resource.name): _retention_of(answer.result()) for resource, answer in answers.items()}

    def _read_offsets(self, partitions: list[Partition], spec: OffsetSpec) -> dict[Partition, int]:
        answers = self._admin.list_offsets(
            dict.fromkeys((TopicPartition(*partition) for partition in partitions), spec),
            isolation_level=IsolationLevel.READ_COMMITTED,
            request_timeout=_TIMEOUT,
        )
        return {Partition(key.topic, key.partition): answer.result().offset for key, answer in answers.items()}

    def _explain(self, error: KafkaException) -> ReplicationError:
        reason: KafkaError = error.args[0]
        bootstrap = self._connection.bootstrap
        if reason.code() in _REFUSED:
            return NeedsOperator(
                f"Kafka at {bootstrap} does not let the lake's user read how long topics keep records: {reason.str()}",
                hint="Allow it to read and to describe the stream's topics, and their settings (DescribeConfigs).",
            )
        return NotConnected(
            f"Kafka at {bootstrap} does not answer: {reason.str()}",
            hint="Check [kafka] in the lake's file, and that the cluster can be reached from this machine.",
        )


def _retention_of(settings: Mapping[str, Any]) -> float | None:
    """Return the seconds for which a topic keeps records at least; None where age removes nothing."""
    milliseconds = int(settings["retention.ms"].value)
    return milliseconds / 1000 if milliseconds >= 0 and "delete" in str(settings["cleanup.policy"].value) else None
