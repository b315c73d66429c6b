"""A topic of requests or answers: requests are read from the oldest that may still wait, by every bridge for itself.

No group is used and nothing is committed: what is older than the longest deadline is of no more use. Used by the thread of
requests only; raises errors of headrace/errors.py.

The two topics as the command that asks uses them; implements `headrace.requests.asking.Topics`.
"""

import time
from collections.abc import Iterable, Iterator
from typing import Any

from bridge.kafka.client import PATIENCE, TIMESTAMP_NOT_AVAILABLE, TopicCollection, TopicPartition, request_consumer
from bridge.kafka.consuming import describe, events
from bridge.kafka.errors import translated
from bridge.kafka.writing import RecordWriter
from headrace.configuration import sections as tls
from headrace.configuration.kafka import KafkaConnection
from headrace.errors import NotConnected, ReplicationError, Retryable
from headrace.requests.message import LONGEST_SECONDS

#: Seconds between two checks whether a topic is still the one that is read: a reader is not notified when it is gone.
_LOOK_SECONDS = 5.0


class TopicReader:
    """Reads a topic from some time ago on, or from its end; each record's value is yielded as it is."""

    def __init__(
        self, connection: KafkaConnection, topic: str, *, admin: Any = None, seconds_ago: float = LONGEST_SECONDS
    ) -> None:
        """With an administration client a topic that was made again is recognized by its id, however long it has become since."""
        self._topic = topic
        self._admin = admin
        self._consumer = request_consumer(connection, f"{connection.prefix}.requests")
        try:
            with translated(f"read {topic}"):
                # First: what is read is of this topic, or of a newer one, which the next look shows.
                self._id = self._known_id()
                self._places = self._starts(seconds_ago)
                self._consumer.assign(self._places)
        except ReplicationError:
            self._consumer.close()
            raise
        self._ends: set[int] = set()
        self._look_at = time.monotonic() + _LOOK_SECONDS

    @property
    def has_caught_up(self) -> bool:
        """Whether the end of each partition was reached once."""
        return len(self._ends) == len(self._places)

    def read(self, most: int, seconds: float) -> Iterator[tuple[bytes, float | None]]:
        """Yield the values that come, waiting for the first at most `seconds`; raise what Kafka reports.

        With each goes when it was written, in seconds since 1970, or None where it may have been before this reader was made.
        """
        if time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + _LOOK_SECONDS
            self._look()
        for event, is_end in events(self._consumer, self._topic, most, seconds):
            if is_end:
                self._ends.add(event.partition())
            else:
                kind, milliseconds = event.timestamp()
                is_fresh = event.partition() in self._ends and kind != TIMESTAMP_NOT_AVAILABLE
                yield event.value() or b"", milliseconds / 1000 if is_fresh else None

    def close(self) -> None:
        """Read no more."""
        self._consumer.close()

    def _look(self) -> None:
        """Raise what Kafka reports of a topic that is gone, and Retryable for one that was made again."""
        with translated(f"read {self._topic}"):
            topic = describe(self._consumer, self._topic, PATIENCE)
            ends = [self._consumer.get_watermark_offsets(place, timeout=PATIENCE)[1] for place in self._places]
            is_beyond = any(
                place.offset > end for place, end in zip(self._consumer.position(self._places), ends, strict=True)
            )
            if is_beyond or len(topic.partitions) != len(self._places) or self._known_id() != self._id:
                raise Retryable(f"Kafka: the topic {self._topic} was made again, or has other partitions")

    def _known_id(self) -> str:
        """Return the id of the topic, which one that is made again does not have; empty without an administration client."""
        if self._admin is None:
            return ""
        with translated(f"read {self._topic}", self._admin):
            answers = self._admin.describe_topics(TopicCollection([self._topic]), request_timeout=PATIENCE)
            return str(answers[self._topic].result().topic_id)

    def _starts(self, seconds_ago: float) -> list[Any]:
        topic = describe(self._consumer, self._topic, PATIENCE)
        since = int((time.time() - seconds_ago) * 1000)
        asked = [TopicPartition(self._topic, number, since) for number in topic.partitions]
        places = self._consumer.offsets_for_times(asked, timeout=PATIENCE) if seconds_ago else asked
        for place in places:
            if place.offset < 0 or not seconds_ago:
                # Not "the end" whenever that is: what is written from now on is read.
                _, place.offset = self._consumer.get_watermark_offsets(place, timeout=PATIENCE)
        return list(places)


_MANY = 500


class AskingTopics:
    """The topics from the moment at which it is made."""

    def __init__(self, connection: KafkaConnection, topics: tls.Topics) -> None:
        self._answers = TopicReader(connection, topics.answers, seconds_ago=0)
        self._requests = RecordWriter(connection, topics.requests)

    def send(self, key: str, value: bytes, seconds: float) -> None:
        """Write a request durably."""
        reports: list[ReplicationError | None] = []
        self._requests.write(key.encode(), value, reports.append)
        if not reports:
            self._requests.flush(seconds)
        error = reports[0] if reports else NotConnected(f"Kafka did not take the request within {seconds:.0f} s")
        if error is not None:
            raise error

    def read(self, seconds: float) -> Iterable[bytes]:
        """Return the answers that come."""
        return (value for value, _ in self._answers.read(_MANY, seconds))

    def close(self) -> None:
        """Read no more."""
        self._answers.close()
