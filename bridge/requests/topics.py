"""The two topics as who asks uses them; implements `headrace.requests.asking.Topics`."""

from collections.abc import Iterable

from bridge.kafka.writing import RecordWriter
from bridge.requests.kafka import TopicReader
from headrace.configuration import sections as tls
from headrace.configuration.kafka import KafkaConnection
from headrace.errors import NotConnected, ReplicationError

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
        return self._answers.read(_MANY, seconds)

    def close(self) -> None:
        """Read no more."""
        self._answers.close()
