"""From COMMIT at the source to readable by a `read_committed` consumer, at a steady thousand changes a second.

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

from infra.local import files
from infra.local.kafka import Kafka
from infra.local.ports import free_port
from infra.local.postgres import Postgres
from tests.benchmarks import orders, writer
from tests.benchmarks.results import Result
from tests.end_to_end.follower import Follower
from tests.end_to_end.pipeline import command, headrace
from tests.end_to_end.supervised import Supervised
from tests.waiting import eventually

TRANSACTIONS_A_SECOND, CHANGES_A_TRANSACTION = 200, 5
#: Not counted: connections, first schema record, caches.
_WARM_UP_SECONDS = 2
_DATABASE = "latency"
_NUMBER = re.compile(rb'"sku":"tx(\d+)"')


def measure(console: Console, folder: Path, postgres: Postgres, kafka: Kafka, seconds: int) -> list[Result]:
    """Return p50 and p99."""
    dsn = postgres.create_database(_DATABASE)
    port = free_port()
    bridge_file = files.bridge(
        folder / "bridge-latency.toml",
        bootstrap=kafka.bootstrap,
        listen=f"127.0.0.1:{port}",
        sources=["bench/latency"],
        stream="latency",
    )
    edge_file = files.edge(
        folder / "edge-latency.toml",
        source="bench/latency",
        postgres=postgres,
        database=_DATABASE,
        interconnect=f"amqp://127.0.0.1:{port}",
        names="latency",
    )
    with closing(psycopg2.connect(dsn)) as connection:
        connection.autocommit = True
        orders.create(connection)
    headrace("bridge", "init", "--config", str(bridge_file))
    headrace("edge", "init", "--config", str(edge_file))
    parts = [
        Supervised(part, command(part, "run", "--config", str(path)), log=folder / f"{part}-latency.log")
        for part, path in (("bridge", bridge_file), ("edge", edge_file))
    ]
    arrivals: list[tuple[int, float]] = []

    def arrived(value: bytes, moment: float) -> None:
        if found := _NUMBER.search(value):
            arrivals.append((int(found[1]), moment))

    follower = Follower(kafka.bootstrap, "latency", 1, each=arrived)
    try:
        for part in parts:
            part.start()
        with console.status(
            f"writing {TRANSACTIONS_A_SECOND * CHANGES_A_TRANSACTION:,} changes a second for {seconds} s"
        ):
            returned = _write(dsn, seconds)
        expected = len(returned) * CHANGES_A_TRANSACTION
        eventually(lambda: len(arrivals) >= expected, 60, saying=f"all {expected} changes arrived")
    finally:
        follower.stop()
        for part in reversed(parts):
            part.stop()
    counted = [
        (moment - returned[number]) * 1000
        for number, moment in arrivals
        if number >= _WARM_UP_SECONDS * TRANSACTIONS_A_SECOND
    ]
    percentiles = statistics.quantiles(counted, n=100)
    name = "commit to readable in Kafka at 1,000 changes/s"
    return [Result(f"{name}, p{at}", round(percentiles[at - 1], 1), "ms") for at in (50, 99)]


def _write(dsn: str, seconds: int) -> list[float]:
    arguments = [dsn, TRANSACTIONS_A_SECOND, CHANGES_A_TRANSACTION, seconds]
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
