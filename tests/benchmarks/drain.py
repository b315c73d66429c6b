"""WAL to Kafka, committed and acknowledged, beside `pg_recvlogical` that throws the same WAL away.

Both read the same backlog through slots made before it, by turns, after a turn that is not counted, and the middle run counts. A
run's time begins when its process is started and so includes its start. It ends when the slot is confirmed up to the
backlog's end, which the edge does only when Kafka has committed and the bridge has acknowledged everything.
"""

import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg2
from rich.console import Console

from infra.local import files
from infra.local.kafka import Kafka
from infra.local.postgres import Postgres
from infra.local.server import free_port
from tests.benchmarks import orders, shapes
from tests.benchmarks.results import Result, compared
from tests.benchmarks.usage import usage
from tests.end_to_end.follower import Follower
from tests.end_to_end.pipeline import command, headrace
from tests.end_to_end.supervised import Supervised
from tests.rules.waiting import eventually


@dataclass(frozen=True)
class Backlog:
    """What is drained, how often, and what it is called."""

    #: Of the database and of the stream.
    name: str
    title: str
    create: Callable[[Any], None]
    fill: Callable[[Any, int], None]
    changes: int
    runs: int = 4

    @property
    def sources(self) -> list[str]:
        """The source of each run."""
        return [f"bench/{self.name}{run}" for run in range(self.runs)]


def orders_backlog(changes: int) -> Backlog:
    """Return the table of eight columns with full replica identity."""
    return Backlog("drain", "WAL to Kafka, acknowledged", orders.create, orders.fill, changes)


def shaped_backlogs(changes: int) -> list[Backlog]:
    """Return the other shapes, drained once each."""
    named = {"mixed": shapes.MIXED, "wide": shapes.WIDE}
    return [
        Backlog(name, f"WAL to Kafka, {shape.name}", shape.create, shape.fill, changes, runs=2)
        for name, shape in named.items()
    ]


def edge_of(folder: Path, postgres: Postgres, backlog: Backlog, run: int, port: int) -> Supervised:
    """Return an edge that reads the backlog's database, ready to be started."""
    name = f"{backlog.name}{run}"
    path = files.edge(
        folder / f"edge-{name}.toml",
        source=backlog.sources[run],
        postgres=postgres,
        database=backlog.name,
        interconnect=f"amqp://127.0.0.1:{port}",
        names=name,
    )
    headrace("edge", "init", "--config", str(path))
    return Supervised(f"edge {run}", command("edge", "run", "--config", str(path)), log=folder / f"edge-{name}.log")


@contextmanager
def prepared(
    folder: Path,
    postgres: Postgres,
    kafka: Kafka,
    backlog: Backlog,
    edge: Callable[[Path, Postgres, Backlog, int, int], Supervised] = edge_of,
) -> Iterator[tuple[Supervised, list[Supervised], Any]]:
    """Yield a bridge and edges that wait to be started, and a connection to the database with the tables still empty."""
    name = backlog.name
    dsn = postgres.create_database(name)
    port = free_port()
    bridge_file = files.bridge(
        folder / f"bridge-{name}.toml",
        bootstrap=kafka.bootstrap,
        listen=f"127.0.0.1:{port}",
        sources=backlog.sources,
        stream=name,
    )
    headrace("bridge", "init", "--config", str(bridge_file))
    run = command("bridge", "run", "--config", str(bridge_file))
    bridge = Supervised("bridge", run, log=folder / f"bridge-{name}.log")
    with closing(psycopg2.connect(dsn)) as connection:
        connection.autocommit = True
        backlog.create(connection)
        edges = [edge(folder, postgres, backlog, number, port) for number in range(backlog.runs)]
        try:
            yield bridge, edges, connection
        finally:
            for part in (*edges, bridge):
                part.stop()


def written(console: Console, connection: Any, backlog: Backlog) -> str:
    """Write the backlog, and return the LSN where it ends."""
    with console.status(f"writing a backlog of {backlog.changes:,} changes"):
        backlog.fill(connection, backlog.changes)
        return str(ask(connection, "SELECT pg_current_wal_flush_lsn()::text"))


def measure(console: Console, folder: Path, postgres: Postgres, kafka: Kafka, backlog: Backlog) -> list[Result]:
    """Return changes per second and what edge and bridge cost."""
    name, changes = backlog.name, backlog.changes
    ours, theirs, costs = [], [], []
    with prepared(folder, postgres, kafka, backlog) as (bridge, edges, connection):
        for run in range(backlog.runs):
            ask(connection, "SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", f"{name}_peer{run}")
        end = written(console, connection, backlog)
        bridge.start()
        for run, edge in enumerate(edges):
            theirs.append(changes / _recvlogical(postgres, name, run, end))
            console.print(f"pg_recvlogical, run {run + 1}: {theirs[-1]:,.0f} changes/s")
            before = usage(bridge.pid).cpu_seconds
            ours.append(changes / drained(connection, edge, f"{name}{run}", end))
            costs.append((usage(edge.pid), usage(bridge.pid), usage(bridge.pid).cpu_seconds - before))
            console.print(f"headrace, run {run + 1}: {ours[-1]:,.0f} changes/s")
            assert edge.stop() == 0, edge.tail()
    count(kafka, backlog)
    # In the first turn the broker's JVM, just started, still compiles.
    ours, theirs, costs = ours[1:], theirs[1:], costs[1:]
    million, title = changes / 1e6, backlog.title
    unit = "s per million changes"
    return [
        compared(title, statistics.median(ours), "changes/s", statistics.median(theirs)),
        Result(f"{title}: edge, CPU", _median(edge.cpu_seconds / million for edge, _, _ in costs), unit),
        Result(f"{title}: bridge, CPU", _median(cpu / million for _, _, cpu in costs), unit),
        Result(f"{title}: edge, most memory", max(round(edge.peak_megabytes, 1) for edge, _, _ in costs), "MB"),
        Result(f"{title}: bridge, most memory", max(round(bridge.peak_megabytes, 1) for _, bridge, _ in costs), "MB"),
    ]


def count(kafka: Kafka, backlog: Backlog) -> None:
    """Fail unless every run's partition holds the whole backlog once."""
    runs, changes = backlog.runs, backlog.changes
    follower = Follower(kafka.bootstrap, backlog.name, runs)
    try:
        with suppress(AssertionError):
            eventually(lambda: follower.total >= runs * changes, 120)
    finally:
        follower.stop()
    assert follower.changes == dict.fromkeys(range(runs), changes), f"{follower.changes}, not {changes} each"


def _median(figures: Any) -> float:
    return round(statistics.median(figures), 2)


def drained(connection: Any, edge: Supervised, slot: str, end: str) -> float:
    """Return the seconds until the edge has confirmed everything."""
    query = "SELECT confirmed_flush_lsn >= %s::pg_lsn FROM pg_replication_slots WHERE slot_name = %s"
    started = time.monotonic()
    edge.start()

    def done() -> bool:
        edge.check()
        return bool(ask(connection, query, end, slot))

    eventually(done, 600, every=0.02, saying=f"{slot} is confirmed")
    return time.monotonic() - started


def _recvlogical(postgres: Postgres, name: str, run: int, end: str) -> float:
    """Return the seconds that pg_recvlogical takes to throw the backlog away."""
    options = ["-o", "proto_version=1", "-o", f"publication_names={name}{run}", "-f", "/dev/null", "--no-loop"]
    slot = f"{name}_peer{run}"
    program = [postgres.bin("pg_recvlogical"), "-d", postgres.dsn(name), "--slot", slot, "--start", "-E", end]
    started = time.monotonic()
    subprocess.run([*program, *options], check=True, capture_output=True, timeout=600)
    return time.monotonic() - started


def ask(connection: Any, query: str, *values: str) -> Any:
    """Return the one value that a query gives."""
    with connection.cursor() as cursor:
        cursor.execute(query, values)
        (row,) = cursor.fetchone()
        return row
