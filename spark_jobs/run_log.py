"""`headrace.loads`: a row for each step of a load that did something: ranges, rows, files, seconds, lag in time.

Lag is the time from a change's commit at the source to the end of the step that brought it, for the newest change of each source.
What is recorded here is never read by a load, and a row that cannot be written fails none. Called by load.py, and by maintenance,
which removes rows of long ago.
"""

import json
import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.

from headrace.configuration.lake import LakeFile
from headrace.errors import ReplicationError
from spark_jobs import storage
from spark_jobs.bronze import load as bronze
from spark_jobs.bronze.load import BronzeReport
from spark_jobs.errors import explained
from spark_jobs.silver import table_task
from spark_jobs.silver.load import SilverReport
from spark_jobs.state import delta_log

_STRUCTURE = (
    "stream string, step string, load bigint, started_at timestamp, finished_at timestamp, seconds double, `rows` bigint, "
    "files bigint, batches bigint, offsets array<struct<`partition`: int, first: bigint, last: bigint, `topic`: string>>, "
    "sources array<struct<source: string, `after`: string, upto: string, commit_time: timestamp, lag_seconds: double>>, "
    "tables array<struct<`table`: string, changes: bigint, problem: string>>"
)
#: What Delta calls the files that a commit added: of a MERGE, of an append.
_ADDED = ("numTargetFilesAdded", "numFiles")
#: After this many commits the small files of the table are put together, but not those that were put together before.
_COMPACT_EVERY = 100
_SMALL = ("spark.databricks.delta.optimize.minFileSize", str(256 * 1024))
#: Days for which rows are kept.
_KEPT = 31
#: Ranges of offsets that a condition spells out one by one, by which Delta chooses files.
_FEW_RANGES = 100

_log = logging.getLogger(__name__)

Row = dict[str, Any]


def path(lake: LakeFile) -> str:
    """Return the path of the table."""
    return f"{lake.root}/loads"


def record(
    spark: SparkSession, lake: LakeFile, raw: BronzeReport | None, current: SilverReport | None
) -> dict[str, float]:
    """Append a row for each step that did something, and log it; return the lag of each source in seconds."""
    try:
        with explained("headrace.loads"):
            rows = [_of_bronze(spark, lake, raw)] if raw is not None and raw.records else []
            rows += [_of_silver(spark, lake, current)] if current is not None and current.load is not None else []
            if rows:
                _append(spark, lake, rows)
    except ReplicationError as error:
        _log.warning("the load is done, but not recorded: %s", error.message)
        return {}
    for row in rows:
        _log.info("%s", line(row))
    return {source["source"]: source["lag_seconds"] for source in rows[-1]["sources"]} if rows else {}


def line(row: Row) -> str:
    """Return a row as a line of the log."""
    ranges = [f"{span['topic']}/{span['partition']}: {span['first']} to {span['last']}" for span in row["offsets"]]
    ranges += [
        f"{source['source']}: to {source['upto']}, {source['lag_seconds']:.1f} s old" for source in row["sources"]
    ]
    done = f"{row['rows']} rows, {row['files']} files, {row['seconds']:.1f} s"
    return f"{row['step']} {row['stream']}: {done}; {'; '.join(ranges)}"


def _of_bronze(spark: SparkSession, lake: LakeFile, done: BronzeReport) -> Row:
    inside = F.lit(False)
    ranges = [
        (topic, partition, start, end - 1)
        for topic, topic_ranges in [(done.topic, done.ranges), *sorted(done.tables.items())]
        for partition, (start, end) in sorted(topic_ranges.items())
    ]
    if len(ranges) <= _FEW_RANGES:
        for topic, partition, first, last in ranges:
            place = (F.col("topic") == topic) & (F.col("partition") == partition)
            inside |= place & F.col("offset").between(first, last)
    else:
        # As data: an expression for each would overflow the driver where there are thousands of topics.
        listed = F.from_json(F.lit(json.dumps(ranges)), "array<array<string>>")
        inside = F.exists(
            listed,
            lambda span: (
                (span[0] == F.col("topic"))
                & (span[1].cast("int") == F.col("partition"))
                & F.col("offset").between(span[2].cast("long"), span[3].cast("long"))
            ),
        )
    newest = _newest(spark, lake, done.stream, inside)
    return _row(
        done.stream,
        "bronze",
        None,
        done.seconds,
        rows=done.records,
        files=done.files,
        batches=done.batches,
        offsets=[
            {"partition": partition, "first": first, "last": last, "topic": topic}
            for topic, partition, first, last in ranges
        ],
        sources=_sources({source: ("", upto) for source, (upto, _) in newest.items()}, newest),
        tables=[],
    )


def _of_silver(spark: SparkSession, lake: LakeFile, done: SilverReport) -> Row:
    newest = {
        source: (done.ranges[source][1], datetime.fromtimestamp(at / 1000, UTC))
        for source, at in done.committed_ms.items()
    }
    if unknown := done.ranges.keys() - newest.keys():
        inside = F.lit(False)
        for source in sorted(unknown):
            inside |= (F.col("source") == source) & (F.col("position") == done.ranges[source][1])
        newest |= _newest(spark, lake, done.stream, inside)
    added = [delta_log.metrics(spark, table_task.path(lake, done.stream, name)) for name in done.changes]
    return _row(
        done.stream,
        "silver",
        done.load,
        done.seconds,
        rows=sum(done.changes.values()),
        files=sum(next((metrics[name] for name in _ADDED if name in metrics), 0) for metrics in added),
        batches=1,
        offsets=[],
        sources=_sources(done.ranges, newest),
        tables=[
            {"table": name, "changes": done.changes.get(name, 0), "problem": done.problems.get(name)}
            for name in sorted(done.changes | done.problems)
        ],
    )


def _newest(spark: SparkSession, lake: LakeFile, stream: str, inside: Column) -> dict[str, tuple[str, datetime]]:
    """Return the newest position and commit time of each source in some rows of bronze."""
    rows = (
        spark.read.format("delta").load(bronze.table_path(lake, stream)).where(inside & F.col("position").isNotNull())
    )
    newest = rows.groupBy("source").agg(
        F.max("position").alias("position"), F.unix_millis(F.max("commit_time")).alias("at")
    )
    return {row["source"]: (row["position"], datetime.fromtimestamp(row["at"] / 1000, UTC)) for row in newest.collect()}


def _sources(ranges: dict[str, tuple[str, str]], newest: dict[str, tuple[str, datetime]]) -> list[Row]:
    now = datetime.now(UTC)
    return [
        {
            "source": source,
            "after": after or None,
            "upto": upto,
            "commit_time": newest[source][1],
            "lag_seconds": (now - newest[source][1]).total_seconds(),
        }
        for source, (after, upto) in sorted(ranges.items())
        if source in newest
    ]


def _row(stream: str, step: str, load: int | None, seconds: float, **fields: Any) -> Row:
    now = datetime.now(UTC)
    return {
        "stream": stream,
        "step": step,
        "load": load,
        "started_at": now - timedelta(seconds=seconds),
        "finished_at": now,
        "seconds": seconds,
        **fields,
    }


def _append(spark: SparkSession, lake: LakeFile, rows: list[Row]) -> None:
    # Refuses a folder that holds something else.
    delta_log.is_table(spark, path(lake))
    # From text, so that no Python process is started for a few rows.
    parsed = (F.from_json(F.lit(msgspec.json.encode(row).decode()), _STRUCTURE) for row in rows)
    frame = spark.range(1).select(F.inline(F.array(*parsed)))
    # A lake made by an earlier release lacks what is recorded since.
    frame.coalesce(1).write.format("delta").mode("append").option("mergeSchema", "true").save(path(lake))
    if delta_log.version(spark, path(lake)) % _COMPACT_EVERY == _COMPACT_EVERY - 1:
        session = spark.newSession()
        session.conf.set(*_SMALL)
        session.sql(f"OPTIMIZE {storage.table(path(lake))}")


def prune(spark: SparkSession, lake: LakeFile, stream: str) -> None:
    """Remove a stream's rows of more than a month ago, but for those that brought a source to where it is."""
    old = datetime.now(UTC) - timedelta(days=_KEPT)
    rows = spark.read.format("delta").load(path(lake)).filter(F.col("stream") == stream)
    if rows.filter(F.col("finished_at") < F.lit(old)).isEmpty():
        return
    reached = rows.select("step", "finished_at", F.explode("sources").alias("one"))
    newest = reached.groupBy("step", "one.source").agg(F.max_by(F.unix_micros("finished_at"), "one.upto").alias("at"))
    kept = ", ".join(str(row["at"]) for row in newest.collect()) or "0"
    long_ago = (
        f"finished_at < timestamp_millis({int(old.timestamp() * 1000)}) AND unix_micros(finished_at) NOT IN ({kept})"
    )
    spark.sql(f"DELETE FROM {storage.table(path(lake))} WHERE stream = {storage.text(stream)} AND {long_ago}")  # noqa: S608 - quoted.
