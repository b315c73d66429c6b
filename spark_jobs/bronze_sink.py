"""Where bronze's streaming batches go: each into one Delta commit with the note of its offsets, once.

Rows of a batch are ordered by table within each file, so reading one table touches that table's pages only; files follow
the source's own order, so a range of positions or time touches the files that hold it. Called by bronze.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from math import ceil

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.

from headrace.configuration.lake import LakeFile
from headrace.errors import ReplicationError
from spark_jobs import delta_log, kafka, offsets, tail
from spark_jobs.failures import explained
from spark_jobs.offsets import Progress

#: Records that are worth a file of their own, and a core of their own.
_RECORDS_PER_FILE = 1_000_000
_RECORDS_PER_CORE = 100_000
#: Columns that a reader chooses files by.
_STATISTICS = "partition,offset,timestamp,source,table,op,position,commit_time"


def table_path(lake: LakeFile, stream: str) -> str:
    """Return where a stream's bronze table stands."""
    return f"{lake.root}/bronze/{stream}"


def checkpoint_path(lake: LakeFile, stream: str) -> str:
    """Return where the streaming checkpoint of a stream's bronze stands."""
    return f"{lake.root}/checkpoints/bronze/{stream}"


def group(stream: str) -> str:
    """Return the consumer group that mirrors the offsets of a stream's bronze."""
    return f"headrace.lake.{stream}"


class Sink:
    """Commits streaming batches to the table, each once."""

    def __init__(
        self,
        spark: SparkSession,
        lake: LakeFile,
        stream: str,
        topic: kafka.Topic,
        before: Progress,
        tell: Callable[[int], None] | None = None,
    ) -> None:
        self.records = self.files = self.batches = 0
        self.progress = replace(before, topic_id=topic.id)
        self._spark, self._lake, self._stream, self._topic, self._tell = spark, lake, stream, topic, tell
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
        new = sum(end - self.progress.offsets.get(p, self._topic.starts.get(p, 0)) for p, end in ends.items())
        self.progress = replace(self.progress, offsets=ends, query=query, batch=number)
        path = table_path(self._lake, self._stream)
        (
            # A hash sorts by radix and keeps the order of the log within a table.
            batch.coalesce(self._files(new))
            .withColumn("order", F.xxhash64("table"))
            .sortWithinPartitions("order")
            .drop("order")
            .write.format("delta")
            .mode("append")
            .option("txnAppId", f"headrace.bronze.{self._stream}.{query}")
            .option("txnVersion", number)
            .option("userMetadata", offsets.note(self._stream, self._topic.name, self.progress))
            .option("delta.dataSkippingStatsColumns", _STATISTICS)
            .option(tail.FEED, "true")
            .save(path)
        )
        done = delta_log.metrics(self._spark, path)
        self.records += done.get("numOutputRows", 0)
        self.files += done.get("numFiles", 0)
        self.batches += 1
        kafka.mirror(self._lake.kafka, group(self._stream), self._topic.name, ends)
        if self._tell:
            self._tell(self.records)

    def _files(self, records: int) -> int:
        """Return into how many files a batch goes: few, but no core idle."""
        cores = int(self._spark.sparkContext.defaultParallelism)
        return max(ceil(records / _RECORDS_PER_FILE), min(cores, ceil(records / _RECORDS_PER_CORE)), 1)
