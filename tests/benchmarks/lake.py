"""Bronze and silver beside Spark itself, which reads the same Kafka range into nothing.

All run in one session of `local[2]` over the records of the drain benchmark. Reading into nothing goes first, once uncounted,
so that none of them pays for the JVM's warming up; bronze and silver load into empty tables, as a first load does.
"""

import statistics
import time
from pathlib import Path

from pyspark.sql import SparkSession
from rich.console import Console

from headrace.configuration.lake import LakeFile
from headrace.configuration.load import load
from infra.local import files
from infra.local.kafka import Kafka
from infra.local.postgres import Postgres
from spark_jobs import session
from spark_jobs.bronze import load as bronze
from spark_jobs.silver import load as silver
from tests.benchmarks import drain
from tests.benchmarks.results import Result, compared

_READS = 3


def measure(console: Console, folder: Path, _postgres: Postgres, kafka: Kafka) -> list[Result]:
    """Return changes per second of bronze and of silver."""
    backlog = drain.orders_backlog(0)
    stream = backlog.name
    path = files.lake(
        folder / "lake.toml",
        bootstrap=kafka.bootstrap,
        sources=list(backlog.sources),
        stream=stream,
    )
    lake = load(path, LakeFile)
    spark = session.session(lake, name="bench")
    try:
        with console.status("Spark reads the topic into nothing"):
            reads = [_read(spark, kafka, stream) for _ in range(_READS + 1)][1:]
        with console.status("bronze"):
            loaded = bronze.load(spark, lake, stream)
        peer = loaded.records / statistics.median(reads)
        console.print(f"read into nothing: {peer:,.0f} records/s; bronze: {loaded.records / loaded.seconds:,.0f}")
        with console.status("silver"):
            applied = silver.load(spark, lake, stream)
            assert not applied.problems, applied.problems
    finally:
        spark.stop()
    return [
        compared("bronze", loaded.records / loaded.seconds, "changes/s", peer),
        compared("silver, first load", sum(applied.changes.values()) / applied.seconds, "changes/s", peer),
    ]


def _read(spark: SparkSession, kafka: Kafka, topic: str) -> float:
    """Return the seconds of one reading."""
    records = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", kafka.bootstrap)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
    )
    began = time.monotonic()
    records.write.format("noop").mode("overwrite").save()
    return time.monotonic() - began
