"""The bridge's peer: a plain Kafka producer of the same records, without AMQP and without transactions. A process of its own.

Arguments: bootstrap, topic, records. It says `ready`, waits for a line, and tells the seconds until all is acknowledged and
the CPU seconds that took.
"""

import sys
import time

from confluent_kafka import Producer

from headrace.batch import CONTENT_ENCODING, decode
from tests.benchmarks.feeder import Feed, made, wait_for_start


def main(bootstrap: str, topic: str, records: int) -> None:
    """Produce."""
    feed = Feed(["amqp://127.0.0.1:1"], "bench/nobody")
    feed.sender.stop(5)
    batches = [decode(batch.properties, CONTENT_ENCODING, batch.body) for batch in made(feed, records)]
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "acks": "all",
            "compression.type": "lz4",
            "linger.ms": 5,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 0,
            "queue.buffering.max.kbytes": 1024 * 1024,
        }
    )
    wait_for_start()
    began, cpu = time.monotonic(), time.process_time()
    for batch in batches:
        for key, value in zip(batch.keys, batch.values, strict=True):
            producer.produce(topic, value, key, 0)
        producer.poll(0)
    producer.flush(120)
    print(time.monotonic() - began, time.process_time() - cpu, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
