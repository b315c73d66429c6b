"""Reading a topic as any consumer would: committed records only."""

from typing import NamedTuple

from confluent_kafka import Consumer, TopicPartition


class Record(NamedTuple):
    """A record as it stands in Kafka."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


def read_committed(bootstrap: str, topic: str) -> list[Record]:
    """Return all committed records of a topic, partition by partition, up to its present end."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
            "auto.offset.reset": "error",
        }
    )
    try:
        records = []
        for partition in sorted(consumer.list_topics(topic, timeout=20).topics[topic].partitions):
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=20)
            if low == high:
                continue
            consumer.assign([TopicPartition(topic, partition, low)])
            at_end = False
            while not at_end:
                for message in consumer.consume(10_000, timeout=0.05):
                    if message.error():
                        assert message.error().name() == "_PARTITION_EOF", message.error()
                        at_end = True
                    else:
                        records.append(Record(partition, message.offset(), message.key(), message.value()))
        return records
    finally:
        consumer.close()


def values(bootstrap: str, topic: str) -> list[bytes | None]:
    """Return the values of all committed records of a topic, partition by partition."""
    return [record.value for record in read_committed(bootstrap, topic)]
