"""Dead letters: records in place of a change whose row was too large (docs/records.md), found in the topics.

They are in the source's own order, in the place of the change, so nothing is hidden and no chain is broken. What is left to do
is the edge's: raise the limit and copy the rows again (edge/snapshot/dead_letters.py). Reads whole topics; called by the command.
"""

from itertools import product
from typing import Any

from bridge.dead_letter_index import DeadLetterIndex
from bridge.kafka.client import admin
from bridge.kafka.consuming import records
from bridge.kafka.entries import reading
from bridge.kafka.topics import topics_of
from headrace.configuration.bridge import BridgeFile


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
                for record in records(client, topic, partition):
                    index.add(record.key(), record.value(), f"{topic}[{partition}]@{record.offset()}")
        found += index.found()
    return found
