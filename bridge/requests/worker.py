"""The thread of requests: reads them from Kafka, has them sent, writes the answers, and answers what expires; and the two topics.

What Kafka reports (topics that are missing, brokers that are unavailable, rights that are missing) is logged and tried again;
neither sources nor deliveries stop for it. Made, started and stopped by the bridge.

Requests are read from the oldest that may still wait, by every bridge for itself: no group is used and nothing is committed,
since what is older than the longest deadline is of no more use. The command that asks uses the topics by `AskingTopics`, which
implements `headrace.requests.Topics`.
"""

import logging
import time
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator
from functools import partial
from typing import Any

from bridge.kafka.client import TIMEOUT, TIMESTAMP_NOT_AVAILABLE, TopicCollection, TopicPartition, request_consumer
from bridge.kafka.entries import describe, events
from bridge.kafka.errors import translated
from bridge.kafka.lifetime import Lifetime
from bridge.kafka.producer import RecordWriter
from bridge.model.delivery import Accept, Outcome, Reject, Release
from bridge.requests.pending import PendingRequests
from headrace import doors
from headrace.configuration import sections as tls
from headrace.configuration.kafka import KafkaConnection
from headrace.configuration.sections import Topics
from headrace.errors import CorruptInput, NotConnected, ReplicationError, Retryable
from headrace.logs import RateLimitedLog
from headrace.requests import LONGEST_SECONDS, Part, decode_part, decode_request, encode

_log = logging.getLogger(__name__)

#: Seconds between two checks whether a topic is still the one that is read: a reader is not notified when it is gone.
_TOPIC_LOOK_SECONDS = 5.0
#: Records read before something else has its turn; seconds between looks at what waits, and before Kafka is tried again.
_MANY, _LOOK_SECONDS, _AGAIN_SECONDS = 200, 0.5, 3.0
#: How long a turn waits for requests while answers may come: a verification asks one request after the other.
_ASKED_SECONDS = 0.01
#: The pause of an edge whose answer cannot be written now, in seconds.
_RELEASE_SECONDS = 0.5


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
        self._look_at = time.monotonic() + _TOPIC_LOOK_SECONDS

    @property
    def has_caught_up(self) -> bool:
        """Whether the end of each partition was reached once."""
        return len(self._ends) == len(self._places)

    def read(self, most: int, seconds: float) -> Iterator[tuple[bytes, float | None]]:
        """Yield the values that come, waiting for the first at most `seconds`; raise what Kafka reports.

        With each goes when it was written, in seconds since 1970, or None where it may have been before this reader was made.
        """
        if time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + _TOPIC_LOOK_SECONDS
            self._look()
        for event, is_end in events(self._consumer, self._topic, most, seconds, in_group=False):
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
            topic = describe(self._consumer, self._topic, TIMEOUT)
            ends = [self._consumer.get_watermark_offsets(place, timeout=TIMEOUT)[1] for place in self._places]
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
            answers = self._admin.describe_topics(TopicCollection([self._topic]), request_timeout=TIMEOUT)
            return str(answers[self._topic].result().topic_id)

    def _starts(self, seconds_ago: float) -> list[Any]:
        topic = describe(self._consumer, self._topic, TIMEOUT)
        since = int((time.time() - seconds_ago) * 1000)
        asked = [TopicPartition(self._topic, number, since) for number in topic.partitions]
        places = self._consumer.offsets_for_times(asked, timeout=TIMEOUT) if seconds_ago else asked
        for place in places:
            if place.offset < 0 or not seconds_ago:
                # Not "the end" whenever that is: what is written from now on is read.
                _, place.offset = self._consumer.get_watermark_offsets(place, timeout=TIMEOUT)
        return list(places)


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


class RequestWorker:
    """The requests of one bridge."""

    def __init__(
        self,
        connection: KafkaConnection,
        topics: Topics,
        sources: Container[str],
        serves: Callable[[str], bool],
        *,
        send: Callable[[list[str], list[str]], None],
        settle: Callable[[int, Outcome], None],
        open_reader: Callable[[KafkaConnection, str], TopicReader] = TopicReader,
        open_writer: Callable[[KafkaConnection, str], RecordWriter] = RecordWriter,
    ) -> None:
        self._connection, self._topics = connection, topics
        self._sources = sources
        #: Has requests sent to addresses, and answers of sources received; settles a part; both from any thread.
        self._send, self._settle = send, settle
        self._open_reader = open_reader
        self._writer = open_writer(connection, topics.answers)
        self._reader: TopicReader | None = None
        self.pending = PendingRequests(serves, self._own_answer)
        #: Parts that came, by source, with their tickets; and what the bridge itself answers.
        self._came: deque[tuple[str, int, bytes]] = deque()
        self._look_at = self._open_at = 0.0
        #: Whether an answer may come.
        self._is_asked = False
        self._lifetime = Lifetime(connection)
        #: Why requests are not carried at the moment, for the status; empty while they are.
        self.trouble = ""
        self._problem = RateLimitedLog(_log.warning)
        self._dropped = RateLimitedLog(_log.warning)

    def received(self, source: str, ticket: int, body: bytes) -> None:
        """Take a part in; from the receiver's thread."""
        self._came.append((source, ticket, body))

    def turn(self, seconds: float) -> None:
        """Do what is due; wait for requests at most `seconds`."""
        fresh = self._read(min(seconds, _ASKED_SECONDS) if self._is_asked else seconds)
        while self._came:
            self._part(*self._came.popleft())
        self.pending.expire()
        self._writer.poll()
        if fresh or time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + _LOOK_SECONDS
            self._is_asked = bool(self.pending.sources())
            if addresses := self.pending.addresses():
                self._send(addresses, self.pending.sources())

    def close(self, seconds: float) -> None:
        """Write what came, and end."""
        while self._came:
            self._part(*self._came.popleft())
        self._writer.flush(seconds)
        self._close_reader()

    def _close_reader(self) -> None:
        gone, self._reader = self._reader, None
        if gone is not None:
            gone.close()

    def _read(self, seconds: float) -> bool:
        """Read requests; return whether any came."""
        if self._lifetime.is_stale():
            self._close_reader()
        try:
            if self._reader is None:
                if time.monotonic() < self._open_at:
                    time.sleep(seconds)
                    return False
                self._reader = self._open_reader(self._connection, self._topics.requests)
            values = list(self._reader.read(_MANY, seconds))
        except ReplicationError as error:
            self._note(error)
            self.trouble = f"requests to edges wait: {error.message}"
            self._open_at = time.monotonic() + _AGAIN_SECONDS
            self._close_reader()
            return False
        self.trouble = ""
        for value, written in values:
            self._request(value, written)
        return bool(values)

    def _request(self, value: bytes, written: float | None) -> None:
        try:
            request = decode_request(value)
            # Others are of other bridges, which share the topic.
            if request.source in self._sources:
                self.pending.add(request, value, written)
        except Exception as error:  # noqa: BLE001 - whatever it raises, it is about this record alone.
            reason = doors.REQUEST.refuse(error, self._topics.requests).message
            self._dropped("a record of %s is passed over: %s", self._topics.requests, reason)

    def _part(self, source: str, ticket: int, body: bytes) -> None:
        try:
            part = decode_part(body)
        except Exception as caught:  # noqa: BLE001 - whatever it raises, it is about this answer alone.
            error = doors.ANSWER.refuse(caught, source)
            self._dropped("an answer of %s is rejected: %s", source, error.message)
            self._settle(ticket, Reject("amqp:decode-error", f"{error.message}. {error.hint}".strip()))
            return
        if part.source != source or part.by != "edge":
            doors.ANSWER.refuse(CorruptInput("another source's"), source)
            self._dropped("an answer of %s that names another source, or a bridge, is rejected", source)
            self._settle(ticket, Reject("amqp:unauthorized-access", f"this address is of the edge of {source}"))
            return
        why = self.pending.judge(source, part)
        if why and (self._reader is None or not self._reader.has_caught_up):
            # The request may be among those that are still to be read.
            self._settle(ticket, Release(_RELEASE_SECONDS))
        elif why:
            self._dropped("answer to request %s of %s, part %d, is dropped: %s", part.id, source, part.part, why)
            self._settle(ticket, Accept())
        else:
            self._writer.write(source.encode(), body, partial(self._note_written, part, ticket))

    def _note_written(self, part: Part, ticket: int, error: ReplicationError | None) -> None:
        if error is None:
            self.pending.wrote(part)
            self._settle(ticket, Accept())
        else:
            self._note(error)
            self._settle(ticket, Release(_RELEASE_SECONDS))

    def _own_answer(self, part: Part) -> None:
        _log.info("request %s to %s: answered for the edge: %s", part.id, part.source, part.outcome)
        self._writer.write(part.source.encode(), encode(part), self._noted)

    def _noted(self, error: ReplicationError | None) -> None:
        if error is not None:
            self._note(error)

    def _note(self, error: ReplicationError) -> None:
        self._problem("requests to edges: %s%s", error.message, error.hint and f". {error.hint}")
