"""What capturing costs the source: pgbench's TPC-B without an edge and with one, side by side.

The whole pipeline runs on the same cores as the server, which it would not in production, so beside the transactions a second
at full speed this says what the server's own processes spend on a transaction at a fixed rate. By turns, without and with.
"""

import re
import statistics
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import psutil
from rich.console import Console

from infra.local import files
from infra.local.kafka import Kafka
from infra.local.ports import free_port
from infra.local.postgres import Postgres
from tests.benchmarks.results import Result, compared
from tests.end_to_end.pipeline import command, headrace
from tests.end_to_end.supervised import Supervised

RUNS = 3
_NAME = "impact"
_CLIENTS = 4
#: Transactions a second of the run at a fixed rate.
_RATE = 300
_TPS = re.compile(r"tps = ([\d.]+)")
_LATENCY = re.compile(r"latency average = ([\d.]+) ms")


def measure(console: Console, folder: Path, postgres: Postgres, kafka: Kafka, seconds: int) -> list[Result]:
    """Return transactions a second, and at a fixed rate the server's CPU and the clients' latency, with and without."""
    dsn = postgres.create_database(_NAME)
    _pgbench(postgres, dsn, "-i", "-s", "5", "-q")
    port = free_port()
    bridge_file = files.bridge(
        folder / f"bridge-{_NAME}.toml",
        bootstrap=kafka.bootstrap,
        listen=f"127.0.0.1:{port}",
        sources=[f"bench/{_NAME}"],
        stream=_NAME,
    )
    edge_file = files.edge(
        folder / f"edge-{_NAME}.toml",
        source=f"bench/{_NAME}",
        postgres=postgres,
        database=_NAME,
        interconnect=f"amqp://127.0.0.1:{port}",
        names=_NAME,
    )
    headrace("bridge", "init", "--config", str(bridge_file))
    headrace("edge", "init", "--config", str(edge_file))
    measured: dict[bool, list[tuple[float, float, float]]] = {False: [], True: []}
    for run in range(RUNS):
        for captured in (False, True):
            parts = [
                Supervised(part, command(part, "run", "--config", str(path)), log=folder / f"{part}-{_NAME}.log")
                for part, path in (("bridge", bridge_file), ("edge", edge_file))
            ]
            try:
                for part in parts if captured else []:
                    part.start()
                with console.status(f"pgbench {'with' if captured else 'without'} an edge, run {run + 1}"):
                    measured[captured].append(_measured(postgres, dsn, seconds))
            finally:
                for part in reversed(parts):
                    part.stop()
    (tps, cpu, latency), (tps_with, cpu_with, latency_with) = (
        [statistics.median(figures) for figures in zip(*measured[captured], strict=True)] for captured in (False, True)
    )
    return [
        compared("pgbench at full speed, captured on the same cores", tps_with, "transactions/s", tps),
        compared(f"server's CPU at {_RATE} transactions/s, captured", cpu_with, "ms per transaction", cpu),
        compared(f"latency at {_RATE} transactions/s, captured", latency_with, "ms", latency),
    ]


def _measured(postgres: Postgres, dsn: str, seconds: int) -> tuple[float, float, float]:
    """Return transactions a second at full speed, then at the fixed rate CPU and latency of a transaction, both in ms."""
    full = _pgbench(postgres, dsn, "-n", "-c", str(_CLIENTS), "-T", str(seconds))
    before, began = _cpu_seconds(postgres), time.monotonic()
    fixed = _pgbench(postgres, dsn, "-n", "-c", str(_CLIENTS), "-T", str(seconds), "-R", str(_RATE))
    transactions = _found(_TPS, fixed) * (time.monotonic() - began)
    cpu = (_cpu_seconds(postgres) - before) * 1000 / transactions
    return _found(_TPS, full), cpu, _found(_LATENCY, fixed)


def _found(pattern: re.Pattern[str], said: str) -> float:
    match = pattern.search(said)
    assert match, said
    return float(match[1])


def _cpu_seconds(postgres: Postgres) -> float:
    """Return the CPU that the server has spent, with that of its processes that ended and of those that run."""
    assert postgres.pid
    server, total = psutil.Process(postgres.pid), 0.0
    for process in server.children(recursive=True):
        # One that ends meanwhile is counted with the server.
        with suppress(psutil.NoSuchProcess):
            total += sum(process.cpu_times()[:2])
    return total + sum(server.cpu_times()[:4])


def _pgbench(postgres: Postgres, dsn: str, *options: str) -> str:
    done = subprocess.run(
        [postgres.bin("pgbench"), *options, dsn], check=True, capture_output=True, text=True, timeout=600
    )
    return done.stdout
