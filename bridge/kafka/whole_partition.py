"""Reads all that is in a partition now, for commands that look for records in topics."""

from collections.abc import Iterator
from typing import Any

from bridge.kafka.client import PATIENCE, KafkaError, KafkaException, TopicPartition
from bridge.kafka.errors import translated
from headrace.errors import NotConnected

#: Records asked for at once, and how often in a row none may come.
_MANY, _TRIES = 5000, 100


def records(client: Any, topic: str, partition: int) -> Iterator[Any]:
    """Yield the records of a partition up to its present end; raise NotConnected, or NeedsOperator."""
    with translated(f"read {topic}"):
        low, high = client.get_watermark_offsets(TopicPartition(topic, partition), timeout=PATIENCE)
        client.assign([TopicPartition(topic, partition, low)])
        tries = 0
        while low < high and tries < _TRIES:
            found = client.consume(_MANY, timeout=0.1)
            tries = 0 if found else tries + 1
            for record in found:
                if record.error() is None:
                    yield record
                elif record.error().code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - named so.
                    return
                else:
                    raise KafkaException(record.error())
        if low < high:
            raise NotConnected(f"Kafka: the end of {topic}[{partition}] could not be read")
