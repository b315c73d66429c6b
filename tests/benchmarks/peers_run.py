"""One drain of a backlog, ours or the peer's: seconds, and what all processes between source and Kafka cost."""

import time
from typing import NamedTuple, Self

from confluent_kafka import Consumer, TopicPartition

from infra.local.kafka import Kafka
from tests.benchmarks import debezium
from tests.benchmarks.usage import Usage, usage
from tests.end_to_end.supervised import Supervised
from tests.rules.waiting import eventually


class Run(NamedTuple):
    """One drain of the backlog."""

    seconds: float
    cost: Usage

    @classmethod
    def of(cls, seconds: float, *parts: Supervised) -> Self:
        """Return the run of parts that still run, and stop them."""
        costs = [usage(part.pid) for part in parts]
        for part in parts:
            assert part.stop() == 0, part.tail()
        return cls(seconds, Usage(sum(it.cpu_seconds for it in costs), sum(it.peak_megabytes for it in costs)))


def drained_by_peer(server: Supervised, kafka: Kafka, topic: str, records: int, *, again: int = 0) -> Run:
    """Start the peer, wait until its topic has so many records, and stop it; `again` is how many may be there twice, at most."""
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": topic})

    def written() -> int:
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)
        assert server.restarts == 0, server.tail()
        return int(end)

    began = time.monotonic()
    server.start()
    try:
        eventually(
            lambda: written() >= records,
            900,
            every=0.05,
            saying=f"{debezium.version()} has written {records:,} records",
        )
        seconds = time.monotonic() - began
        cost = usage(server.pid)
        assert records <= written() <= records + again
    finally:
        server.stop(60)
        consumer.close()
    return Run(seconds, cost)
