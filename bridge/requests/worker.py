"""The thread of requests: reads them from Kafka, has them sent, writes the answers, and answers what expires.

What Kafka reports (topics that are missing, brokers that are unavailable, rights that are missing) is logged and tried again;
neither sources nor deliveries stop for it. Made, started and stopped by the bridge.
"""

import logging
import time
from collections import deque
from collections.abc import Callable, Container
from functools import partial

from bridge.kafka.writing import RecordWriter
from bridge.model.delivery import Accept, Outcome, Reject, Release
from bridge.requests.kafka import TopicReader
from bridge.requests.pending import PendingRequests
from headrace import doors
from headrace.configuration.kafka import KafkaConnection
from headrace.configuration.sections import Topics
from headrace.errors import CorruptInput, ReplicationError
from headrace.logs import RateLimitedLog
from headrace.requests.message import Part, decode_part, decode_request, encode

_log = logging.getLogger(__name__)

#: Records read before something else has its turn; seconds between looks at what waits, and before Kafka is tried again.
_MANY, _LOOK_SECONDS, _AGAIN_SECONDS = 200, 0.5, 3.0
#: How long a turn waits for requests while answers may come: a verification asks one request after the other.
_ASKED_SECONDS = 0.01
#: The pause of an edge whose answer cannot be written now, in seconds.
_RELEASE_SECONDS = 0.5


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
        self._is_stale = False
        #: Why requests are not carried at the moment, for the status; empty while they are.
        self.trouble = ""
        self._problem = RateLimitedLog(_log.warning)
        self._dropped = RateLimitedLog(_log.warning)

    def renew(self) -> None:
        """Have the clients made again; for any thread."""
        self._is_stale = True
        self._writer.renew()

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
        if self._is_stale:
            self._is_stale = False
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
            self._writer.write(source.encode(), body, partial(self._written, part, ticket))

    def _written(self, part: Part, ticket: int, error: ReplicationError | None) -> None:
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
