"""`make bench-lake`: the lake's loads, each beside its floor in the same run and session; writes build/bench-lake.json.

Wall time is compared, on a machine that does nothing else; CPU seconds of the JVM stand beside it, since they hold on a busy one
too. Bronze's floor is Spark that writes the same Kafka range raw to Parquet; silver's parses, takes the newest of each key and
writes once as Delta. Every pair runs a few times by turns, after a turn that is not counted, and the middle counts.
"""

import logging
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import psutil
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.
from rich.console import Console

from headrace.configuration.lake import LakeFile
from headrace.configuration.load import load as load_file
from infra.local.kafka import Kafka
from spark_jobs import session
from spark_jobs.bronze import load as bronze
from spark_jobs.silver import load as silver
from tests.benchmarks import lake_avro, lake_freshness, lake_records, lake_tables, lake_warm, lake_years, results
from tests.benchmarks.results import Result, compared
from tests.end_to_end.pipeline import command

FILE = Path("build/bench-lake.json")
PARTS = ("bronze", "silver", "avro", "increments", "tables", "nothing", "warm", "freshness")
#: Measured where it is named alone: a million files are written for it.
ASKED = ("years",)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--changes", default=2_000_000, show_default=True, help="Changes for bronze and for silver from empty.")
@click.option("--rows", default=10_000_000, show_default=True, help="Rows of the table that increments go into.")
@click.option("--tables", default=1000, show_default=True, help="Tables, of which a load changes twenty.")
@click.option("--seconds", default=60, show_default=True, help="For which freshness is watched.")
@click.option("--rate", default=1000, show_default=True, help="Changes a second while freshness is watched.")
@click.option("--runs", default=3, show_default=True, help="Turns of each pair that count.")
@click.option("--only", type=click.Choice(PARTS + ASKED), multiple=True, help="Measure these parts alone.")
@click.option("--memory", default="4g", show_default=True, help="Of the driver.")
def bench(
    *, changes: int, rows: int, tables: int, seconds: int, rate: int, runs: int, only: tuple[str, ...], memory: str
) -> None:
    """Measure the lake, print a table, and write build/bench-lake.json."""
    logging.basicConfig(level=logging.WARNING)
    console, parts = Console(), only or PARTS
    folder = Path(tempfile.mkdtemp(prefix="headrace-bench-lake-"))
    kafka = Kafka(folder / "kafka", heap_megabytes=1024, lasting=True)
    found: list[Result] = []
    try:
        if {"bronze", "avro", "nothing", "warm", "freshness"} & set(parts):
            kafka.start()
        bootstrap = kafka.bootstrap if kafka.running else ""
        spark = session.session(_lake(folder, "first", bootstrap, memory), name="bench-lake")
        try:
            measures: dict[str, tuple[str, Callable[[], list[Result]]]] = {
                "bronze": ("Bronze", lambda: _bronze(console, spark, folder, kafka, changes, runs)),
                "silver": ("Silver, from empty", lambda: _silver(console, spark, folder, changes, runs)),
                "avro": (
                    "Avro next to JSON",
                    lambda: lake_avro.measure(console, spark, folder, kafka, changes // 5, runs),
                ),
                "increments": ("Silver, increments", lambda: _increments(console, spark, folder, rows, runs)),
                "tables": (
                    "Many tables",
                    lambda: lake_tables.measure(console, spark, folder, tables=tables, changed=20, runs=runs),
                ),
                "years": ("Years", lambda: lake_years.measure(console, spark, folder, tables=tables)),
                "freshness": ("Freshness", lambda: _freshness(console, spark, folder, kafka, seconds, rate, memory)),
            }
            for part, (title, measure) in measures.items():
                if part in parts:
                    console.rule(title)
                    found += measure()
        finally:
            spark.stop()
        if "nothing" in parts:
            console.rule("Nothing to do")
            found += _nothing(folder, kafka, runs)
        if "warm" in parts:
            console.rule("Loads in a running server")
            _topic(kafka, "warm")
            lake = _lake(folder, "warm", bootstrap, memory)
            found += lake_warm.measure(console, Path(lake.path), "warm", bootstrap, runs)
    finally:
        kafka.kill()
        shutil.rmtree(folder, ignore_errors=True)
        # Where a part failed, what the others brought is not lost.
        results.write(found, FILE)
        results.show(console, found)
        console.print(f"Written to {FILE}")


def _freshness(
    console: Console, spark: SparkSession, folder: Path, kafka: Kafka, seconds: int, rate: int, memory: str
) -> list[Result]:
    _topic(kafka, "fresh")
    lake = _lake(folder, "fresh", kafka.bootstrap, memory)
    return lake_freshness.measure(console, spark, lake, "fresh", seconds=seconds, rate=rate)


def _lake(folder: Path, stream: str, bootstrap: str, memory: str = "4g") -> LakeFile:
    file = folder / f"{stream}.toml"
    file.write_text(
        f'[lake]\nroot = "{stream}"\n[kafka]\nbootstrap = "{bootstrap or "127.0.0.1:1"}"\n'
        f'[spark]\ndriver_memory = "{memory}"\n[streams.{stream}]\nsources = ["{lake_records.SOURCE}"]\n'
    )
    return load_file(file, LakeFile)


def _topic(kafka: Kafka, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(30)


class _Clock:
    """Seconds and CPU seconds of a piece of work in this process's JVM."""

    def __init__(self) -> None:
        self._java = next(p for p in psutil.Process().children(recursive=True) if p.name() == "java" and _spark(p))

    def time(self, work: Callable[[], Any]) -> tuple[float, float]:
        began, cpu = time.monotonic(), self._cpu()
        work()
        return time.monotonic() - began, self._cpu() - cpu

    def _cpu(self) -> float:
        times = self._java.cpu_times()
        return float(times.user + times.system)


def _spark(process: psutil.Process) -> bool:
    return any("pyspark" in word or "SparkSubmit" in word for word in process.cmdline())


def _turns(runs: int, ours: Callable[[int], Any], floor: Callable[[int], Any]) -> tuple[Any, Any]:
    """Return the middle (seconds, CPU seconds) of ours and of the floor, after a turn that is not counted."""
    clock, mine, theirs = _Clock(), [], []
    for run in range(runs + 1):
        theirs.append(clock.time(lambda run=run: floor(run)))
        mine.append(clock.time(lambda run=run: ours(run)))
    return tuple(tuple(statistics.median(column) for column in zip(*each[1:], strict=True)) for each in (mine, theirs))


def _pair(name: str, changes: int, ours: Any, floor: Any) -> list[Result]:
    million = changes / 1e6
    return [
        compared(name, changes / ours[0], "changes/s", changes / floor[0]),
        compared(f"{name}, CPU", ours[1] / million, "s per million changes", floor[1] / million),
    ]


def _bronze(console: Console, spark: SparkSession, folder: Path, kafka: Kafka, changes: int, runs: int) -> list[Result]:
    with console.status(f"writing {changes:,} records to Kafka"):
        _topic(kafka, "bronze")
        lake_records.to_topic(lake_records.changes(spark, 0, changes), kafka.bootstrap, "bronze")

    def raw(run: int) -> None:
        source = spark.read.format("kafka").option("kafka.bootstrap.servers", kafka.bootstrap)
        source = source.option("kafka.isolation.level", "read_committed").option("subscribe", "bronze")
        # As many tasks as bronze has.
        source = source.option("maxRecordsPerPartition", 250_000)
        source.load().write.parquet(str(folder / f"raw{run}"))
        shutil.rmtree(folder / f"raw{run}")

    def ours(_: int) -> None:
        lake = _lake(folder, "bronze", kafka.bootstrap)
        assert bronze.load(spark, lake, "bronze").records == changes
        shutil.rmtree(lake.root)

    return _pair("bronze, beside raw Parquet", changes, *_turns(runs, ours, raw))


def _silver(console: Console, spark: SparkSession, folder: Path, changes: int, runs: int) -> list[Result]:
    lake = _lake(folder, "silver", "")
    with console.status(f"writing {changes:,} rows of bronze"):
        lake_records.to_bronze(spark, lake, "silver", lake_records.changes(spark, 0, changes), 0, changes)
    path = bronze.table_path(lake, "silver")
    row = "id bigint, customer string, state string, total string, placed_at timestamp, note string, quantity int, paid boolean"

    def floor(run: int) -> None:
        order = Window.partitionBy("source", "key").orderBy(F.desc("position"))
        parsed = (
            spark.read.format("delta")
            .load(path)
            .filter(F.col("op").isNotNull())
            .select("source", "key", "position", "op", F.from_json("value", f"after struct<{row}>").alias("row"))
        )
        newest = parsed.withColumn("rank", F.row_number().over(order)).filter("rank = 1 AND op <> 'd'")
        newest.select("row.after.*", "source", "position").write.format("delta").save(str(folder / f"floor{run}"))
        shutil.rmtree(folder / f"floor{run}")

    def ours(_: int) -> None:
        assert silver.load(spark, lake, "silver").changes == {"public.orders": changes}
        for part in ("silver", "state"):
            shutil.rmtree(f"{lake.root}/{part}")

    return _pair("silver from empty, beside parse, newest and write", changes, *_turns(runs, ours, floor))


def _increments(console: Console, spark: SparkSession, folder: Path, rows: int, runs: int) -> list[Result]:
    """Return the seconds of loads of so many changes into a table of a tenth of the rows, and of all of them."""
    found, changes = [], max(1, rows // 100)
    for stream, size in (("small", rows // 10), ("large", rows)):
        lake = _lake(folder, stream, "")
        clock = _Clock()
        with console.status(f"writing {size:,} rows of bronze"):
            # Four of five changes are inserts.
            first = size * 25 // 20
            lake_records.to_bronze(spark, lake, stream, lake_records.changes(spark, 0, first), 0, first)
        with console.status("building silver"):
            whole = clock.time(lambda lake=lake, stream=stream: silver.load(spark, lake, stream))
        times = []
        for run in range(runs + 1):
            begin = first + run * changes
            more = lake_records.changes(spark, begin - begin % 50, changes, keys=size)
            lake_records.to_bronze(spark, lake, stream, more, begin + 1, changes)
            times.append(clock.time(lambda lake=lake, stream=stream: silver.load(spark, lake, stream)))
        seconds, cpu = (statistics.median(column) for column in zip(*times[1:], strict=True))
        console.print(f"{size:,} rows: built in {whole[0]:.1f} s, {changes:,} changes in {seconds:.1f} s")
        name = f"silver, {changes:,} changes into {size:,} rows"
        found += [
            compared(name, seconds, "s, beside building it", whole[0]),
            compared(f"{name}, CPU", cpu, "s", whole[1]),
        ]
        shutil.rmtree(lake.root)
    return found


def _nothing(folder: Path, kafka: Kafka, runs: int) -> list[Result]:
    """Return the seconds of a load that finds nothing new, from command to exit, by hand and as Airflow runs a step."""
    _topic(kafka, "nothing")
    lake = _lake(folder, "nothing", kafka.bootstrap)
    lake_freshness.Feed(kafka.bootstrap, "nothing", 1).begin()
    by_hand = command("lake", "load", "nothing", "--config", str(lake.path))
    jars = ",".join(str(jar) for jar in session.jars())
    submit = Path(sys.executable).with_name("spark-submit")
    step = [
        str(submit),
        "--master",
        "local[2]",
        "--jars",
        jars,
        str(Path(session.__file__).with_name("submit.py")),
        "nothing",
    ]
    step += ["--config", str(lake.path), "--step", "bronze"]
    found = []
    for name, words in (("headrace lake load", by_hand), ("spark-submit of a step", step)):
        times = []
        # The first one has something to do.
        for _ in range(runs + 1):
            began = time.monotonic()
            subprocess.run(words, check=True, capture_output=True, timeout=300)
            times.append(time.monotonic() - began)
        seconds = round(statistics.median(times[1:]), 2)
        found.append(Result(f"nothing to do, {name}", seconds, "s, from command to exit"))
    return found


if __name__ == "__main__":
    bench()
