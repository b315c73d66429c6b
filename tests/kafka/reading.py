"""Reading a topic as any consumer would: committed records only."""

from typing import NamedTuple

from confluent_kafka import Consumer, IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.rules.waiting import eventually


class Record(NamedTuple):
    """A record as it is in Kafka."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes]] | None = None


def read_committed(bootstrap: str, topic: str) -> list[Record]:
    """Return all committed records of a topic, partition by partition, up to its present end.

    A commit returns before its marker is written, and readers see nothing until then: transactions that are open now are waited
    for. Kafka itself ends those of a bridge that died.
    """
    places = ends(bootstrap, topic)
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
            "auto.offset.reset": "error",
            "log_level": 0,
        }
    )
    try:
        records = []
        for place, end in places.items():

            def decided(place: TopicPartition = place, end: int = end) -> tuple[int, int] | None:
                # By what this consumer may read.
                low, high = consumer.get_watermark_offsets(place, timeout=60)
                return (low, high) if high >= end else None

            low, high = eventually(decided, saying=f"no transaction is open in {topic}")
            if low == high:
                continue
            partition = place.partition
            consumer.assign([TopicPartition(topic, partition, low)])
            at_end = False
            while not at_end:
                for message in consumer.consume(10_000, timeout=0.05):
                    if message.error():
                        assert message.error().name() == "_PARTITION_EOF", message.error()
                        at_end = True
                    else:
                        records.append(
                            Record(partition, message.offset(), message.key(), message.value(), message.headers())
                        )
        return records
    finally:
        consumer.close()


def ends(bootstrap: str, topic: str) -> dict[TopicPartition, int]:
    """Return where each partition ends, what is not committed yet included."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    partitions = sorted(admin.list_topics(topic, timeout=60).topics[topic].partitions)
    asked = admin.list_offsets(
        {TopicPartition(topic, partition): OffsetSpec.latest() for partition in partitions},
        isolation_level=IsolationLevel.READ_UNCOMMITTED,
        request_timeout=60,
    )
    return {place: answer.result().offset for place, answer in asked.items()}


def values(bootstrap: str, topic: str) -> list[bytes | None]:
    """Return the values of all committed records of a topic, partition by partition."""
    return [record.value for record in read_committed(bootstrap, topic)]
