"""Bronze: a stream's records as they came, with the few fields of their envelope that everything later is chosen by.

Guarantees that each committed record of the topic stands in the table exactly once, whenever the load dies: a batch and
the note of its offsets are one Delta commit, and a repeated batch is skipped by its transaction id. Assumes one load of a
stream at a time (a second one fails by conflict). The same code loads once (`availableNow`) or for good.
"""

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from headrace.configuration.lake import LakeFile
from headrace.errors import Retryable
from spark_jobs import kafka, offsets, preflight
from spark_jobs.bronze_sink import Sink, checkpoint_path, group, table_path
from spark_jobs.envelope import COLUMNS, rows
from spark_jobs.failures import explained
from spark_jobs.offsets import Progress

__all__ = ["BronzeReport", "checkpoint_path", "following", "group", "load", "table_path"]

#: Most records of a partition that one task reads, so that a topic of one partition keeps all cores busy.
_RECORDS_PER_TASK = 250_000

Tell = Callable[[int, int], None]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class BronzeReport:
    """What one load of bronze did."""

    stream: str
    topic: str
    #: Partition to the offsets before and after; partitions with nothing new are absent.
    ranges: dict[int, tuple[int, int]] = field(default_factory=dict)
    records: int = 0
    files: int = 0
    batches: int = 0
    seconds: float = 0.0


def load(
    spark: SparkSession, lake: LakeFile, stream: str, *, accept_gap: bool = False, tell: Tell | None = None
) -> BronzeReport:
    """Append everything that the topic has and the table has not; commit it batch by batch.

    Raises NeedsOperator when Kafka no longer holds what is needed (unless `accept_gap`), when the topic or the path is
    another one; NotConnected; CorruptInput for a value that is no record. `tell` hears records done and records in all.
    """
    began = monotonic()
    with explained(f"bronze {stream}"):
        topic, before = _ready(spark, lake, stream, accept_gap=accept_gap)
        todo = sum(max(0, end - before.offsets.get(p, 0)) for p, end in topic.ends.items())
        if not todo:
            kafka.mirror(lake.kafka, group(stream), topic.name, before.offsets)
            return BronzeReport(stream=stream, topic=topic.name, seconds=monotonic() - began)
        hear = (lambda done: tell(min(done, todo), todo)) if tell else None
        sink = Sink(spark, lake, stream, topic, before, hear)
        with sink.failing():
            query = _start(spark, lake, stream, topic, before, sink, availableNow=True)
            try:
                query.awaitTermination()
            finally:
                query.stop()
    after = sink.progress.offsets
    return BronzeReport(
        stream=stream,
        topic=topic.name,
        ranges={p: (before.offsets.get(p, 0), end) for p, end in after.items() if end > before.offsets.get(p, 0)},
        records=sink.records,
        files=sink.files,
        batches=sink.batches,
        seconds=monotonic() - began,
    )


@contextmanager
def following(
    spark: SparkSession, lake: LakeFile, stream: str, *, accept_gap: bool = False, every: float = 1.0
) -> Iterator[Callable[[], None]]:
    """Append what comes to the topic, a commit every so many seconds at most, until the block is left.

    Yields a function that raises what stopped it, if anything did; raises what `load` raises before the first record.
    """
    with explained(f"bronze {stream}"):
        topic, before = _ready(spark, lake, stream, accept_gap=accept_gap)
        sink = Sink(spark, lake, stream, topic, before)
        # Its small jobs do not wait behind those of a MERGE.
        spark.sparkContext.setLocalProperty("spark.scheduler.pool", "bronze")
        try:
            query = _start(
                spark, lake, stream, topic, before, sink, processingTime=f"{round(every * 1000)} milliseconds"
            )
        finally:
            spark.sparkContext.setLocalProperty("spark.scheduler.pool", None)

    def check() -> None:
        with explained(f"bronze {stream}"), sink.failing():
            if failure := query.exception():
                raise failure
            if not query.isActive:
                raise Retryable(f"bronze {stream}: the streaming query ended", hint="Run it again.")

    try:
        yield check
    finally:
        query.stop()


def _ready(spark: SparkSession, lake: LakeFile, stream: str, *, accept_gap: bool) -> tuple[kafka.Topic, Progress]:
    """Return the topic and what the table holds, with a checkpoint that agrees with it or none."""
    topic = kafka.describe(lake.kafka, lake.topic(stream))
    path = table_path(lake, stream)
    before = offsets.of_table(spark, path, stream, COLUMNS)
    preflight.check_one_topic(before.offsets, topic, lambda: kafka.tables_of(lake.kafka, topic.name))
    preflight.check_identity(before.offsets, topic, topic_id=before.topic_id, table=path)
    missing = preflight.gaps(before.offsets, topic)
    if missing and not accept_gap:
        preflight.check_retention(before.offsets, topic, stream=stream)
    for gap in missing:
        _log.warning("bronze %s goes on without %s: accepted by the operator", stream, gap)
    checkpoint = checkpoint_path(lake, stream)
    if missing or not offsets.checkpoint_agrees(spark, checkpoint, before):
        offsets.set_aside(spark, checkpoint)
    return topic, before


def _start(
    spark: SparkSession,
    lake: LakeFile,
    stream: str,
    topic: kafka.Topic,
    before: Progress,
    sink: Sink,
    **trigger: Any,
) -> StreamingQuery:
    """Start the streaming query."""
    source = (
        spark.readStream.format("kafka")
        .options(**{f"kafka.{name}": value for name, value in lake.kafka.java().items()})
        .option("subscribe", topic.name)
        .option("kafka.isolation.level", "read_committed")
        .option("failOnDataLoss", "true")
        .option("maxRecordsPerPartition", _RECORDS_PER_TASK)
        .option("startingOffsets", json.dumps({topic.name: json.loads(offsets.starting(before, topic.starts))}))
        .option("maxOffsetsPerTrigger", lake.stream(stream).records_per_batch)
        .load()
    )
    return (
        rows(source)
        .writeStream.queryName(f"bronze-{stream}")
        .option("checkpointLocation", checkpoint_path(lake, stream))
        .trigger(**trigger)
        .foreachBatch(sink.write)
        .start()
    )
