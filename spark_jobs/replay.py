"""Bronze done again from Kafka, and the point from which a replay begins: an offset, a position or a time at the source.

Bronze is one commit that puts what Kafka holds in the place of the rows from the point on: readers see the old rows until then,
and a replay that dies has changed nothing. Rows that Kafka no longer holds are never removed. Called by `headrace lake replay`.
"""

import json
from dataclasses import replace
from datetime import UTC, datetime
from time import monotonic

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.

from headrace.configuration.lake import LakeFile
from headrace.errors import ConfigurationError, NeedsOperator
from spark_jobs import bronze, delta_log, kafka, offsets, preflight
from spark_jobs.bronze import BronzeReport
from spark_jobs.envelope import COLUMNS, rows
from spark_jobs.failures import explained
from spark_jobs.silver import past
from spark_jobs.silver.published import Positions

_POSITION_LENGTH = 34


def of_bronze(spark: SparkSession, lake: LakeFile, stream: str, since: str | None) -> BronzeReport:
    """Read again from Kafka what bronze holds, from a point on, or all that Kafka still has of it.

    Raises NeedsOperator when Kafka no longer holds the point, or the topic is another one.
    """
    began = monotonic()
    with explained(f"replay bronze {stream}"):
        path = bronze.table_path(lake, stream)
        topic = kafka.describe(lake.kafka, lake.topic(stream))
        held = offsets.of_table(spark, path, stream, COLUMNS)
        if not held.offsets:
            raise NeedsOperator(f"bronze of stream {stream!r} is empty", hint=f"Run 'headrace lake load {stream}'.")
        preflight.check_identity(held.offsets, topic, topic_id=held.topic_id, table=path)
        starts = _offsets(spark, lake, stream, since) if since else {}
        starts = {p: starts.get(p, topic.starts[p]) for p, end in held.offsets.items()}
        if since:
            preflight.check_retention(starts, topic, stream=stream)
        starts = {p: start for p, start in starts.items() if start < held.offsets[p]}
        ends = {p: held.offsets[p] for p in starts}
        if starts:
            _overwrite(spark, lake, stream, topic, held, starts, ends)
        done = delta_log.metrics(spark, path) if starts else {}
    return BronzeReport(
        stream=stream,
        topic=topic.name,
        ranges={p: (start, ends[p]) for p, start in starts.items()},
        records=done.get("numOutputRows", 0),
        files=done.get("numFiles", 0),
        batches=min(1, len(starts)),
        seconds=monotonic() - began,
    )


def _overwrite(
    spark: SparkSession,
    lake: LakeFile,
    stream: str,
    topic: kafka.Topic,
    held: offsets.Progress,
    starts: dict[int, int],
    ends: dict[int, int],
) -> None:
    path = bronze.table_path(lake, stream)
    source = (
        spark.read.format("kafka")
        .options(**{f"kafka.{name}": value for name, value in lake.kafka.java().items()})
        .option("kafka.isolation.level", "read_committed")
        .option("failOnDataLoss", "true")
        .option("assign", json.dumps({topic.name: sorted(starts)}))
        .option("startingOffsets", json.dumps({topic.name: {str(p): offset for p, offset in starts.items()}}))
        .option("endingOffsets", json.dumps({topic.name: {str(p): offset for p, offset in ends.items()}}))
        .load()
    )
    places = " OR ".join(f"(partition = {p} AND offset >= {start})" for p, start in sorted(starts.items()))
    note = offsets.note(stream, topic.name, replace(held, rewritten=delta_log.version(spark, path) + 1))
    (
        rows(source)
        .withColumn("order", F.xxhash64("table"))
        .sortWithinPartitions("order")
        .drop("order")
        .write.format("delta")
        .mode("overwrite")
        .option("replaceWhere", places)
        .option("userMetadata", note)
        .save(path)
    )


def positions(spark: SparkSession, lake: LakeFile, stream: str, since: str) -> Positions:
    """Return each source's last position before a point: what silver is done again after."""
    frame = _bronze(spark, lake, stream)
    if "/" not in since and not since.replace(":", "").isdigit():
        return past.cuts(frame, moment(since))
    before = _before(lake, stream, since)
    found = frame.filter(F.col("op").isNotNull() & before).groupBy("source").agg(F.max("position").alias("position"))
    return {row["source"]: row["position"] for row in found.collect()}


def _offsets(spark: SparkSession, lake: LakeFile, stream: str, since: str) -> dict[int, int]:
    """Return the offset in each partition after the last row before a point."""
    frame = _bronze(spark, lake, stream)
    if "/" not in since and not since.replace(":", "").isdigit():
        reached = past.cuts(frame, moment(since))
        before = F.lit(False)
        for source, position in sorted(reached.items()):
            before |= (F.col("source") == source) & (F.col("position") <= position)
    else:
        before = _before(lake, stream, since)
    found = frame.groupBy("partition").agg(F.max(F.when(before, F.col("offset"))).alias("last")).collect()
    return {row["partition"]: row["last"] + 1 if row["last"] is not None else 0 for row in found}


def _bronze(spark: SparkSession, lake: LakeFile, stream: str) -> DataFrame:
    return spark.read.format("delta").load(bronze.table_path(lake, stream))


def _before(lake: LakeFile, stream: str, since: str) -> Column:
    """Return the condition of rows before an offset or a position; others' partitions and sources are all before it."""
    if "/" not in since:
        partition, _, offset = since.rpartition(":")
        return (F.col("partition") != int(partition or 0)) | (F.col("offset") < int(offset))
    source, _, position = since.rpartition("=")
    sources = lake.stream(stream).sources
    if len(position) != _POSITION_LENGTH or (source or sources[0]) not in sources or (not source and len(sources) > 1):
        raise ConfigurationError(
            f"{since!r} is no position of a source of stream {stream!r}",
            hint="Write it as SOURCE=POSITION, as 'headrace lake positions' shows them.",
        )
    return (F.col("source") != (source or sources[0])) | (F.col("position") < position)


def moment(text: str) -> datetime:
    """Return a moment as a person writes it; one without a zone is in UTC, as all times of the lake are."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise ConfigurationError(
            f"{text!r} is no moment", hint="Write it as 2026-01-31T09:15:00, in UTC, or with an offset: ...+07:00."
        ) from error
    return found if found.tzinfo else found.replace(tzinfo=UTC)
