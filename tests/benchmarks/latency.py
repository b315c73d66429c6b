"""From COMMIT at the source to readable by a `read_committed` consumer, at a steady rate of changes.

The writer notes when COMMIT returned, the consumer when a change came out of its client, on the one clock of the machine.
Each change counts. The consumer asks for records at once as they come (fetch.wait.max.ms only bounds an idle wait).
"""

import re
import statistics
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import psycopg2
from rich.console import Console

from infra.local.kafka import Kafka
from infra.local.postgres import Postgres
from tests.benchmarks import orders, writer
from tests.benchmarks.region import region
from tests.benchmarks.results import Result
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
    """Return p50 and p99 at a rate."""
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
    counted = [
        (moment - returned[number]) * 1000 for number, moment in arrivals if number >= _WARM_UP_SECONDS * transactions
    ]
    percentiles = statistics.quantiles(counted, n=100)
    title = f"commit to readable in Kafka at {per_second:,} changes/s"
    return [Result(f"{title}, p{at}", round(percentiles[at - 1], 1), "ms") for at in (50, 99)]


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
