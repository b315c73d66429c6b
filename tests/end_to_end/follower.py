"""A `read_committed` consumer that goes along with the pipeline and says how far it has come.

It is for waiting and for timing. The judgement reads Kafka anew, so nothing depends on what this one saw.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable

from confluent_kafka import Consumer, TopicPartition


class Follower:
    """Counts the changes of each partition as they become readable."""

    def __init__(
        self, bootstrap: str, topic: str, partitions: int, *, each: Callable[[bytes, float, int], None] | None = None
    ) -> None:
        #: Changes seen so far by partition; schema records do not count.
        self.changes: Counter[int] = Counter()
        self._each = each
        self._stopping = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "follower",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "reconnect.backoff.max.ms": 500,
                # Who counts can wait for many at once; who times each wants it when it comes.
                **({"fetch.wait.max.ms": 20} if each else {"fetch.wait.max.ms": 200, "fetch.min.bytes": 1_000_000}),
                "log_level": 0,
            }
        )
        self._consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
        self._thread = threading.Thread(target=self._run, daemon=True, name="follower")
        self._thread.start()

    @property
    def total(self) -> int:
        """Changes seen so far."""
        return self.changes.total()

    def stop(self) -> None:
        """Follow no more."""
        self._stopping.set()
        self._thread.join(60)
        self._consumer.close()

    def _run(self) -> None:
        # A consumer that asks for many waits for them: who wants to know when each one came asks for one.
        many = 1 if self._each else 5000
        while not self._stopping.is_set():
            for message in self._consumer.consume(many, 0.05):
                arrived = time.monotonic()
                value = message.value()
                # A broker that is away is reported as a message with an error: nothing to count.
                if message.error() is not None or value is None or b'"tableChanges":' in value:
                    continue
                self.changes[message.partition()] += 1
                if self._each is not None:
                    self._each(value, arrived, message.partition() or 0)
