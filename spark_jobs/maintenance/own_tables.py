"""Maintenance of the lake's own tables: `state`, `schemas`, `loads`, `verified`, `maintained`, which all streams share.

Their small files are put together, and those that were replaced longer ago than `keep_days` are removed. Of `loads` rows of a
stream go after a month, but for the newest of each source, and of `verified` all but the newest of each table. `maintained`
is read and written by maintenance alone. Called by maintain.py.
"""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime

import msgspec
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.

from headrace.configuration.lake import LakeFile
from spark_jobs import run_log, storage
from spark_jobs.errors import is_conflict
from spark_jobs.maintenance import vacuum
from spark_jobs.state import delta_log, log_files, published, retention, schema_texts
from spark_jobs.verify import report

#: Structure of `maintained`: when each table was maintained, a row for each time.
_STRUCTURE = "array<struct<stream: string, name: string, maintained_at: timestamp>>"


def maintain(session: SparkSession, lake: LakeFile, stream: str) -> None:
    """Compact, prune and vacuum them, in a session that is set for both."""
    if delta_log.is_table(session, run_log.path(lake)):
        _unless_overtaken(run_log.prune, session, lake, stream)
    if delta_log.is_table(session, report.path(lake)):
        _unless_overtaken(report.prune, session, lake)
    # `state` is compacted where its rows are pruned.
    own = [run_log.path(lake), schema_texts.path(lake), report.path(lake), _maintained(lake)]
    for path in (*own, published.path(lake)):
        if delta_log.is_table(session, path):
            _unless_overtaken(retention.ensure, session, path, retention.of_own())
            if path in own and not log_files.is_whole(session, path):
                _unless_overtaken(session.sql, f"OPTIMIZE {storage.table(path)}")
            vacuum.run(session, path, lake.lake.keep_days)


def _unless_overtaken(function: Callable[..., object], *given: object) -> None:
    """Change a table, unless the maintenance of another stream changes it at the same time."""
    try:
        function(*given)
    except (PySparkException, Py4JError) as error:
        if not is_conflict(error):
            raise


def _maintained(lake: LakeFile) -> str:
    return f"{lake.root}/maintained"


def times(spark: SparkSession, lake: LakeFile, stream: str) -> dict[str, datetime]:
    """Return when each table of a stream was maintained last, by the names that were recorded."""
    if not delta_log.is_table(spark, _maintained(lake)):
        return {}
    rows = spark.read.format("delta").load(_maintained(lake)).filter(F.col("stream") == stream)
    newest = rows.groupBy("name").agg(F.unix_millis(F.max("maintained_at")).alias("at"))
    return {row["name"]: datetime.fromtimestamp(row["at"] / 1000, UTC) for row in newest.collect()}


def record(spark: SparkSession, lake: LakeFile, stream: str, names: Iterable[str]) -> None:
    """Record that tables were maintained now."""
    now = datetime.now(UTC)
    rows = [{"stream": stream, "name": name, "maintained_at": now} for name in names]
    # From text, so that no Python process is started for a few rows.
    frame = spark.range(1).select(F.inline(F.from_json(F.lit(msgspec.json.encode(rows).decode()), _STRUCTURE)))
    try:
        frame.coalesce(1).write.format("delta").mode("append").save(_maintained(lake))
    except (PySparkException, Py4JError) as error:
        # Two streams make the table at the same time: these are maintained once more.
        if not is_conflict(error):
            raise


def forget(spark: SparkSession, lake: LakeFile, stream: str, before: datetime) -> None:
    """Remove rows of a stream from before a time: all of its tables were maintained since, and have newer ones."""
    old = f"stream = {storage.text(stream)} AND maintained_at < timestamp_millis({int(before.timestamp() * 1000)})"
    spark.sql(f"DELETE FROM {storage.table(_maintained(lake))} WHERE {old}")  # noqa: S608 - quoted.
