"""A writer of records that belong to no transaction: dead letters of deliveries, and answers to requests."""

from collections.abc import Callable, Sequence
from typing import Any

from bridge.kafka.client import KafkaError, KafkaException, record_producer
from bridge.kafka.errors import error_of
from bridge.kafka.lifetime import Lifetime
from headrace.configuration.kafka import KafkaConnection
from headrace.errors import ReplicationError

#: How long what is on the way may take before another client is made, in seconds.
_LAST_SECONDS = 1.0
#: Called with the error, or None when Kafka has the record.
Report = Callable[[ReplicationError | None], None]


class RecordWriter:
    """Writes records to a topic; the report of each comes within `poll`. Used by one thread."""

    def __init__(self, connection: KafkaConnection, topic: str) -> None:
        self._topic = topic
        self._connection = connection
        self._lifetime = Lifetime(connection)
        self._producer = record_producer(connection)

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
                self._lifetime.works()
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
            self._lifetime.works()
        if self._lifetime.is_over():
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
