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

from infra.local.kafka import Kafka
from infra.local.postgres import Postgres
from tests.benchmarks.region import region
from tests.benchmarks.results import Result, compared

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
    way = region(folder, _NAME, postgres, kafka)
    parts = (way.bridge, way.edge)
    measured: dict[bool, list[tuple[float, float, float]]] = {False: [], True: []}
    for run in range(RUNS):
        for captured in (False, True):
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
