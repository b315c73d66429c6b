"""The two topics: requests are read from the oldest that may still wait, by every bridge for itself; answers are written.

No group is used and nothing is committed: what is older than the longest deadline is of no more use. Used by the thread of
requests only; raises errors of headrace/errors.py.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any

from bridge.kafka.client import (
    PATIENCE,
    KafkaError,
    KafkaException,
    TopicPartition,
    dead_letter_producer,
    request_consumer,
)
from bridge.kafka.errors import error_of, translated
from headrace.configuration.kafka import KafkaConnection
from headrace.errors import ReplicationError
from headrace.requests.message import LONGEST_SECONDS, Part, encode


class TopicReader:
    """Reads a topic from some time ago on, or from its end; each record's value is yielded as it is."""

    def __init__(self, connection: KafkaConnection, topic: str, *, seconds_ago: float = LONGEST_SECONDS) -> None:
        self._topic = topic
        self._consumer = request_consumer(connection, f"{connection.prefix}.requests")
        try:
            with translated(f"read {topic}"):
                self._places = self._starts(seconds_ago)
                self._consumer.assign(self._places)
        except ReplicationError:
            self._consumer.close()
            raise
        self._ends: set[int] = set()

    @property
    def has_caught_up(self) -> bool:
        """Whether the end of each partition was reached once."""
        return len(self._ends) == len(self._places)

    def read(self, most: int, seconds: float) -> Iterator[bytes]:
        """Yield the values that come, waiting for the first at most `seconds`; raise what Kafka reports."""
        for number in range(most):
            event = self._consumer.poll(0 if number else seconds)
            if event is None:
                return
            error = event.error()
            if error is None:
                yield event.value() or b""
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - named so.
                self._ends.add(event.partition())
            else:
                raise error_of(KafkaException(error), f"read {self._topic}")

    def close(self) -> None:
        """Read no more."""
        self._consumer.close()

    def _starts(self, seconds_ago: float) -> list[Any]:
        known = self._consumer.list_topics(self._topic, timeout=PATIENCE).topics[self._topic]
        if known.error is not None:
            raise KafkaException(known.error)
        since = int((time.time() - seconds_ago) * 1000)
        asked = [TopicPartition(self._topic, number, since) for number in known.partitions]
        found = self._consumer.offsets_for_times(asked, timeout=PATIENCE) if seconds_ago else asked
        for place in found:
            if place.offset < 0 or not seconds_ago:
                # Not "the end" whenever that is: what is written from now on is read.
                _, place.offset = self._consumer.get_watermark_offsets(place, timeout=PATIENCE)
        return list(found)


class RecordWriter:
    """Writes records to a topic; the report of each comes within `poll`."""

    def __init__(self, connection: KafkaConnection, topic: str) -> None:
        self._topic = topic
        self._producer = dead_letter_producer(connection)

    def write(self, key: str, value: bytes, written: Callable[[ReplicationError | None], None]) -> None:
        """Write a record; `written` is called in a later `poll` with the error, or None, or with an error at once."""

        def report(error: Any, _record: Any) -> None:
            written(None if error is None else error_of(KafkaException(error), f"write to {self._topic}"))

        try:
            self._producer.produce(self._topic, value, key.encode(), on_delivery=report)
        except (KafkaException, BufferError) as error:
            problem = error if isinstance(error, KafkaException) else KafkaException(KafkaError(KafkaError._QUEUE_FULL))  # noqa: SLF001
            written(error_of(problem, f"write to {self._topic}"))

    def write_part(self, part: Part, written: Callable[[ReplicationError | None], None]) -> None:
        """Write a part of an answer that the bridge itself gives."""
        self.write(part.source, encode(part), written)

    def poll(self, seconds: float = 0) -> None:
        """Take reports."""
        self._producer.poll(seconds)

    def flush(self, seconds: float) -> None:
        """Wait for reports."""
        self._producer.flush(seconds)
