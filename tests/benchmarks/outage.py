"""An outage, compressed: the interconnect is away while a million changes are written, and then all of them arrive, once.

While it is away the edge puts them into its bounded spool and the slot moves on; the edge is killed in the middle of that, and
once more while it drains. Measured are the rates of both, the size of the spool, and what the edge needs of memory.
"""

import time
from contextlib import closing, suppress
from pathlib import Path

import psycopg2
from rich.console import Console

from infra.local import files
from infra.local.kafka import Kafka
from infra.local.postgres import Postgres
from infra.local.server import free_port
from tests.benchmarks import orders
from tests.benchmarks.results import Result
from tests.benchmarks.usage import usage
from tests.end_to_end.follower import Follower
from tests.end_to_end.pipeline import command, headrace
from tests.end_to_end.supervised import Supervised
from tests.rules.waiting import eventually
from tests.servers.fix_proxy import Proxy

_SOURCE, _NAME = "bench/outage", "outage"
_SPOOL = """
[spool]
megabytes = 64
after_seconds = 1
"""


def measure(console: Console, folder: Path, postgres: Postgres, kafka: Kafka, changes: int) -> list[Result]:
    """Return how fast the spool fills and empties, and what it takes."""
    dsn = postgres.create_database(_NAME)
    port = free_port()
    bridge_file = files.bridge(
        folder / "bridge-outage.toml",
        bootstrap=kafka.bootstrap,
        listen=f"127.0.0.1:{port}",
        sources=[_SOURCE],
        stream=_NAME,
    )
    headrace("bridge", "init", "--config", str(bridge_file))
    wire = Proxy("127.0.0.1", port)
    wire.stop()
    edge_file = files.edge(
        folder / "edge-outage.toml",
        source=_SOURCE,
        postgres=postgres,
        database=_NAME,
        interconnect=f"amqp://127.0.0.1:{wire.port}",
        names=_NAME,
    )
    edge_file.write_text(edge_file.read_text() + _SPOOL)
    state = folder / f"state-{edge_file.stem}"
    bridge = Supervised(
        "bridge", command("bridge", "run", "--config", str(bridge_file)), log=folder / "bridge-outage.log"
    )
    edge = Supervised("edge", command("edge", "run", "--config", str(edge_file)), log=folder / "edge-outage.log")
    follower = Follower(kafka.bootstrap, _NAME, 1)
    try:
        with closing(psycopg2.connect(dsn)) as connection, connection.cursor() as cursor:
            connection.autocommit = True
            orders.create(connection)
            headrace("edge", "init", "--config", str(edge_file))
            bridge.start()
            with console.status(f"writing {changes:,} changes while the interconnect is away"):
                orders.fill(connection, changes)
            cursor.execute("SELECT pg_current_wal_flush_lsn()::text")
            (end,) = cursor.fetchone()

            def confirmed(share: float) -> bool:
                edge.check()
                cursor.execute(
                    "SELECT confirmed_flush_lsn - '0/0'::pg_lsn >= %s * (%s::pg_lsn - '0/0'::pg_lsn) "
                    "FROM pg_replication_slots WHERE slot_name = %s",
                    (share, end, _NAME),
                )
                return bool(cursor.fetchone()[0])

            started = time.monotonic()
            edge.start()
            eventually(lambda: confirmed(0.5), 600, saying="half of it is spooled")
            edge.kill()
            eventually(lambda: confirmed(1), 600, every=0.02, saying="all of it is spooled")
            spooling = time.monotonic() - started
        assert follower.total == 0
        size = sum(path.stat().st_size for path in state.glob("spool.sqlite*"))
        memory = usage(edge.pid).peak_megabytes
        console.print(f"spooled {changes:,} changes in {spooling:.1f} s, killed once: {size / 1e6:.0f} MB on disk")
        started = time.monotonic()
        wire.start()
        eventually(lambda: follower.total > changes // 3, 600, saying="a third has arrived")
        edge.kill()
        with suppress(AssertionError):
            eventually(lambda: follower.total >= changes, 600, every=0.02)
        draining = time.monotonic() - started
        memory = max(memory, usage(edge.pid).peak_megabytes)
        assert edge.stop() == 0, edge.tail()
    finally:
        follower.stop()
        edge.stop()
        bridge.stop()
        wire.close()
    assert follower.changes == {0: changes}, f"{follower.changes} arrived, not {changes}"
    console.print(f"all arrived once in {draining:.1f} s, killed once")
    return [
        Result("outage: WAL to spool, durable", round(changes / spooling, 1), "changes/s"),
        Result("outage: spool to Kafka, committed", round(changes / draining, 1), "changes/s"),
        Result("outage: the spool on disk", round(size / 1e6, 1), "MB"),
        Result("outage: edge, most memory", round(memory, 1), "MB"),
    ]
