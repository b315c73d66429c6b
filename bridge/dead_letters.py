"""Dead letters: records in place of a change whose row was too large (docs/records.md), found in the topics.

They are in the source's own order, in the place of the change, so nothing is hidden and no chain is broken. What is left to do
is the edge's: raise the limit and copy the rows again (edge/snapshot/dead_letters.py). Reads whole topics; called by the command.
"""

from itertools import product
from typing import Any

from bridge.dead_letter_index import DeadLetterIndex
from bridge.kafka.client import PATIENCE, KafkaError, KafkaException, TopicPartition, admin
from bridge.kafka.entries import reading
from bridge.kafka.errors import translated
from bridge.kafka.topics import topics_of
from headrace.configuration.bridge import BridgeFile
from headrace.errors import NotConnected

#: Records asked for at once, and how often in a row none may come.
_MANY, _TRIES = 5000, 100


def dead_letters(file: BridgeFile, stream: str) -> list[dict[str, Any]]:
    """Return the contents of each dead letter of a stream, source by source, up to the present end.

    Raises ConfigurationError for a stream that the file has not, NotConnected, or NeedsOperator.
    """
    found = []
    topics = topics_of(file, stream, admin(file.kafka))
    for partitions in file.streams[stream].sources.values():
        index = DeadLetterIndex()
        with reading(file.kafka, file.group) as client:
            for topic, partition in product(topics, partitions):
                with translated(f"read {topic}"):
                    _read(client, topic, partition, index)
        found += index.found()
    return found


def _read(client: Any, topic: str, partition: int, index: DeadLetterIndex) -> None:
    low, high = client.get_watermark_offsets(TopicPartition(topic, partition), timeout=PATIENCE)
    client.assign([TopicPartition(topic, partition, low)])
    tries = 0
    while low < high and tries < _TRIES:
        records = client.consume(_MANY, timeout=0.1)
        tries = 0 if records else tries + 1
        for record in records:
            if record.error() is None:
                index.add(record.key(), record.value(), f"{topic}[{partition}]@{record.offset()}")
            elif record.error().code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - named so.
                return
            else:
                raise KafkaException(record.error())
    if low < high:
        raise NotConnected(f"Kafka: the end of {topic}[{partition}] could not be read")
