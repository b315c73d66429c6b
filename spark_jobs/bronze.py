"""Bronze: a stream's records as they came, with the few fields of their envelope that everything later is chosen by.

Guarantees that each committed record of the topic stands in the table exactly once, whenever the load dies: a batch and
the note of its offsets are one Delta commit, and a repeated batch is skipped by its transaction id. Assumes one load of a
stream at a time (a second one fails by conflict). The same code loads once (`availableNow`) or for good.

Rows of a batch are ordered by table within each file, so reading one table touches that table's pages only; files follow
the source's own order, so a range of positions or time touches the files that hold it.
"""

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import ceil
from time import monotonic

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.

from headrace.configuration.lake import LakeFile
from headrace.errors import ReplicationError
from spark_jobs import delta_log, kafka, offsets, preflight
from spark_jobs.envelope import COLUMNS, rows
from spark_jobs.failures import explained
from spark_jobs.offsets import Progress

#: Records that are worth a file of their own, and a core of their own.
_RECORDS_PER_FILE = 1_000_000
_RECORDS_PER_CORE = 100_000
#: Most records of a partition that one task reads, so that a topic of one partition keeps all cores busy.
_RECORDS_PER_TASK = 250_000
#: Columns that a reader chooses files by.
_STATISTICS = "partition,offset,timestamp,source,table,op,position,commit_time"

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


def table_path(lake: LakeFile, stream: str) -> str:
    """Return where a stream's bronze table stands."""
    return f"{lake.root}/bronze/{stream}"


def checkpoint_path(lake: LakeFile, stream: str) -> str:
    """Return where the streaming checkpoint of a stream's bronze stands."""
    return f"{lake.root}/checkpoints/bronze/{stream}"


def group(stream: str) -> str:
    """Return the consumer group that mirrors the offsets of a stream's bronze."""
    return f"headrace.lake.{stream}"


def load(
    spark: SparkSession, lake: LakeFile, stream: str, *, accept_gap: bool = False, tell: Tell | None = None
) -> BronzeReport:
    """Append everything that the topic has and the table has not; commit it batch by batch.

    Raises NeedsOperator when Kafka no longer holds what is needed (unless `accept_gap`), when the topic or the path is
    another one; NotConnected; CorruptInput for a value that is no record. `tell` hears records done and records in all.
    """
    began = monotonic()
    topic = kafka.describe(lake.kafka, lake.topic(stream))
    step = f"bronze {stream}"
    with explained(step):
        path = table_path(lake, stream)
        before = offsets.of_table(spark, path, stream, COLUMNS)
        preflight.check_identity(before.offsets, topic, topic_id=before.topic_id, table=path)
        missing = preflight.gaps(before.offsets, topic)
        if missing and not accept_gap:
            preflight.check_retention(before.offsets, topic, stream=stream)
        for gap in missing:
            _log.warning("%s goes on without %s: accepted by the operator", step, gap)
        todo = sum(max(0, end - before.offsets.get(p, 0)) for p, end in topic.ends.items())
        if not todo:
            kafka.mirror(lake.kafka, group(stream), topic.name, before.offsets)
            return BronzeReport(stream=stream, topic=topic.name, seconds=monotonic() - began)
        checkpoint = checkpoint_path(lake, stream)
        if missing or not offsets.checkpoint_agrees(spark, checkpoint, before):
            offsets.set_aside(spark, checkpoint)
        sink = _Sink(spark, lake, stream, topic, todo, tell)
        with sink.failing():
            _start(spark, lake, stream, topic, before, sink)
    after = sink.progress.offsets or before.offsets
    return BronzeReport(
        stream=stream,
        topic=topic.name,
        ranges={p: (before.offsets.get(p, 0), end) for p, end in after.items() if end > before.offsets.get(p, 0)},
        records=sink.records,
        files=sink.files,
        batches=sink.batches,
        seconds=monotonic() - began,
    )


def _start(
    spark: SparkSession, lake: LakeFile, stream: str, topic: kafka.Topic, before: Progress, sink: "_Sink"
) -> None:
    """Run the streaming query until it has read what the topic had when it began."""
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
    query = (
        rows(source)
        .writeStream.queryName(f"bronze-{stream}")
        .option("checkpointLocation", checkpoint_path(lake, stream))
        .trigger(availableNow=True)
        .foreachBatch(sink.write)
        .start()
    )
    try:
        query.awaitTermination()
    finally:
        query.stop()


class _Sink:
    """Commits streaming batches to the table, each once."""

    def __init__(
        self, spark: SparkSession, lake: LakeFile, stream: str, topic: kafka.Topic, todo: int, tell: Tell | None
    ) -> None:
        self.records = self.files = self.batches = 0
        self.progress = Progress(topic_id=topic.id)
        self._spark, self._lake, self._stream, self._topic = spark, lake, stream, topic
        self._todo, self._tell = todo, tell
        self._failure: ReplicationError | None = None

    @contextmanager
    def failing(self) -> Iterator[None]:
        """Raise what went wrong inside a batch as it was, not as Spark retells it."""
        try:
            yield
        except Exception:
            if self._failure is not None:
                raise self._failure from None
            raise

    def write(self, batch: DataFrame, number: int) -> None:
        """Commit one batch with its note; do nothing when it is committed already."""
        try:
            with explained(f"bronze {self._stream}"):
                self._write(batch, number)
        except ReplicationError as error:
            self._failure = error
            raise

    def _write(self, batch: DataFrame, number: int) -> None:
        checkpoint = checkpoint_path(self._lake, self._stream)
        query = offsets.query_of(self._spark, checkpoint)
        ends = offsets.of_batch(self._spark, checkpoint, number, self._topic.name)
        self.progress = replace(self.progress, offsets=ends, query=query, batch=number)
        path = table_path(self._lake, self._stream)
        (
            # A hash sorts by radix and keeps the order of the log within a table.
            batch.coalesce(self._files())
            .withColumn("order", F.xxhash64("table"))
            .sortWithinPartitions("order")
            .drop("order")
            .write.format("delta")
            .mode("append")
            .option("txnAppId", f"headrace.bronze.{self._stream}.{query}")
            .option("txnVersion", number)
            .option("userMetadata", offsets.note(self._stream, self._topic.name, self.progress))
            .option("delta.dataSkippingStatsColumns", _STATISTICS)
            .save(path)
        )
        done = delta_log.metrics(self._spark, path)
        self.records += done.get("numOutputRows", 0)
        self.files += done.get("numFiles", 0)
        self.batches += 1
        kafka.mirror(self._lake.kafka, group(self._stream), self._topic.name, ends)
        if self._tell:
            self._tell(min(self.records, self._todo), self._todo)

    def _files(self) -> int:
        """Return into how many files a batch goes: few, but no core idle."""
        records = min(self._todo, self._lake.stream(self._stream).records_per_batch)
        cores = int(self._spark.sparkContext.defaultParallelism)
        return max(ceil(records / _RECORDS_PER_FILE), min(cores, ceil(records / _RECORDS_PER_CORE)), 1)
