"""The topics of requests to edges and of their answers, as the lake uses them; implements `headrace.requests.asking.Topics`."""

import time
from collections.abc import Iterable
from typing import Any

from headrace.configuration.kafka import KafkaConnection
from headrace.configuration.sections import Topics
from headrace.errors import NeedsOperator, NotConnected, ReplicationError
from spark_jobs.kafka.client import (
    PATIENCE,
    KafkaError,
    KafkaException,
    TopicPartition,
    answer_consumer,
    explained,
    request_producer,
)

_MANY = 500
_HINT = (
    "Add [requests] to the bridge's file, run 'headrace bridge init', which makes the topics, and start the bridge again; or "
    "name the topics in [requests] of the lake's file (docs/requests.md)."
)


class RequestTopics:
    """The topics from the moment at which it is made; used by one thread at a time."""

    def __init__(self, connection: KafkaConnection, topics: Topics) -> None:
        self._bootstrap, self._topics = connection.bootstrap, topics
        self._consumer = answer_consumer(connection)
        try:
            for topic in topics:
                self._check(topic)
            self._consumer.assign(self._ends())
        except BaseException:
            self._consumer.close()
            raise
        self._producer = request_producer(connection)

    def send(self, key: str, value: bytes, seconds: float) -> None:
        """Write a request durably; raise NotConnected or NeedsOperator."""
        reports: list[Any] = []
        try:
            self._producer.produce(
                self._topics.requests, value, key.encode(), on_delivery=lambda error, _record: reports.append(error)
            )
        except (KafkaException, BufferError) as error:
            raise NotConnected(f"Kafka at {self._bootstrap} takes no request: {error}") from error
        self._producer.flush(seconds)
        if not reports:
            raise NotConnected(f"Kafka at {self._bootstrap} did not take the request within {seconds:.0f} s")
        if reports[0] is not None:
            raise self._error(KafkaException(reports[0]), self._topics.requests)

    def read(self, seconds: float) -> Iterable[bytes]:
        """Return the answers that come, waiting for the first at most some seconds; raise NotConnected or NeedsOperator."""
        until = time.monotonic() + seconds
        for number in range(_MANY):
            event = self._consumer.poll(0 if number else max(0.0, until - time.monotonic()))
            if event is None:
                return
            if (error := event.error()) is not None:
                raise self._error(KafkaException(error), self._topics.answers)
            yield event.value() or b""

    def close(self) -> None:
        """Read no more."""
        self._consumer.close()

    def _check(self, topic: str) -> None:
        try:
            known = self._consumer.list_topics(topic, timeout=PATIENCE).topics[topic]
        except KafkaException as error:
            raise self._error(error, topic) from error
        if known.error is not None:
            raise self._error(KafkaException(known.error), topic)

    def _ends(self) -> list[Any]:
        topic = self._topics.answers
        try:
            numbers = self._consumer.list_topics(topic, timeout=PATIENCE).topics[topic].partitions
            places = [TopicPartition(topic, number) for number in numbers]
            for place in places:
                # Not "the end" whenever that is: what is written from now on is read.
                _, place.offset = self._consumer.get_watermark_offsets(place, timeout=PATIENCE)
        except KafkaException as error:
            raise self._error(error, topic) from error
        return places

    def _error(self, error: KafkaException, topic: str) -> ReplicationError:
        if error.args[0].code() in {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC}:  # noqa: SLF001 - named so.
            return NeedsOperator(f"Kafka at {self._bootstrap} has no topic {topic!r}, of requests to edges", hint=_HINT)
        if error.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            return NeedsOperator(
                f"Kafka at {self._bootstrap} does not let the lake use topic {topic!r}, of requests to edges",
                hint=f"Allow its user to write to {self._topics.requests!r} and to read {self._topics.answers!r}.",
            )
        return explained(error, self._bootstrap, topic)
