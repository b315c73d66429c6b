"""A MariaDB table's existing rows into Kafka, committed and acknowledged, beside the server's own client, which throws them away.

The table is that of tests/benchmarks/binlog.py, and nothing else happens at the source. The copy's time is that of the edge's own
plan, as in tests/benchmarks/snapshot.py; the peer reads the table twice, before and after.
"""

import statistics
import subprocess
import time
from pathlib import Path

from rich.console import Console

from edge.snapshot.store import SnapshotStore
from infra.local import files
from infra.local.kafka import Kafka
from infra.local.mariadb import Mariadb
from infra.local.server import free_port
from tests.benchmarks import binlog
from tests.benchmarks.results import Result, compared
from tests.benchmarks.usage import usage
from tests.end_to_end.pipeline import command, headrace
from tests.end_to_end.supervised import Supervised
from tests.rules.waiting import eventually

_SOURCE, _STREAM = "bench/stock", "binlog-snapshot"
_STOCK = """
create table stock (
    id bigint primary key, customer_id int not null, sku varchar(40) not null, quantity int not null,
    price decimal(12, 2) not null, status varchar(20) not null, note text, placed_at timestamp(6) not null
) default character set utf8mb4;
insert into stock
select seq, seq % 9973, concat('SKU-', lpad((seq * 7919) % 100000, 6, '0')), 1 + seq % 9, (seq % 100000) / 100, 'placed',
       case seq % 10 when 0 then null when 1 then concat('said "leave it at the door"\\n', seq)
       else concat('to be delivered between nine and five, ring twice, floor ', seq % 40) end, now(6)
from seq_1_to_{rows};
analyze table stock
"""


def measure(console: Console, folder: Path, kafka: Kafka, rows: int) -> list[Result]:
    """Return rows a second, and what the edge costs."""
    server = Mariadb(folder / "mariadb-snapshot", settings=binlog.SETTINGS)
    try:
        server.start()
        server.sql("create database bench")
        with console.status(f"making {rows:,} rows"):
            server.sql(_STOCK.format(rows=rows), "bench")
        return _measured(console, folder, server, kafka, rows)
    finally:
        server.delete()


def _measured(console: Console, folder: Path, server: Mariadb, kafka: Kafka, rows: int) -> list[Result]:
    port = free_port()
    bridge_file = files.bridge(
        folder / "bridge-stock.toml", bootstrap=kafka.bootstrap, listen=f"127.0.0.1:{port}", sources=[_SOURCE], stream=_STREAM
    )  # fmt: skip
    headrace("bridge", "init", "--config", str(bridge_file))
    edge, checkpoint = binlog.edge(folder, server, _SOURCE, 7100, port)
    bridge = Supervised("bridge", command("bridge", "run", "--config", str(bridge_file)), log=folder / "bridge.log")
    plan = SnapshotStore(checkpoint.parent, _SOURCE)
    selects = [rows / _select(server)]
    try:
        bridge.start()
        edge.start()
        headrace("edge", "snapshot", "bench.stock", "--config", str(folder / "edge-bench-stock.toml"))

        def done() -> bool:
            edge.check()
            return any(not table.unfinished for table in plan.plan().tables)

        with console.status(f"copying {rows:,} rows"):
            eventually(done, 600, every=0.1, saying="the copy is done")
        cost = usage(edge.pid)
    finally:
        for part in (edge, bridge):
            part.stop()
    selects.append(rows / _select(server))
    (table,) = plan.plan().tables
    assert table.rows == rows, f"{table.rows} rows were copied, not {rows}: {table.problem}"
    rate = rows / (table.finished_ms - table.started_ms) * 1000
    return [
        compared("snapshot of MariaDB to Kafka, acknowledged", rate, "rows/s", statistics.mean(selects)),
        Result("snapshot of MariaDB, edge CPU", round(cost.cpu_seconds / rows * 1e6, 2), "s per million rows"),
        Result("snapshot of MariaDB, edge, most memory", round(cost.peak_megabytes, 1), "MB"),
    ]


def _select(server: Mariadb) -> float:
    """Return the seconds in which the client throws the table away."""
    client: list[str | Path] = [
        server._programs / "bin" / "mariadb",
        "--no-defaults",
        "-h",
        "127.0.0.1",
        "-P",
        str(server.port),
        "-u",
        "root",
    ]
    started = time.monotonic()
    subprocess.run(
        [*client, "--skip-ssl", "--quick", "-N", "-B", "bench", "-e", "select * from stock"],
        check=True,
        stdout=subprocess.DEVNULL,
        timeout=600,
    )
    return time.monotonic() - started
