"""`make bench-peers`: Headrace beside Debezium Server over the same log, on this machine, in one run.

Both read one backlog, from places that they had before it, by turns, and the middle run counts: a WAL of PostgreSQL here, a
binlog of MariaDB in peers_binlog.py. A run begins when the processes are
started. The peer's ends when its last record is in Kafka, ours when all is committed in Kafka, acknowledged and
confirmed to the source. Cost is of all processes between source and Kafka: one for the peer, edge and bridge for us.
"""

import shutil
import statistics
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console

from infra.local.kafka import Kafka
from infra.local.postgres import Postgres
from tests.benchmarks import debezium, drain, orders, peers_binlog, peers_engine, results
from tests.benchmarks.peers_run import Run, drained_by_peer
from tests.benchmarks.results import Result, compared
from tests.end_to_end.supervised import Supervised

FILE = Path("build/bench-peers.json")
_POSTGRES = {"shared_buffers": "512MB", "max_wal_size": "8GB", "checkpoint_timeout": "1h"}


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--changes", type=click.IntRange(min=1000), default=400_000, show_default=True, help="Size of the backlog."
)
@click.option("--runs", type=click.IntRange(min=1), default=3, show_default=True, help="Drains of each, by turns.")
@click.option(
    "--only", type=click.Choice(["postgresql", "mariadb", "engine"]), help="One alone; engine: ours by Debezium's."
)
def bench(*, changes: int, runs: int, only: str | None) -> None:
    """Measure, print a table, and write build/bench-peers.json."""
    console = Console()
    debezium.fetch(console)
    debezium.java()
    folder = Path(tempfile.mkdtemp(prefix="headrace-bench-"))
    kafka = Kafka(folder / "kafka", heap_megabytes=1024, lasting=True)
    found: list[Result] = []
    try:
        with console.status("starting Kafka"):
            kafka.start()
        if only != "mariadb":
            measure = _measure_engine if only == "engine" else _measure
            found += _of_postgres(console, folder, kafka, changes, runs, measure)
        if only not in {"postgresql", "engine"}:
            ours, theirs = peers_binlog.measure(console, folder, kafka, changes, runs)
            found += _compared("binlog", changes, ours, theirs)
    finally:
        kafka.kill()
        shutil.rmtree(folder, ignore_errors=True)
    results.write(found, FILE)
    results.show(console, found)
    console.print(f"Written to {FILE}")


def _of_postgres(
    console: Console, folder: Path, kafka: Kafka, changes: int, runs: int, measure: Callable[..., list[Result]]
) -> list[Result]:
    postgres = Postgres(folder / "postgres", settings=_POSTGRES)
    try:
        with console.status("starting PostgreSQL"):
            postgres.start()
        return measure(console, folder, postgres, kafka, changes, runs)
    finally:
        postgres.delete()


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
    return _compared("WAL", changes, ours, theirs)


def _measure_engine(
    console: Console, folder: Path, postgres: Postgres, kafka: Kafka, changes: int, runs: int
) -> list[Result]:
    backlog = drain.Backlog("engine", "WAL to Kafka by Debezium's engine", orders.create, orders.fill, changes, runs)
    edge_of = partial(peers_engine.edge, table=orders.TABLE)
    with drain.prepared(folder, postgres, kafka, backlog, edge_of) as (bridge, edges, connection):
        for run in range(runs):
            drain.ask(connection, "SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", f"debezium{run}")
        end = drain.written(console, connection, backlog)
        ours, theirs, own = [], [], []
        for run, edge in enumerate(edges):
            theirs.append(_peer(folder, postgres, kafka, backlog, run))
            console.print(f"{debezium.version()}, run {run + 1}: {changes / theirs[-1].seconds:,.0f} changes/s")
            drained, megabytes = peers_engine.drained(connection, bridge, edge, end)
            ours.append(drained)
            own.append(megabytes)
            console.print(
                f"Headrace by its engine, run {run + 1}: {changes / drained.seconds:,.0f} changes/s, edge {megabytes:.0f} MB"
            )
    return [
        *_compared("WAL by Debezium's engine", changes, ours, theirs),
        Result("WAL by Debezium's engine: the edge's own memory", max(own), "MB"),
    ]


def _compared(log: str, changes: int, ours: list[Run], theirs: list[Run]) -> list[Result]:
    million = changes / 1e6

    def middle(of: list[Run], figure: Any) -> float:
        return statistics.median(figure(run) for run in of)

    return [
        compared(f"{log}: {name}", middle(ours, figure), unit, middle(theirs, figure))
        for name, unit, figure in (
            ("to Kafka", "changes/s", lambda run: changes / run.seconds),
            ("CPU", "s per million changes", lambda run: run.cost.cpu_seconds / million),
            ("most memory", "MB", lambda run: run.cost.peak_megabytes),
        )
    ]


def _headrace(connection: Any, bridge: Supervised, edge: Supervised, slot: str, end: str) -> Run:
    bridge.start()
    seconds = drain.drained(connection, edge, slot, end)
    return Run.of(seconds, edge, bridge)


def _peer(folder: Path, postgres: Postgres, kafka: Kafka, backlog: drain.Backlog, run: int) -> Run:
    slot = f"debezium{run}"
    topic = f"{slot}.{orders.TABLE}"
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    source = debezium.of_postgres(
        postgres, database=backlog.name, slot=slot, publication=f"{backlog.name}{run}", table=orders.TABLE
    )
    return drained_by_peer(debezium.server(folder, kafka, slot, source), kafka, topic, backlog.changes)


if __name__ == "__main__":
    bench()
