"""A writer of records that belong to no transaction: dead letters of deliveries, and answers to requests.

When Kafka's clients are made again: librdkafka reads certificates, keys and passwords once, when a client is made.

One object for a bridge watches the files and has all clients renewed, each by the thread that uses it, at a moment that suits it:
a lane between two transactions, the member of the group between two polls. A client that has found no broker for long is renewed
by its owner, whatever the reason. Made and called by the bridge.
"""

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

from bridge.kafka.client import KafkaError, KafkaException, record_producer
from bridge.kafka.errors import error_of
from headrace.certificates import files
from headrace.configuration.kafka import KafkaConnection
from headrace.errors import ConfigurationError, ReplicationError

_log = logging.getLogger(__name__)

#: How often the files are looked at, in seconds. They are as they were at two looks before they count: several are written one
#: after the other.
_LOOK_SECONDS = 2.0
#: A client that has not worked for so long, in seconds, is made again: its brokers may have other addresses, or its user another
#: password, which came from a command.
UNUSABLE_SECONDS = 45.0


class Renewal:
    """Watches the files of one connection."""

    def __init__(
        self,
        connection: KafkaConnection,
        renew: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connection = connection
        #: Has all clients made again, soon.
        self._renew = renew
        self._clock = clock
        self._used = self._seen = self._stamp()
        self._look_at = clock() + _LOOK_SECONDS

    def look(self) -> None:
        """Look whether the files have changed."""
        if self._clock() < self._look_at:
            return
        self._look_at = self._clock() + _LOOK_SECONDS
        before, self._seen = self._seen, self._stamp()
        if self._seen == before != self._used:
            self._used = self._seen
            try:
                files.examine(self._connection)
            except ConfigurationError as error:
                _log.warning("Kafka: the new files are not used: %s. %s", error.message, error.hint)
                return
            _log.info("Kafka: certificates or password have changed; connecting with the new ones")
            self._renew()

    def _stamp(self) -> object:
        secrets = (self._connection.password, self._connection.token)
        return files.stamp(self._connection), tuple(None if each is None else each.stamp for each in secrets)


class Usability:
    """Whether a client has worked lately, as its owner reports; for one thread."""

    def __init__(self) -> None:
        self._well_at = time.monotonic()
        self._is_stale = False

    def works(self) -> None:
        """Note that the client has worked."""
        self._well_at = time.monotonic()

    def renew(self) -> None:
        """Have the client made again; for any thread."""
        self._is_stale = True

    def is_over(self) -> bool:
        """Return, once, whether the client is to be made again."""
        if not self._is_stale and time.monotonic() - self._well_at < UNUSABLE_SECONDS:
            return False
        self._is_stale, self._well_at = False, time.monotonic()
        return True


#: How long what is on the way may take before another client is made, in seconds.
_LAST_SECONDS = 1.0
#: Called with the error, or None when Kafka has the record.
Report = Callable[[ReplicationError | None], None]


class RecordWriter:
    """Writes records to a topic; the report of each comes within `poll`. Used by one thread."""

    def __init__(self, connection: KafkaConnection, topic: str) -> None:
        self._topic = topic
        self._connection = connection
        self._usability = Usability()
        self._producer = record_producer(connection)

    def renew(self) -> None:
        """Have the client made again; for any thread."""
        self._usability.renew()

    def write(
        self,
        key: bytes | None,
        value: bytes | None,
        written: Report,
        headers: Sequence[tuple[str, bytes | None]] = (),
    ) -> None:
        """Write a record; `written` is called in a later `poll`, or with an error at once."""

        def report(error: Any, _record: Any) -> None:
            if error is None:
                self._usability.works()
            written(None if error is None else error_of(KafkaException(error), f"write to {self._topic}"))

        try:
            self._producer.produce(self._topic, value, key, headers=list(headers), on_delivery=report)
        except (KafkaException, BufferError) as error:
            problem = error if isinstance(error, KafkaException) else KafkaException(KafkaError(KafkaError._QUEUE_FULL))  # noqa: SLF001 - named so.
            written(error_of(problem, f"write to {self._topic}"))

    def poll(self, seconds: float = 0) -> None:
        """Take reports."""
        self._producer.poll(seconds)
        if not len(self._producer):
            # Nothing waits, so nothing shows whether it works.
            self._usability.works()
        if self._usability.is_over():
            self._renew()

    def _renew(self) -> None:
        """Go on with a new client; what was not written is reported with an error, and written again by its owner."""
        try:
            # Made first: without a password or a token there is no other client yet.
            fresh = record_producer(self._connection)
        except ReplicationError:
            return
        self._producer.flush(_LAST_SECONDS)
        self._producer.purge()
        self._producer.flush(_LAST_SECONDS)
        self._producer = fresh

    def flush(self, seconds: float) -> None:
        """Wait for reports."""
        self._producer.flush(seconds)
