"""What consumers of the bridge have in common: how they are read, and how they leave their group.

librdkafka can wait without end in `close`: the answer to the second of two changes of its assignment may be lost while it closes,
and the call holds Python's lock. So a consumer that takes part in a group has no assignment when it is closed.
"""

import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from bridge.kafka.client import KafkaError, KafkaException
from bridge.kafka.errors import error_of
from headrace.errors import Retryable

#: Seconds that leaving a group may take.
_LEAVE_SECONDS = 2.0
_TURN_SECONDS = 0.05
#: Seconds for an assignment that was on its way when the consumer unsubscribed.
_LAST_SECONDS = 0.2


def describe(client: Any, topic: str, seconds: float) -> Any:
    """Return what Kafka says of a topic; raise the client's error where it cannot be read, Retryable for another topic's."""
    metadata = client.list_topics(topic, timeout=seconds).topics.get(topic)
    if metadata is None:
        raise Retryable(f"Kafka answered about another topic than {topic}")
    if metadata.error is not None:
        raise KafkaException(metadata.error)
    return metadata


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
    # One that another client has fenced since it was polled last is in no group any more.
    with suppress(KafkaException):
        consumer.unsubscribe()
    until = time.monotonic() + _LEAVE_SECONDS
    while time.monotonic() < until and consumer.assignment():
        consumer.poll(_TURN_SECONDS)
    consumer.poll(_LAST_SECONDS)
