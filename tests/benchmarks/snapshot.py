"""A table's existing rows into Kafka, committed and acknowledged, beside a live stream whose latency is measured.

A thousand changes a second are written to one table while another is copied. The copy's time is that of the edge's own plan: from
its start until the last row is acknowledged, which is after Kafka committed it. The peer is `COPY table TO STDOUT` thrown away,
before and after. The same rows without a key are copied behind it. One consumer reads everything, and counts a change as readable
when it comes out of its client.
"""

import re
import statistics
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import psycopg2
from confluent_kafka import Consumer, TopicPartition
from rich.console import Console

from edge.snapshot.store import SnapshotStore
from infra.local.kafka import Kafka
from infra.local.postgres import Postgres
from tests.benchmarks import orders, writer
from tests.benchmarks.region import region
from tests.benchmarks.results import Result, compared
from tests.benchmarks.usage import usage
from tests.end_to_end.pipeline import headrace
from tests.rules.waiting import eventually

_TRANSACTIONS, _CHANGES = 200, 5
#: So many seconds of changes are written before the copy begins; their latency is given separately, less the first second.
_AHEAD_SECONDS = 4
_NAME, _SOURCE = "snapshot", "bench/snapshot"
_LIVE = re.compile(rb'"sku":"tx(\d+)"')

_STOCK = """
CREATE TABLE stock (LIKE orders INCLUDING ALL);
INSERT INTO stock
SELECT i, i % 9973, 'SKU-' || lpad((i * 7919 % 100000)::text, 6, '0'), 1 + i % 9, (i % 100000) / 100.0, 'placed',
       CASE i % 10 WHEN 0 THEN NULL WHEN 1 THEN E'said "leave it at the door"\\n' || i
                   ELSE 'to be delivered between nine and five, ring twice, floor ' || i % 40 END,
       clock_timestamp()
FROM generate_series(1::bigint, {rows}) AS i;
CREATE TABLE bare AS SELECT * FROM stock;
ALTER TABLE bare REPLICA IDENTITY FULL;
VACUUM ANALYZE stock, bare
"""


def measure(console: Console, folder: Path, postgres: Postgres, kafka: Kafka, rows: int) -> list[Result]:
    """Return rows a second, what the edge costs, and the live stream's latency with the copy beside it."""
    dsn = postgres.create_database(_NAME)
    with closing(psycopg2.connect(dsn)) as connection, connection.cursor() as cursor, console.status("making rows"):
        connection.autocommit = True
        orders.create(connection)
        for statement in _STOCK.format(rows=rows).split(";"):
            cursor.execute(statement)
    bridge, edge, edge_file = region(folder, _NAME, postgres, kafka)
    copies = [rows / _copy(postgres) for _ in range(2)]
    # How long the copy takes is not known: the writer goes on a little longer than it should.
    seconds = _AHEAD_SECONDS + 6 + rows // 40_000
    reading = subprocess.Popen(
        [sys.executable, "-m", "tests.benchmarks.snapshot", kafka.bootstrap, str(rows)],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        bridge.start()
        edge.start()
        writing = subprocess.Popen(
            [sys.executable, writer.__file__, dsn, str(_TRANSACTIONS), str(_CHANGES), str(seconds)],
            stdout=subprocess.PIPE,
            text=True,
        )
        ahead = _AHEAD_SECONDS * _TRANSACTIONS * _CHANGES
        eventually(lambda: _ask(dsn, "SELECT count(*) FROM orders") >= ahead, 60, saying="the stream flows")
        with console.status(f"copying {rows:,} rows"):
            began = time.monotonic()
            before, beside = usage(edge.pid), usage(bridge.pid)
            headrace("edge", "snapshot", "public.stock", "--config", str(edge_file))
            state = SnapshotStore(folder / f"state-{edge_file.stem}", _SOURCE)

            def done() -> bool:
                edge.check()
                return any(table.state == "done" for table in state.plan().tables)

            eventually(done, 600, every=0.1, saying="the copy is done")
            ended = time.monotonic()
        after, behind = usage(edge.pid), usage(bridge.pid)
        (table,) = state.plan().tables
        with console.status(f"copying {rows:,} rows without a key"):
            headrace("edge", "snapshot", "public.bare", "--config", str(edge_file))
            eventually(lambda: _rate(state, "public.bare") > 0, 600, every=0.1, saying="the copy without a key is done")
        bare = _rate(state, "public.bare")
        written, _ = writing.communicate(timeout=seconds + 60)
        said, _ = reading.communicate(timeout=120)
    finally:
        for part in (edge, bridge):
            part.stop()
        for process in (reading, writing):
            process.kill()
    copies += [rows / _copy(postgres) for _ in range(2)]
    assert table.rows == rows, f"{table.rows} rows were copied, not {rows}"
    returned = dict(_pairs(written))
    latencies = [((moment - returned[number]) * 1000, returned[number]) for number, moment in _pairs(said)]
    meanwhile = [latency for latency, moment in latencies if began <= moment <= ended]
    alone = [latency for latency, moment in latencies if moment < began][_TRANSACTIONS * _CHANGES :]
    million = rows / 1e6
    rate = _rate(state, "public.stock")
    return [
        compared("snapshot to Kafka, acknowledged, beside a stream", rate, "rows/s", statistics.median(copies)),
        compared("snapshot of a table without a key", bare, "rows/s", statistics.median(copies)),
        Result(
            "snapshot, edge CPU", round((after.cpu_seconds - before.cpu_seconds) / million, 2), "s per million rows"
        ),
        Result(
            "snapshot, bridge CPU", round((behind.cpu_seconds - beside.cpu_seconds) / million, 2), "s per million rows"
        ),
        Result("snapshot, edge, most memory", round(after.peak_megabytes, 1), "MB"),
        Result("live changes beside a snapshot, p50", _percentile(meanwhile, 50), "ms"),
        compared("live changes beside a snapshot, p99", _percentile(meanwhile, 99), "ms", _percentile(alone, 99)),
    ]


def _rate(state: SnapshotStore, name: str) -> float:
    """Return the rows a second of a table's copy, 0 until it is done."""
    tables = [table for table in state.plan().tables if table.name == name and table.state == "done"]
    return tables[0].rows / (tables[0].finished_ms - tables[0].started_ms) * 1000 if tables else 0.0


def _ask(dsn: str, query: str) -> int:
    with closing(psycopg2.connect(dsn)) as connection, connection.cursor() as cursor:
        cursor.execute(query)
        return int(cursor.fetchone()[0])


def _percentile(latencies: list[float], at: int) -> float:
    return round(statistics.quantiles(latencies, n=100)[at - 1], 1)


def _pairs(text: str) -> list[tuple[int, float]]:
    return [(int(number), float(moment)) for number, moment in map(str.split, text.splitlines())]


def _copy(postgres: Postgres) -> float:
    """Return the seconds in which the table is thrown away by COPY."""
    started = time.monotonic()
    subprocess.run(
        [postgres.bin("psql"), "-d", postgres.dsn(_NAME), "-qc", "copy stock to stdout"],
        check=True,
        stdout=subprocess.DEVNULL,
        timeout=600,
    )
    return time.monotonic() - started


def read(bootstrap: str, rows: int) -> None:
    """Read until all copied rows have come and the stream rests; print when each live change was readable."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "snapshot",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 20,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(_NAME, 0, 0)])
    copied, arrivals, heard = 0, [], time.monotonic()
    while copied < rows or time.monotonic() - heard < 2:
        for message in consumer.consume(500, 0.005):
            value = message.value()
            if message.error() is not None or value is None:
                continue
            if match := _LIVE.search(value):
                heard = time.monotonic()
                arrivals.append((int(match[1]), heard))
            elif b'"op":"r"' in value:
                copied += 1
    consumer.close()
    print("\n".join(f"{number} {moment!r}" for number, moment in arrivals))


if __name__ == "__main__":
    read(sys.argv[1], int(sys.argv[2]))
