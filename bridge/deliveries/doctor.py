"""What `headrace bridge doctor` looks at of a delivery: its topics, its group's offsets, who may receive."""

from collections.abc import Iterator
from typing import Any

from bridge.kafka.client import PATIENCE, KafkaException, TopicPartition, consumer
from bridge.kafka.errors import translated
from headrace.configuration.bridge import BridgeFile
from headrace.configuration.delivery import topics
from headrace.findings import Finding


def deliveries(file: BridgeFile, name: str) -> Iterator[Finding]:
    """Yield what is found of one delivery; raise what keeps it from being looked at."""
    settings = file.deliveries[name]
    topic, dead_letters = topics(name, settings)
    client = consumer(file.kafka, file.delivery_group(name))
    try:
        with translated(f"look at topic {dead_letters} of delivery {name}"):
            _partitions(client, dead_letters)
        with translated(f"look at topic {topic} of delivery {name}"):
            partitions = _partitions(client, topic)
            committed = client.committed([TopicPartition(topic, number) for number in partitions], timeout=PATIENCE)
            ends = {place.partition: client.get_watermark_offsets(place, timeout=PATIENCE) for place in committed}
    finally:
        client.close()
    behind = sum(max(0, ends[place.partition][1] - max(place.offset, ends[place.partition][0])) for place in committed)
    removed = sum(max(0, ends[place.partition][0] - place.offset) for place in committed if place.offset >= 0)
    yield Finding(
        "delivery", "ok", f"{name}: {topic}, {len(partitions)} partitions, {behind} offsets not committed yet"
    )
    if removed:
        problem = f"{name}: Kafka removed up to {removed} records of {topic} before they were delivered"
        yield Finding("delivery", "warning", problem, f"Raise retention.ms of {topic}.")
    if file.interconnect.listen is not None and file.interconnect.certificate is not None and not settings.receivers:
        problem = f"{name}: no certificate may receive from {settings.address}"
        yield Finding("delivery", "warning", problem, f"Name those that may under [deliveries.{name}] receivers.")


def _partitions(client: Any, topic: str) -> list[int]:
    known = client.list_topics(topic, timeout=PATIENCE).topics[topic]
    if known.error is not None:
        raise KafkaException(known.error)
    return sorted(known.partitions)
