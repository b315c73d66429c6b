"""From COMMIT at the source to readable by a `read_committed` consumer, at a steady rate of changes.

The writer notes when COMMIT returned, the consumer when a change came out of its client, on the one clock of the machine.
Each change counts. The consumer asks for records at once as they come (fetch.wait.max.ms only bounds an idle wait). The peer is
a plain transactional producer, which makes the same changes up and commits what is due, with nothing else on the machine: the
broker, the consumer and the clock are the same.
"""

import re
import statistics
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import psycopg2
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console

from infra.local.kafka import Kafka
from infra.local.postgres import Postgres
from tests.benchmarks import orders, writer
from tests.benchmarks.region import region
from tests.benchmarks.results import Result, compared
from tests.end_to_end.follower import Follower
from tests.rules.waiting import eventually

#: Transactions a second, and changes in each.
RATES = ((200, 5), (500, 20))
#: Not counted: connections, first schema record, and a broker that has only just started, whose JVM still compiles: over half a
#: minute its latency falls to the half.
_WARM_UP_SECONDS = 20
_NUMBER = re.compile(rb'"sku":"tx(\d+)"')


def measure(
    console: Console, folder: Path, postgres: Postgres, kafka: Kafka, rate: tuple[int, int], seconds: int
) -> list[Result]:
    """Return p50 and p99 at a rate, beside those of a plain producer."""
    transactions, changes = rate
    per_second = transactions * changes
    name = f"latency{per_second}"
    dsn = postgres.create_database(name)
    with closing(psycopg2.connect(dsn)) as connection:
        connection.autocommit = True
        orders.create(connection)
    way = region(folder, name, postgres, kafka)
    arrivals: list[tuple[int, float]] = []

    def arrived(value: bytes, moment: float, _partition: int) -> None:
        if match := _NUMBER.search(value):
            arrivals.append((int(match[1]), moment))

    follower = Follower(kafka.bootstrap, name, 1, each=arrived)
    try:
        way.bridge.start()
        way.edge.start()
        with console.status(f"writing {per_second:,} changes a second for {_WARM_UP_SECONDS} and {seconds} s"):
            returned = _write(dsn, transactions, changes, _WARM_UP_SECONDS + seconds)
        expected = len(returned) * changes
        eventually(lambda: len(arrivals) >= expected, 60, saying=f"all {expected} changes arrived")
    finally:
        follower.stop()
        for part in (way.edge, way.bridge):
            part.stop()
    with console.status("the same without a database"):
        bare = _percentiles(*_produce(kafka.bootstrap, f"{name}-bare", transactions, changes, seconds), transactions)
    title = f"commit to readable in Kafka at {per_second:,} changes/s"
    ours = _percentiles(arrivals, returned, transactions)
    return [
        compared(f"{title}, p{at}, beside a plain producer", mine, "ms", theirs)
        for at, mine, theirs in zip((50, 99), ours, bare, strict=True)
    ]


def _percentiles(arrivals: list[tuple[int, float]], made: list[float], rate: int) -> tuple[float, float]:
    """Return p50 and p99, in milliseconds, from a transaction's end to the arrival of each change, once all is warm."""
    counted = [(moment - made[number]) * 1000 for number, moment in arrivals if number >= _WARM_UP_SECONDS * rate]
    percentiles = statistics.quantiles(counted, n=100)
    return round(percentiles[49], 1), round(percentiles[98], 1)


def _produce(
    bootstrap: str, topic: str, rate: int, changes: int, seconds: int
) -> tuple[list[tuple[int, float]], list[float]]:
    """Return when changes arrived, by the numbers of their transactions, and when those were due."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    arrivals: list[tuple[int, float]] = []
    follower = Follower(bootstrap, topic, 1, each=lambda value, at, _partition: arrivals.append((int(value[:9]), at)))
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic, "linger.ms": 0, "log_level": 0})
    try:
        producer.init_transactions(30)
        began, total, written = time.monotonic(), rate * (_WARM_UP_SECONDS + seconds), 0
        while written < total:
            due = min(total, int((time.monotonic() - began) * rate) + 1)
            if due == written:
                time.sleep(max(0.0, began + written / rate - time.monotonic()))
                continue
            producer.begin_transaction()
            for number in range(written, due):
                for _ in range(changes):
                    producer.produce(topic, b"%09d%500d" % (number, number), partition=0)
            producer.commit_transaction(30)
            written = due
        eventually(lambda: len(arrivals) >= total * changes, 60, saying=f"all of {topic} arrived")
    finally:
        follower.stop()
    return arrivals, [began + number / rate for number in range(total)]


def _write(dsn: str, transactions: int, changes: int, seconds: int) -> list[float]:
    arguments = [dsn, transactions, changes, seconds]
    done = subprocess.run(
        [sys.executable, writer.__file__, *map(str, arguments)],
        check=True,
        capture_output=True,
        text=True,
        timeout=seconds + 60,
    )
    returned = [float(line.split()[1]) for line in done.stdout.splitlines()]
    took = returned[-1] - returned[0]
    if took > seconds * 1.05:
        raise AssertionError(f"the writer could not keep its pace: {seconds} s of it took {took:.1f} s")
    return returned
