"""The topics of requests to edges and of their answers, as the lake uses them; implements `headrace.requests.Topics`.

Whether Kafka still holds what the lake needs next, before anything is read.
"""

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.configuration.kafka import KafkaConnection
from headrace.configuration.sections import Topics
from headrace.errors import NeedsOperator, NotConnected, ReplicationError
from spark_jobs.kafka.client import (
    TIMEOUT,
    KafkaError,
    KafkaException,
    Topic,
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
            metadata = self._consumer.list_topics(topic, timeout=TIMEOUT).topics[topic]
        except KafkaException as error:
            raise self._error(error, topic) from error
        if metadata.error is not None:
            raise self._error(KafkaException(metadata.error), topic)

    def _ends(self) -> list[Any]:
        topic = self._topics.answers
        try:
            numbers = self._consumer.list_topics(topic, timeout=TIMEOUT).topics[topic].partitions
            places = [TopicPartition(topic, number) for number in numbers]
            for place in places:
                # Not "the end" whenever that is: what is written from now on is read.
                _, place.offset = self._consumer.get_watermark_offsets(place, timeout=TIMEOUT)
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


_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Gap:
    """Offsets that the lake needs and Kafka no longer holds: from `start` up to, not including, `end`."""

    partition: int
    start: int
    end: int

    def __str__(self) -> str:
        """Return the range as an operator reads it."""
        return f"partition {self.partition}: offsets {self.start} to {self.end - 1} ({self.end - self.start} of them)"


def gaps(needed: Mapping[int, int], topic: Topic) -> list[Gap]:
    """Return what retention took before the lake had it; a partition that is new to the lake is needed from 0."""
    return [
        Gap(partition, needed.get(partition, 0), start)
        for partition, start in sorted(topic.starts.items())
        if needed.get(partition, 0) < start
    ]


def check_one_topic(held: Collection[str], topic: Topic, tables: Callable[[], Sequence[str]]) -> None:
    """Raise NeedsOperator before a first load when tables have topics of their own: their rows are not in this one.

    Warns at later loads: the topics may be somebody else's, or new in the bridge's file.
    """
    if not (names := tables()):
        return
    some = ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
    if held:
        _log.warning(
            "Kafka has topics as of tables of topic %r, which are not loaded: %s. If the bridge writes them, set "
            "'topic_per_table = true' of the stream in the lake's file",
            topic.name,
            some,
        )
        return
    raise NeedsOperator(
        f"topic {topic.name!r} is of a stream with a topic for each table: {some}",
        hint="Set 'topic_per_table = true' for the stream in the lake's file. If those topics are somebody else's, the stream's "
        "own topic needs another name.",
    )


def check_compacted(compacted: Sequence[str]) -> None:
    """Raise NeedsOperator for tables' topics that Kafka compacts: what it drops there may be where a transaction ends."""
    if compacted:
        raise NeedsOperator(
            f"Kafka compacts {', '.join(compacted)}: changes are missing there, and with them where transactions end",
            hint='The lake loads topics that hold every change. Set "delete" for the table in the bridge\'s file and set the '
            "topic's cleanup.policy to it before anything is loaded; a compacted copy can be kept in a topic of its own.",
        )


def check_known(held: Collection[str], topics: Sequence[Topic], *, table: str) -> None:
    """Raise NeedsOperator when the table was loaded from a topic that the stream no longer has."""
    if gone := sorted(set(held) - {topic.name for topic in topics}):
        raise NeedsOperator(
            f"{table} was loaded from {', '.join(gone)}, which the stream no longer has",
            hint="Correct 'topic', 'topic_per_table' and 'prefix' of the stream in the lake's file, and let the lake's user read "
            "all of its topics. If the topic was deleted after all of it was loaded: 'headrace lake load STREAM --accept-gap'.",
        )


def check_identity(needed: Mapping[int, int], topic: Topic, *, topic_id: str | None, table: str) -> None:
    """Raise NeedsOperator when the topic is not the one that the table was loaded from."""
    beyond = {p: offset for p, offset in needed.items() if offset > topic.ends.get(p, 0)}
    if topic_id not in {None, topic.id} or beyond:
        ends = ", ".join(f"partition {p}: loaded up to {o}, ends at {topic.ends.get(p, 0)}" for p, o in beyond.items())
        raise NeedsOperator(
            f"topic {topic.name!r} is not the one that {table} was loaded from: it was deleted and created again"
            + (f" ({ends})" if ends else ""),
            hint="Its offsets begin at 0, so continuing would skip or mix records. Give the new topic a stream of its own in "
            f"the lake's file, or remove {table} if everything since the beginning is in the new topic.",
        )


def check_retention(needed: Mapping[int, int], topic: Topic, *, stream: str) -> None:
    """Raise NeedsOperator with the exact ranges that retention took before the lake had them."""
    if missing := gaps(needed, topic):
        raise NeedsOperator(
            f"topic {topic.name!r} no longer holds what stream {stream!r} needs next: " + "; ".join(map(str, missing)),
            hint="Retention was shorter than the time between two loads. Restore the topic from a replica if there is one. To "
            f"go on without those records, knowing that the lake then lacks them: 'headrace lake load {stream} --accept-gap'; "
            "then verify, and repair the tables that differ.",
        )
