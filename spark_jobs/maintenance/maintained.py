"""`<root>/maintained`: when each table was maintained last, a row for each time. Read and written by maintenance alone."""

from collections.abc import Iterable
from datetime import UTC, datetime

import msgspec
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.

from headrace.configuration.lake import LakeFile
from spark_jobs import storage
from spark_jobs.errors import is_conflict
from spark_jobs.state import delta_log

_STRUCTURE = "array<struct<stream: string, name: string, maintained_at: timestamp>>"


def path(lake: LakeFile) -> str:
    """Return the path of the table."""
    return f"{lake.root}/maintained"


def times(spark: SparkSession, lake: LakeFile, stream: str) -> dict[str, datetime]:
    """Return when each table of a stream was maintained last, by the names that were recorded."""
    if not delta_log.is_table(spark, path(lake)):
        return {}
    rows = spark.read.format("delta").load(path(lake)).filter(F.col("stream") == stream)
    newest = rows.groupBy("name").agg(F.unix_millis(F.max("maintained_at")).alias("at"))
    return {row["name"]: datetime.fromtimestamp(row["at"] / 1000, UTC) for row in newest.collect()}


def record(spark: SparkSession, lake: LakeFile, stream: str, names: Iterable[str]) -> None:
    """Record that tables were maintained now."""
    now = datetime.now(UTC)
    rows = [{"stream": stream, "name": name, "maintained_at": now} for name in names]
    # From text, so that no Python process is started for a few rows.
    frame = spark.range(1).select(F.inline(F.from_json(F.lit(msgspec.json.encode(rows).decode()), _STRUCTURE)))
    try:
        frame.coalesce(1).write.format("delta").mode("append").save(path(lake))
    except (PySparkException, Py4JError) as error:
        # Two streams make the table at the same time: these are maintained once more.
        if not is_conflict(error):
            raise


def forget(spark: SparkSession, lake: LakeFile, stream: str, before: datetime) -> None:
    """Remove rows of a stream from before a time, when all of its tables were maintained since."""
    old = f"stream = {storage.text(stream)} AND maintained_at < timestamp_millis({int(before.timestamp() * 1000)})"
    spark.sql(f"DELETE FROM {storage.table(path(lake))} WHERE {old}")  # noqa: S608 - quoted.
