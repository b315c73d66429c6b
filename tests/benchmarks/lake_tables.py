"""A lake of many tables of which a load changes a few: what the load takes, beside the same load of a lake of these few alone.

Each turn begins as a new process does, knowing nothing of the lake. Bronze is written without Kafka, which is not measured.
"""

import statistics
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from rich.console import Console

from spark_jobs.silver import load as silver
from spark_jobs.state import names, published, schema_texts
from tests.benchmarks.results import Result, compared
from tests.end_to_end.pipeline import command
from tests.lake.logged import LoggedLake

_SOURCES = ("bench/a", "bench/b", "bench/c")
_COLUMNS = {
    "id": ("int8", None, None),
    "customer": ("text", None, None),
    "state": ("text", None, None),
    "total": ("numeric", 12, 2),
    "placed_at": ("timestamptz", None, None),
    "note": ("text", None, None),
    "quantity": ("int4", None, None),
    "paid": ("bool", None, None),
}
_ROW: dict[str, Any] = {
    "customer": "c",
    "state": "paid",
    "total": "12.50",
    "placed_at": "2026-01-31T09:15:00.25Z",
    "note": "n",
}
_ROW |= {"quantity": 3, "paid": True}


def measure(
    console: Console, spark: SparkSession, folder: Path, *, tables: int, changed: int, runs: int
) -> list[Result]:
    """Return the seconds of a load that changes some tables of many, and of one that finds nothing to do."""
    results = []
    lakes = {}
    for count in (changed, tables):
        lake = LoggedLake(spark, folder / f"tables{count}", sources=_SOURCES)
        lakes[count] = lake
        with console.status(f"building {count:,} tables"):
            began = time.monotonic()
            _change(lake, count, 0)
            report = lake.load()
            assert len(report.changes) == count, report.problems
            seconds = time.monotonic() - began
        held = _heap(spark)
        with _new_process(spark):
            rest = _heap(spark)
        name = f"silver, {count:,} tables built"
        console.print(
            f"{name} in {seconds:.0f} s; {held:.0f} MB held after it, {rest:.0f} without what Delta knows of them"
        )
        results += [Result(name, round(seconds, 1), "s"), Result(f"{name}, held by the driver", round(held), "MB")]
    times: dict[int, list[float]] = {count: [] for count in lakes}
    for run in range(1, runs + 2):
        for count, lake in lakes.items():
            _change(lake, changed, run)
            lake.to_bronze()
            with _new_process(spark):
                began = time.monotonic()
                assert len(silver.load(spark, lake.file, "bank").changes) == changed
                times[count].append(time.monotonic() - began)
    few, many = (statistics.median(times[count][1:]) for count in (changed, tables))
    results.append(
        compared(f"silver, {changed} of {tables:,} tables changed", many, f"s, beside {changed} of {changed}", few)
    )
    results.append(
        Result(
            f"silver, {changed} of {tables:,} tables changed, more than {changed} of {changed}",
            round(many - few, 1),
            "s",
        )
    )
    for count, lake in lakes.items():
        words = command("lake", "load", "bank", "--config", str(lake.file.path), "--only", "silver")
        took = []
        for _ in range(runs + 1):
            began = time.monotonic()
            subprocess.run(words, check=True, capture_output=True, timeout=300)
            took.append(time.monotonic() - began)
        results.append(
            Result(f"nothing to do, {count:,} tables", round(statistics.median(took[1:]), 2), "s, from command to exit")
        )
    return results


def _change(lake: LoggedLake, tables: int, run: int) -> None:
    """Write a change of each of the first tables at each source."""
    for feed in lake.feeds:
        for number in range(tables):
            table = f"shop.t{number:04}"
            if run == 0:
                feed.commit(feed.schema(_COLUMNS, table=table), feed.insert(table, id=1, **_ROW))
            else:
                feed.commit(feed.update(table, **_ROW | {"id": 1, "quantity": run}))


@contextmanager
def _new_process(spark: SparkSession) -> Iterator[None]:
    """Forget what this process knows of lakes."""
    for each in (published._read, published._former, names._read, schema_texts._known):
        each.clear()
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    yield


def _heap(spark: SparkSession) -> float:
    """Return the megabytes of the driver's heap that are in use after a collection."""
    jvm = spark._jvm.java.lang
    jvm.System.gc()
    runtime = jvm.Runtime.getRuntime()
    return float(runtime.totalMemory() - runtime.freeMemory()) / 1e6
