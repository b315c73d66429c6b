"""What Kafka holds of topics and for how long it keeps it, read with the lake's own connection.

The one module of headrace that imports the Kafka client: only where a lake is shown or checked. Called by headroom.py.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec, ResourceType

from headrace.configuration.kafka import KafkaConnection
from headrace.errors import NeedsOperator, NotConnected, ReplicationError

#: Seconds that one request to the cluster may take, and in which the first records of all partitions are read.
_PATIENCE = 15.0
_REFUSED = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.SASL_AUTHENTICATION_FAILED,
}


class Place(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


@dataclass(frozen=True)
class Held:
    """What Kafka has of a partition."""

    #: Offset of the first record, and the one that the next committed record will have.
    start: int
    end: int
    #: Seconds for which a record is kept at least; None where age removes nothing.
    retention: float | None


class KafkaReader:
    """One cluster, by one client that is kept."""

    def __init__(self, connection: KafkaConnection) -> None:
        self._connection = connection
        self._admin = AdminClient({**connection.librdkafka(), "log_level": 0, "reconnect.backoff.ms": 500})

    def held(self, belongs: Callable[[str], bool]) -> dict[Place, Held]:
        """Return what Kafka has of some topics, chosen by their names; raise NotConnected or NeedsOperator."""
        try:
            listed = self._admin.list_topics(timeout=_PATIENCE).topics
            partitions = {name: list(one.partitions) for name, one in listed.items() if belongs(name)}
            places = [Place(name, number) for name, numbers in partitions.items() for number in numbers]
            if not places:
                return {}
            keeps = self._retention(list(partitions))
            starts, ends = (self._offsets(places, spec) for spec in (OffsetSpec.earliest(), OffsetSpec.latest()))
        except KafkaException as error:
            raise self._explained(error) from error
        return {place: Held(starts[place], ends[place], keeps[place.topic]) for place in places}

    def written_at(self, offsets: Mapping[Place, int]) -> dict[Place, float]:
        """Return when the first committed record at or after an offset of each partition was written, in seconds since 1970.

        A partition that has none, or whose record does not come in time, is absent.
        """
        found: dict[Place, float] = {}
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
            consumer.assign([TopicPartition(*place, offset) for place, offset in offsets.items()])
            until = time.monotonic() + _PATIENCE
            while waiting and (left := until - time.monotonic()) > 0:
                if (message := consumer.poll(left)) is None:
                    continue
                problem = message.error()
                if problem is not None and problem.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - named so.
                    continue
                place = Place(str(message.topic()), int(message.partition() or 0))
                if place in waiting:
                    waiting.remove(place)
                    consumer.incremental_unassign([TopicPartition(*place)])
                    if problem is None:
                        found[place] = message.timestamp()[1] / 1000
        except KafkaException as error:
            raise self._explained(error) from error
        finally:
            consumer.close()
        return found

    def _retention(self, names: list[str]) -> dict[str, float | None]:
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
        answers = self._admin.describe_configs(resources, request_timeout=_PATIENCE)
        return {str(resource.name): _seconds(answer.result()) for resource, answer in answers.items()}

    def _offsets(self, places: list[Place], spec: OffsetSpec) -> dict[Place, int]:
        answers = self._admin.list_offsets(
            dict.fromkeys((TopicPartition(*place) for place in places), spec),
            isolation_level=IsolationLevel.READ_COMMITTED,
            request_timeout=_PATIENCE,
        )
        return {Place(at.topic, at.partition): answer.result().offset for at, answer in answers.items()}

    def _explained(self, error: KafkaException) -> ReplicationError:
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


def _seconds(settings: Mapping[str, Any]) -> float | None:
    """Return for how long a topic keeps records at least; None where age removes nothing."""
    kept = int(settings["retention.ms"].value)
    return kept / 1000 if kept >= 0 and "delete" in str(settings["cleanup.policy"].value) else None
