"""Bronze: a stream's records as they came, with the few fields of their envelope that everything later is chosen by.

Guarantees that each committed record of the stream's topics stands in the table exactly once, whenever the load dies: a batch and
the note of its offsets are one Delta commit, and a repeated batch is skipped by its transaction id. Assumes one load of a
stream at a time (a second one fails by conflict). The same code loads once (`availableNow`) or for good. Where tables have
topics of their own, the note says too up to where all of each source is in the table, which only all topics together tell.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from headrace.configuration.lake import LakeFile
from headrace.errors import Retryable
from spark_jobs import offsets, preflight, topics
from spark_jobs.bronze_sink import Sink, checkpoint_path, group, mirror, table_path
from spark_jobs.envelope import COLUMNS, records, rows
from spark_jobs.failures import explained
from spark_jobs.kafka import Topic
from spark_jobs.offsets import Progress
from spark_jobs.session import for_appending

__all__ = ["BronzeReport", "checkpoint_path", "following", "group", "load", "mirror", "reach", "table_path"]

#: Most records of a partition that one task reads, so that a topic of one partition keeps all cores busy.
_RECORDS_PER_TASK = 250_000
#: Seconds between two commits of a load that never ends. Each takes cores from silver and from questions; where a stream has one
#: topic live rows are read from Kafka (spark_jobs/kafka_tail.py), and nobody waits for bronze.
_EVERY, _EVERY_PER_TABLE = 5.0, 2.0

Tell = Callable[[int, int], None]
Ranges = dict[int, tuple[int, int]]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class BronzeReport:
    """What one load of bronze did."""

    stream: str
    topic: str
    #: Partition of the stream's own topic to the offsets before and after; partitions with nothing new are absent.
    ranges: Ranges = field(default_factory=dict)
    #: The same of the topics of tables, where they have their own.
    tables: dict[str, Ranges] = field(default_factory=dict)
    records: int = 0
    files: int = 0
    batches: int = 0
    seconds: float = 0.0


def load(
    spark: SparkSession, lake: LakeFile, stream: str, *, accept_gap: bool = False, tell: Tell | None = None
) -> BronzeReport:
    """Append everything that the topics have and the table has not; commit it batch by batch.

    Raises NeedsOperator when Kafka no longer holds what is needed (unless `accept_gap`), when a topic or the path is
    another one; NotConnected; CorruptInput for a value that is no record. `tell` hears records done and records in all.
    """
    began = monotonic()
    with explained(f"bronze {stream}"):
        reach = topics.observe(lake, stream)
        there = topics.ready(lake, stream, reach)
        before = _ready(spark, lake, stream, there, accept_gap=accept_gap)
        todo = topics.todo(before, there)
        hear = (lambda done: tell(min(done, todo), todo)) if tell else None
        sink = Sink(spark, lake, stream, there, before, reach, hear)
        if not todo:
            sink.settle()
            mirror(lake, stream, before)
            return BronzeReport(stream=stream, topic=there[0].name, seconds=monotonic() - began)
        with sink.failing():
            query = _start(spark, lake, stream, there, before, sink, few=False, availableNow=True)
            try:
                query.awaitTermination()
            finally:
                query.stop()
        sink.settle()
    ranges = {name: ranges_of(before, sink.progress, name) for name in sink.progress.topics}
    return BronzeReport(
        stream=stream,
        topic=there[0].name,
        ranges=ranges.pop(there[0].name),
        tables={name: found for name, found in ranges.items() if found},
        records=sink.records,
        files=sink.files,
        batches=sink.batches,
        seconds=monotonic() - began,
    )


def reach(spark: SparkSession, lake: LakeFile, stream: str) -> dict[str, str] | None:
    """Return up to where all of each source is in the table; None where a stream has one topic: all that is there counts.

    Asked before the version that is read, since later ones reach further.
    """
    per_table = lake.stream(stream).topic_per_table
    return offsets.reached(spark, table_path(lake, stream), topic_per_table=per_table)


def ranges_of(before: Progress, after: Progress, topic: str) -> Ranges:
    """Return the offsets of a topic before and after, in the partitions that had something new."""
    old = before.of(topic).offsets
    return {p: (old.get(p, 0), end) for p, end in after.of(topic).offsets.items() if end > old.get(p, 0)}


@contextmanager
def following(
    spark: SparkSession, lake: LakeFile, stream: str, *, accept_gap: bool = False, every: float | None = None
) -> Iterator[Callable[[], None]]:
    """Append what comes to the topics, a commit every so many seconds at most, until the block is left.

    Yields a function that raises what stopped it, if anything did, and notes up to where all of each source has come by now.
    Raises what `load` raises before the first record.
    """
    with explained(f"bronze {stream}"):
        reach = topics.observe(lake, stream)
        there = topics.described(lake, stream, reach)
        before = _ready(spark, lake, stream, there, accept_gap=accept_gap)
        sink = Sink(spark, lake, stream, there, before, reach, follows=True)
        # Its small jobs do not wait behind those of a MERGE.
        spark.sparkContext.setLocalProperty("spark.scheduler.pool", "bronze")
        try:
            every = every or (_EVERY_PER_TABLE if lake.stream(stream).topic_per_table else _EVERY)
            trigger = f"{round(every * 1000)} milliseconds"
            query = _start(spark, lake, stream, there, before, sink, few=True, processingTime=trigger)
        finally:
            spark.sparkContext.setLocalProperty("spark.scheduler.pool", None)

    def check() -> None:
        with explained(f"bronze {stream}"), sink.failing():
            if failure := query.exception():
                raise failure
            if not query.isActive:
                raise Retryable(f"bronze {stream}: the streaming query ended", hint="Run it again.")
            sink.settle()

    try:
        yield check
    finally:
        # In the middle of a batch Spark would tell of its own end as of an error.
        sink.end()
        query.stop()


def _ready(spark: SparkSession, lake: LakeFile, stream: str, there: list[Topic], *, accept_gap: bool) -> Progress:
    """Return what the table holds of the topics, with a checkpoint that agrees with it or none."""
    path = table_path(lake, stream)
    before = offsets.of_table(spark, path, stream, COLUMNS)
    names = {topic.name for topic in there}
    missing = [(topic.name, gap) for topic in there for gap in preflight.gaps(before.of(topic.name).offsets, topic)]
    if accept_gap:
        for name in sorted(set(before.topics) - names):
            _log.warning("bronze %s goes on without topic %s: accepted by the operator", stream, name)
        before = replace(before, topics={name: held for name, held in before.topics.items() if name in names})
    topics.check(lake, stream, before, there, path)
    if missing and not accept_gap:
        topics.check_retention(before, there, stream)
    for name, gap in missing:
        _log.warning("bronze %s goes on without topic %s, %s: accepted by the operator", stream, name, gap)
    checkpoint = checkpoint_path(lake, stream)
    # A query has the topics that it began with.
    if missing or set(before.topics) != names or not offsets.checkpoint_agrees(spark, checkpoint, before):
        offsets.set_aside(spark, checkpoint)
    return before


def _start(
    spark: SparkSession,
    lake: LakeFile,
    stream: str,
    there: list[Topic],
    before: Progress,
    sink: Sink,
    *,
    few: bool,
    **trigger: Any,
) -> StreamingQuery:
    """Start the streaming query; `few` when it takes what just came, rather than all that is there."""
    source = (
        records(for_appending(spark, few=few).readStream, lake.kafka)
        .option("subscribe", ",".join(topic.name for topic in there))
        .option("maxRecordsPerPartition", _RECORDS_PER_TASK)
        .option("startingOffsets", offsets.starting(before, {topic.name: topic.starts for topic in there}))
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
