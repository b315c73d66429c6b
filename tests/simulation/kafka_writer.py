"""A producer without transactions as librdkafka's is: it sends by itself, again where an answer is lost, and reports what became
of each record.

It is idempotent: a record is written once, in order, however often it is sent, unless its producer gives it up in between.
"""

from typing import Any
from zlib import crc32

from confluent_kafka import KafkaError

from tests.simulation.kafka_admin import cluster
from tests.simulation.kafka_broker import Broker, Channel, failure
from tests.simulation.kafka_producer import Message, Producer

#: How long a record may take, in seconds, and the pause before what was lost is sent again.
_DELIVERY_SECONDS, _AGAIN_SECONDS = 30.0, 0.1


def producer(settings: Any, logger: Any = None, **more: Any) -> Any:
    """Return confluent_kafka.Producer by some settings: with transactions or without."""
    kind = Producer if "transactional.id" in settings else RecordProducer
    return kind(settings, logger, **more)


class _Sent:
    """A record on its way."""

    def __init__(self, at: tuple[str, int], key: Any, value: Any, headers: Any, report: Any, since: float) -> None:
        self.at, self.key, self.value, self.headers, self.report, self.since = at, key, value, headers, report, since
        #: Its offset, once it is written.
        self.offset: int | None = None


class RecordProducer:
    """confluent_kafka.Producer without transactions."""

    broker: Broker

    def __init__(self, settings: Any, logger: Any = None, **_: Any) -> None:
        self._channel = Channel(self.broker, "producer of records")
        self._scheduler = self.broker.scheduler
        self._queue: list[_Sent] = []
        self._reports: list[tuple[_Sent, Any]] = []
        self._is_sending = False

    def __len__(self) -> int:
        return len(self._queue) + len(self._reports)

    def produce(
        self, topic: str, value: Any = None, key: Any = None, headers: Any = None, on_delivery: Any = None
    ) -> None:
        """Put a record into the queue."""
        self._scheduler.check()
        logs = self.broker.topics.get(topic, [])
        at = topic, crc32(key or b"") % max(1, len(logs))
        self._queue.append(_Sent(at, key, value, headers, on_delivery, self._scheduler.now))
        self._send()

    def poll(self, timeout: float = 0) -> int:
        """Serve reports."""
        self._scheduler.point()
        reports, self._reports = self._reports, []
        for sent, error in reports:
            if sent.report is not None:
                sent.report(error, Message(*sent.at, sent.key, sent.value, sent.offset or 0))
        return len(reports)

    def flush(self, timeout: float = -1) -> int:
        """Wait for reports."""
        until = self._scheduler.now + (timeout if timeout >= 0 else 60.0)
        while self._queue and self._scheduler.now < until:
            self._scheduler.sleep(0.01)
        self.poll()
        return len(self)

    def purge(self, in_queue: bool = True, in_flight: bool = True, blocking: bool = True) -> None:
        """Give up what is not written."""
        self._give_up(self._queue, KafkaError(KafkaError._PURGE_QUEUE))
        self._queue = []

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        """Return what topics there are."""
        return self._channel.ask("Metadata", lambda: cluster(self.broker, topic), timeout)

    def _give_up(self, records: list[_Sent], error: Any) -> None:
        self._reports += [(each, error) for each in records]

    def _send(self) -> None:
        """Send what waits, one piece at a time."""
        process, now = self._channel.process, self._scheduler.now
        late = [each for each in self._queue if now - each.since > _DELIVERY_SECONDS]
        self._give_up(late, failure(KafkaError._MSG_TIMED_OUT, "timed out"))
        self._queue = [each for each in self._queue if each not in late]
        if self._is_sending or not self._queue or not process.alive:
            return
        self._is_sending = True
        records = list(self._queue)
        self._channel.send(
            "Produce", lambda: self._write(records), lambda refused: self._answered(records, refused), self._go_on
        )

    def _write(self, records: list[_Sent]) -> dict[_Sent, int]:
        """Write records at the broker; return what is refused."""
        refused = {}
        for each in records:
            log = self.broker.partition(each.at)
            if log is None:
                refused[each] = KafkaError.UNKNOWN_TOPIC_OR_PART
            elif not self.broker.has_leader(each.at):
                break
            elif each.offset is None:
                each.offset = log.write(each.key, each.value, each.headers, int(self._scheduler.wall() * 1000))
        return refused

    def _answered(self, records: list[_Sent], refused: dict[_Sent, int]) -> None:
        left = self._channel.process.paused_until - self._scheduler.now
        if left > 0:
            self._scheduler.after(left, lambda: self._answered(records, refused))
            return
        done = [each for each in records if each in self._queue and (each.offset is not None or each in refused)]
        self._queue = [each for each in self._queue if each not in done]
        self._reports += [(each, KafkaError(refused[each]) if each in refused else None) for each in done]
        self._go_on()

    def _go_on(self) -> None:
        self._is_sending = False
        if self._queue:
            self._scheduler.after(_AGAIN_SECONDS, self._send)
