"""WAL to Kafka, committed and acknowledged, beside `pg_recvlogical` that throws the same WAL away.

Both read the same backlog through slots made before it, by turns, three times each, and the middle run counts. A run's
time begins when its process is started and so includes its start. It ends when the slot is confirmed up to the
backlog's end, which the edge does only when Kafka has committed and the bridge has acknowledged everything.
"""

import statistics
import subprocess
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import psycopg2
from rich.console import Console

from infra.local import files
from infra.local.kafka import Kafka
from infra.local.ports import free_port
from infra.local.postgres import Postgres
from tests.benchmarks import orders
from tests.benchmarks.results import Result, compared
from tests.benchmarks.usage import usage
from tests.end_to_end.follower import Follower
from tests.end_to_end.pipeline import command, headrace
from tests.end_to_end.supervised import Supervised
from tests.waiting import eventually

RUNS = 3
SOURCES = [f"bench/drain{run}" for run in range(RUNS)]
_DATABASE = STREAM = "drain"


def measure(console: Console, folder: Path, postgres: Postgres, kafka: Kafka, changes: int) -> list[Result]:
    """Return changes per second and what edge and bridge cost."""
    dsn = postgres.create_database(_DATABASE)
    port = free_port()
    bridge_file = files.bridge(
        folder / "bridge-drain.toml",
        bootstrap=kafka.bootstrap,
        listen=f"127.0.0.1:{port}",
        sources=SOURCES,
        stream=STREAM,
    )
    headrace("bridge", "init", "--config", str(bridge_file))
    bridge = Supervised("bridge", command("bridge", "run", "--config", str(bridge_file)), log=folder / "bridge.log")
    with closing(psycopg2.connect(dsn)) as connection:
        connection.autocommit = True
        orders.create(connection)
        edges = [_edge(folder, postgres, source, run, port) for run, source in enumerate(SOURCES)]
        for run in range(RUNS):
            _ask(connection, "SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", f"peer{run}")
        with console.status(f"writing a backlog of {changes:,} changes"):
            orders.fill(connection, changes)
            end = _ask(connection, "SELECT pg_current_wal_flush_lsn()::text")
        bridge.start()
        ours, theirs, costs = [], [], []
        try:
            for run, edge in enumerate(edges):
                theirs.append(changes / _recvlogical(postgres, f"peer{run}", end))
                console.print(f"pg_recvlogical, run {run + 1}: {theirs[-1]:,.0f} changes/s")
                before = usage(bridge.pid).cpu_seconds
                ours.append(changes / _drain(connection, edge, f"headrace{run}", end))
                costs.append((usage(edge.pid), usage(bridge.pid), usage(bridge.pid).cpu_seconds - before))
                console.print(f"headrace, run {run + 1}: {ours[-1]:,.0f} changes/s")
                assert edge.stop() == 0, edge.tail()
        finally:
            for part in (*edges, bridge):
                part.stop()
    _count(kafka, changes)
    million = changes / 1e6
    rate = compared("WAL to Kafka, acknowledged", statistics.median(ours), "changes/s", statistics.median(theirs))
    return [
        rate,
        Result("edge, CPU", _median(edge.cpu_seconds / million for edge, _, _ in costs), "s per million changes"),
        Result("bridge, CPU", _median(cpu / million for _, _, cpu in costs), "s per million changes"),
        Result("edge, most memory", max(round(edge.peak_megabytes, 1) for edge, _, _ in costs), "MB"),
        Result("bridge, most memory", max(round(bridge.peak_megabytes, 1) for _, bridge, _ in costs), "MB"),
    ]


def _count(kafka: Kafka, changes: int) -> None:
    """Fail unless every run's partition holds the whole backlog once."""
    follower = Follower(kafka.bootstrap, STREAM, RUNS)
    try:
        with suppress(AssertionError):
            eventually(lambda: follower.total >= RUNS * changes, 120)
    finally:
        follower.stop()
    assert follower.changes == dict.fromkeys(range(RUNS), changes), f"{follower.changes}, not {changes} each"


def _median(figures: Any) -> float:
    return round(statistics.median(figures), 2)


def _edge(folder: Path, postgres: Postgres, source: str, run: int, port: int) -> Supervised:
    path = files.edge(
        folder / f"edge-drain{run}.toml",
        source=source,
        postgres=postgres,
        database=_DATABASE,
        interconnect=f"amqp://127.0.0.1:{port}",
        names=f"headrace{run}",
    )
    headrace("edge", "init", "--config", str(path))
    return Supervised(f"edge {run}", command("edge", "run", "--config", str(path)), log=folder / f"edge-drain{run}.log")


def _drain(connection: Any, edge: Supervised, slot: str, end: str) -> float:
    """Return the seconds until the edge has confirmed everything."""
    query = "SELECT confirmed_flush_lsn >= %s::pg_lsn FROM pg_replication_slots WHERE slot_name = %s"
    started = time.monotonic()
    edge.start()

    def done() -> bool:
        edge.check()
        return bool(_ask(connection, query, end, slot))

    eventually(done, 600, every=0.02, saying=f"{slot} is confirmed")
    return time.monotonic() - started


def _recvlogical(postgres: Postgres, slot: str, end: str) -> float:
    """Return the seconds that pg_recvlogical takes to throw the backlog away."""
    options = ["-o", "proto_version=1", "-o", "publication_names=headrace0", "-f", "/dev/null", "--no-loop"]
    program = [postgres.bin("pg_recvlogical"), "-d", postgres.dsn(_DATABASE), "--slot", slot, "--start", "-E", end]
    started = time.monotonic()
    subprocess.run([*program, *options], check=True, capture_output=True, timeout=600)
    return time.monotonic() - started


def _ask(connection: Any, query: str, *values: str) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(query, values)
        (found,) = cursor.fetchone()
        return found
