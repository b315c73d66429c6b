"""What tests of deliveries share: topics, records, bridges with a delivery, and what Kafka has of it."""

import json
from collections.abc import Iterable
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.amqp.branch import Branch
from tests.kafka.reading import read_committed


def produce(bootstrap: str, topic: str, records: Iterable[tuple[bytes | None, Any]], headers: Any = None) -> None:
    """Write records: (key, value), values as JSON unless they are bytes; the partition is the key's."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "message.max.bytes": 10_000_000})
    for key, value in records:
        producer.produce(topic, value if isinstance(value, bytes) else json.dumps(value).encode(), key, headers=headers)
    assert producer.flush(60) == 0


def section(topic: str, **settings: Any) -> str:
    """Return the file's section of a delivery to `alerts/{region}`."""
    given = {"topic": topic, "address": "alerts/{region}"} | settings
    lines = [f"{name} = {_toml(value)}\n" for name, value in given.items()]
    return "\n[deliveries.alerts]\n" + "".join(lines)


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(name)} = {json.dumps(each)}" for name, each in value.items()) + " }"
    return json.dumps(value)


def committed(bootstrap: str, group: str, topic: str) -> dict[int, int]:
    """Return the committed offset of each partition that has one."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0})
    try:
        partitions = consumer.list_topics(topic, timeout=60).topics[topic].partitions
        places = consumer.committed([TopicPartition(topic, number) for number in partitions], timeout=60)
        return {place.partition: place.offset for place in places if place.offset >= 0}
    finally:
        consumer.close()


def is_all_committed(bootstrap: str, group: str, topic: str) -> bool:
    """Return whether everything in the topic is committed for the group."""
    ends: dict[int, int] = {}
    for record in read_committed(bootstrap, topic):
        ends[record.partition] = record.offset + 1
    return all(committed(bootstrap, group, topic).get(partition) == end for partition, end in ends.items())


def letters(bootstrap: str, topic: str) -> list[dict[str, str]]:
    """Return headers, key and value of each dead letter."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "letters", "enable.partition.eof": True, "log_level": 0}
    )
    try:
        partitions = consumer.list_topics(topic, timeout=60).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        results, ended = [], 0
        while ended < len(partitions):
            record = consumer.poll(60)
            assert record is not None, "the dead letters cannot be read"
            if record.error():
                assert record.error().name() == "_PARTITION_EOF", record.error()
                ended += 1
                continue
            headers = {name: value.decode() for name, value in record.headers()}
            results.append(headers | {"key": record.key(), "value": record.value()})
        return results
    finally:
        consumer.close()


def delete_topic(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.delete_topics([topic])[topic].result(60)


def in_order(branch: Branch, keys: Iterable[str], count: int) -> bool:
    """Return whether the numbers 0 to `count` - 1 of each key were accepted, by their first copies in this order."""
    return all([json.loads(body) for body in branch.bodies(key)] == list(range(count)) for key in keys)
