"""`make bench-peers`: Headrace beside Debezium Server over the same WAL, on this machine, in one run.

Both read one backlog through slots made before it, by turns, and the middle run counts. A run begins when the processes are
started. The peer's ends when its last record is in Kafka, ours when all is committed in Kafka, acknowledged and
confirmed to the source. Cost is of all processes between source and Kafka: one for the peer, edge and bridge for us.
"""

import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import click
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console

from infra.local.kafka import Kafka
from infra.local.postgres import Postgres
from tests.benchmarks import debezium, drain, orders, results
from tests.benchmarks.results import Result, compared
from tests.benchmarks.usage import Usage, usage
from tests.end_to_end.supervised import Supervised
from tests.waiting import eventually

FILE = Path("build/bench-peers.json")
_POSTGRES = {"shared_buffers": "512MB", "max_wal_size": "8GB", "checkpoint_timeout": "1h"}


class Run(NamedTuple):
    """One drain of the backlog."""

    seconds: float
    cost: Usage


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--changes", type=click.IntRange(min=1000), default=400_000, show_default=True, help="Size of the backlog."
)
@click.option("--runs", type=click.IntRange(min=1), default=3, show_default=True, help="Drains of each, by turns.")
def bench(*, changes: int, runs: int) -> None:
    """Measure, print a table, and write build/bench-peers.json."""
    console = Console()
    debezium.fetch(console)
    debezium.java()
    folder = Path(tempfile.mkdtemp(prefix="headrace-bench-"))
    postgres, kafka = Postgres(folder / "postgres", settings=_POSTGRES), Kafka(folder / "kafka", heap_megabytes=1024)
    try:
        with console.status("starting PostgreSQL and Kafka"):
            postgres.start()
            kafka.start()
        found = _measure(console, folder, postgres, kafka, changes, runs)
    finally:
        kafka.kill()
        postgres.kill()
        postgres.delete()
        shutil.rmtree(folder, ignore_errors=True)
    results.write(found, FILE)
    results.show(console, found)
    console.print(f"Written to {FILE}")


def _measure(console: Console, folder: Path, postgres: Postgres, kafka: Kafka, changes: int, runs: int) -> list[Result]:
    backlog = drain.Backlog("peers", "WAL to Kafka", orders.create, orders.fill, changes, runs)
    with drain.prepared(folder, postgres, kafka, backlog) as (bridge, edges, connection):
        for run in range(runs):
            drain.ask(connection, "SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", f"debezium{run}")
        end = drain.written(console, connection, backlog)
        ours, theirs = [], []
        for run, edge in enumerate(edges):
            theirs.append(_peer(folder, postgres, kafka, backlog, run))
            console.print(f"{debezium.version()}, run {run + 1}: {changes / theirs[-1].seconds:,.0f} changes/s")
            ours.append(_headrace(connection, bridge, edge, f"{backlog.name}{run}", end))
            console.print(f"Headrace, run {run + 1}: {changes / ours[-1].seconds:,.0f} changes/s")
    million = changes / 1e6

    def middle(of: list[Run], figure: Any) -> float:
        return statistics.median(figure(run) for run in of)

    return [
        compared(name, middle(ours, figure), unit, middle(theirs, figure))
        for name, unit, figure in (
            ("WAL to Kafka", "changes/s", lambda run: changes / run.seconds),
            ("CPU", "s per million changes", lambda run: run.cost.cpu_seconds / million),
            ("most memory", "MB", lambda run: run.cost.peak_megabytes),
        )
    ]


def _headrace(connection: Any, bridge: Supervised, edge: Supervised, slot: str, end: str) -> Run:
    bridge.start()
    seconds = drain.drained(connection, edge, slot, end)
    parts = [usage(edge.pid), usage(bridge.pid)]
    for part in (edge, bridge):
        assert part.stop() == 0, part.tail()
    return Run(seconds, Usage(sum(part.cpu_seconds for part in parts), sum(part.peak_megabytes for part in parts)))


def _peer(folder: Path, postgres: Postgres, kafka: Kafka, backlog: drain.Backlog, run: int) -> Run:
    slot = f"debezium{run}"
    topic = f"{slot}.{orders.TABLE}"
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    server = debezium.server(
        folder,
        kafka,
        postgres,
        database=backlog.name,
        slot=slot,
        publication=f"{backlog.name}{run}",
        table=orders.TABLE,
    )
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": slot})

    def done() -> bool:
        _, records = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)
        assert server.restarts == 0, server.tail()
        return bool(records >= backlog.changes)

    began = time.monotonic()
    server.start()
    try:
        eventually(done, 900, every=0.05, saying=f"{debezium.version()} has written {backlog.changes:,} records")
        seconds = time.monotonic() - began
        cost = usage(server.pid)
        assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)[1] == backlog.changes
    finally:
        server.stop(60)
        consumer.close()
    return Run(seconds, cost)


if __name__ == "__main__":
    bench()
