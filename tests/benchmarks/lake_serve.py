"""A warm server of SQL beside plain Spark on plain Delta: point queries, an aggregate, many clients at once, a publication.

`python -m tests.benchmarks.lake_serve [--rows N] [--minutes N]` writes build/bench-serve.json. The lake has one table; its rows
are appended by Spark and published as a load publishes. Plain Spark is the session that wrote it, over the same rows in a table
of its own.
"""

import argparse
import random
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.
from pyspark.sql.connect.session import SparkSession as ConnectSession
from rich.console import Console

from headrace.configuration.lake import LakeFile
from headrace.configuration.load import load
from infra.local.server import free_port
from spark_jobs.session import session
from spark_jobs.silver import table_task
from spark_jobs.state import delta_log, publication, published
from tests.benchmarks.results import Result, compared, show, write
from tests.end_to_end.pipeline import command
from tests.lake.logged import LoggedLake
from tests.rules.waiting import eventually

_TABLE, _FILES, _CLIENTS = "public.accounts", 20, 20
_POINT = "SELECT * FROM {} WHERE id = {}"
_AGGREGATE = "SELECT id % 100 AS part, count(*), sum(balance), max(name) FROM {} GROUP BY 1"


class _Served:
    """A lake of one large table, and its server."""

    def __init__(self, folder: Path, rows: int) -> None:
        text = folder / "any.toml"
        text.write_text(
            '[lake]\nroot = "lake"\n[kafka]\nbootstrap = "127.0.0.1:2"\n[streams.bank]\nsources = ["a/b"]\n'
        )
        self.spark = session(load(text, LakeFile), name="benchmark")
        self.lake = LoggedLake(self.spark, folder / "lake")
        feed = self.lake.feeds[0]
        feed.commit(feed.schema(), feed.insert(id=0, name="name", balance="1.00"))
        self.lake.load()
        self.path = table_task.path(self.lake.file, "bank", _TABLE)
        row = self.spark.read.format("delta").load(self.path)
        many = self.spark.range(1, rows, numPartitions=_FILES).withColumnRenamed("id", "n").crossJoin(row)
        many.withColumn("id", F.col("n").cast(row.schema["id"].dataType)).withColumn(
            "name", F.concat(F.lit("name "), F.col("n") % 9973)
        ).withColumn("balance", (F.col("n") % 1000).cast(row.schema["balance"].dataType)).select(
            *row.columns
        ).write.format("delta").mode("append").save(self.path)
        self.plain = str(folder / "plain")
        self.spark.read.format("delta").load(self.path).write.format("delta").save(self.plain)
        self.publish()
        connect, thrift = free_port(), free_port()
        # Beside the other one: the lake's root is relative to it.
        file = self.lake._path.with_name("served.toml")
        file.write_text(
            f"{self.lake._path.read_text()}\n[serve]\nqueries = 100\n"
            f'connect = "127.0.0.1:{connect}"\nthrift = "127.0.0.1:{thrift}"\n'
        )
        self.url, log = f"sc://127.0.0.1:{connect}/", folder / "serve.log"
        with log.open("w") as output:
            self.process = subprocess.Popen(
                command("lake", "serve", "--config", str(file)), stdout=output, stderr=output
            )
        eventually(lambda: "JDBC:" in log.read_text(), 600, saying="the server answers")

    def publish(self) -> None:
        """Publish the table as it is now."""
        state = published.latest(self.spark, self.lake.file, "bank")
        version = delta_log.version(self.spark, self.path)
        table = replace(state.tables[_TABLE], version=version, changes=1)
        publication.append(self.spark, self.lake.file, replace(state, tables={_TABLE: table}, changes=1), before=state)

    def megabytes(self) -> float:
        """Return the resident memory of the server's JVM."""
        return float(sum(each.memory_info().rss for each in psutil.Process(self.process.pid).children())) / 1e6


@contextmanager
def _client(url: str) -> Iterator[ConnectSession]:
    """Yield a client, which is closed whatever happens: one that is not waits at Python's end for its server."""
    client = ConnectSession(url)
    try:
        yield client
    finally:
        client.stop()


def _median(run: Callable[[], Any], runs: int) -> float:
    """Return the median of seconds of a call, which has been called before."""
    times = []
    for number in range(runs + 3):
        began = time.perf_counter()
        run()
        if number >= 3:
            times.append(time.perf_counter() - began)
    return statistics.median(times)


def _compare(served: _Served, rows: int) -> list[Result]:
    results = []

    def ask(client: Any, table: str, text: str) -> Callable[[], Any]:
        return lambda: client.sql(text.format(table, random.randrange(rows))).collect()

    with _client(served.url) as ours:
        for name, runs, text in (("point query", 30, _POINT), (f"aggregate over {rows:,} rows", 9, _AGGREGATE)):
            taken = _median(ask(ours, "silver.accounts", text), runs)
            peer = _median(ask(served.spark, f"delta.`{served.plain}`", text), runs)
            results.append(compared(f"{name}, p50, beside plain Spark", taken * 1000, "ms", peer * 1000))
    return results


def _visible(served: _Served, runs: int = 5) -> Result:
    """Return the seconds from the commit of a publication until a query begins that shows it."""
    times = []
    with _client(served.url) as ours:
        for number in range(runs):
            served.spark.sql(f"UPDATE delta.`{served.path}` SET balance = -{number + 1} WHERE id = 0")
            served.publish()
            began, shown = time.perf_counter(), None
            while shown != -(number + 1):
                asked = time.perf_counter()
                assert asked - began < 60, "the publication is not shown"
                shown = ours.sql("SELECT balance FROM silver.accounts WHERE id = 0").collect()[0]["balance"]
            times.append(asked - began)
    return Result("a publication is visible, p50", round(statistics.median(times), 2), "s")


def _crowd(served: _Served, rows: int, minutes: float) -> list[Result]:
    """Return what many clients got, and by how much the server's memory grew from the first third to the last."""
    end, counts, errors = time.monotonic() + minutes * 60, [0] * _CLIENTS, []

    def ask(number: int) -> None:
        with _client(served.url) as client:
            while time.monotonic() < end:
                try:
                    client.sql(_POINT.format("silver.accounts", random.randrange(rows))).collect()
                    counts[number] += 1
                except Exception as error:  # noqa: BLE001 - whatever it is, it is counted.
                    errors.append(f"{type(error).__name__}: {str(error)[:200]}")

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(_CLIENTS)]
    for thread in threads:
        thread.start()
    sizes = []
    while any(thread.is_alive() for thread in threads):
        sizes.append(served.megabytes())
        threads[0].join(2)
        for thread in threads:
            thread.join(0.01)
    third = len(sizes) // 3 or 1
    return [
        Result(f"{_CLIENTS} clients for {minutes:g} min, queries a second", round(sum(counts) / minutes / 60, 1), "1/s"),
        Result(f"their errors: {', '.join(sorted(set(errors))) or 'none'}", len(errors), ""),
        compared(
            "memory of the server's JVM in the last third, beside the second",
            statistics.median(sizes[-third:]), "MB", statistics.median(sizes[third : 2 * third] or sizes),
        ),
    ]  # fmt: skip


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--minutes", type=float, default=10)
    options = parser.parse_args()
    console = Console()
    with tempfile.TemporaryDirectory() as folder:
        served = _Served(Path(folder), options.rows)
        try:
            results = [
                *_compare(served, options.rows),
                _visible(served),
                *_crowd(served, options.rows, options.minutes),
            ]
        finally:
            served.process.terminate()
            served.process.wait(120)
            served.spark.stop()
    show(console, results)
    write(results, Path("build/bench-serve.json"))


if __name__ == "__main__":
    main()
