"""What consumers of the bridge have in common: how they are read, a whole partition too, and how they leave their group.

librdkafka can wait without end in `close`: the answer to the second of two changes of its assignment may be lost while it closes,
and the call holds Python's lock. So a consumer that takes part in a group has no assignment when it is closed.
"""

import time
from collections.abc import Iterator
from typing import Any

from bridge.kafka.client import PATIENCE, KafkaError, KafkaException, TopicPartition
from bridge.kafka.errors import error_of, translated
from headrace.errors import NotConnected

#: Seconds that leaving a group may take.
_LEAVE_SECONDS = 2.0
_TURN_SECONDS = 0.05
#: Seconds for an assignment that was on its way when the consumer unsubscribed.
_LAST_SECONDS = 0.2
#: Of a whole partition: records asked for at once, and how often in a row none may come.
_MANY, _TRIES = 5000, 100


def events(consumer: Any, topic: str, most: int, seconds: float) -> Iterator[tuple[Any, bool]]:
    """Yield at most `most` events, and of each whether it is the end of its partition instead of a record.

    Waits for the first at most `seconds`; raises what Kafka reports (headrace/errors.py).
    """
    for number in range(most):
        event = consumer.poll(0 if number else seconds)
        if event is None:
            return
        error = event.error()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - named so.
            raise error_of(KafkaException(error), f"read {topic}")
        yield event, error is not None


def leave_group(consumer: Any) -> None:
    """Leave the group and wait until nothing is assigned; the consumer's callbacks run meanwhile."""
    consumer.unsubscribe()
    until = time.monotonic() + _LEAVE_SECONDS
    while time.monotonic() < until and consumer.assignment():
        consumer.poll(_TURN_SECONDS)
    consumer.poll(_LAST_SECONDS)


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
