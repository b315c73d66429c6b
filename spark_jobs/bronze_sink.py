"""Where bronze's streaming batches go: each into one Delta commit with the note of its offsets, once.

Rows of a batch are ordered by table within each file, so reading one table touches that table's pages only; files follow
the source's own order, so a range of positions or time touches the files that hold it. Where tables have topics of their own, a
note also says the newest positions whose ends all topics have passed: that of a batch, or one without rows. Called by bronze.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from math import ceil
from threading import Lock
from time import monotonic

from pyspark.sql import DataFrame, SparkSession

from headrace.configuration.lake import LakeFile
from headrace.errors import ReplicationError, Retryable
from spark_jobs import delta_log, groups, offsets, tail, topics
from spark_jobs.envelope import ordered
from spark_jobs.failures import explained
from spark_jobs.kafka import Topic
from spark_jobs.offsets import Progress
from spark_jobs.topics import Reach

#: Records that are worth a file of their own, and a core of their own.
_RECORDS_PER_FILE = 1_000_000
_RECORDS_PER_CORE = 100_000
#: Seconds between two commits of offsets for lag tools, where a load never ends.
_MIRRORED_EVERY = 10.0
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


def mirror(lake: LakeFile, stream: str, progress: Progress) -> None:
    """Commit what bronze holds for its consumer group, so that lag tools see it."""
    for name, held in progress.topics.items():
        groups.mirror(lake.kafka, group(stream), name, held.offsets)


class Sink:
    """Commits streaming batches to the table, each once."""

    def __init__(
        self,
        spark: SparkSession,
        lake: LakeFile,
        stream: str,
        there: list[Topic],
        before: Progress,
        reach: Reach | None = None,
        tell: Callable[[int], None] | None = None,
        *,
        follows: bool = False,
    ) -> None:
        self.records = self.files = self.batches = 0
        known = {topic.name: replace(before.of(topic.name), id=topic.id) for topic in there}
        self.progress = replace(before, topics=known)
        self._spark, self._lake, self._stream, self._tell = spark, lake, stream, tell
        self._starts = {topic.name: topic.starts for topic in there}
        #: What the topics have not passed yet, or not noted, oldest first.
        self._reaches = [reach] if reach is not None else []
        self._follows = follows and reach is not None
        self._mirror_seconds = _MIRRORED_EVERY if follows else 0.0
        self._mirrored_at = 0.0
        #: Batches come in a thread of Spark's: notes must follow each other.
        self._lock = Lock()
        self._failure: ReplicationError | None = None
        self._ended = False

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
            with explained(f"bronze {self._stream}"), self._lock:
                if self._ended:
                    raise Retryable("the load has ended; the batch is the next one's")
                self._write(batch, number)
                if self._follows:
                    # Before Spark looks at what comes next, so that the next batch passes it.
                    self._observe()
        except ReplicationError as error:
            self._failure = error
            raise

    def end(self) -> None:
        """Take no more batches; return once the one that is being written is committed, and lag tools know."""
        self._ended = True
        with self._lock:
            if self.batches:
                mirror(self._lake, self._stream, self.progress)

    def _write(self, batch: DataFrame, number: int) -> None:
        checkpoint = checkpoint_path(self._lake, self._stream)
        query = offsets.query_of(self._spark, checkpoint)
        ends = offsets.of_batch(self._spark, checkpoint, number)
        new = sum(
            end - self.progress.of(name).offsets.get(p, self._starts[name].get(p, 0))
            for name, of_topic in ends.items()
            for p, end in of_topic.items()
        )
        known = {
            name: replace(held, offsets=ends.get(name, held.offsets)) for name, held in self.progress.topics.items()
        }
        after = replace(self.progress, topics=known, query=query, batch=number)
        # Delta passes over a batch that it has, note and all.
        if (self.progress.query, self.progress.batch) != (query, number):
            after = self._passed(after)
        path = table_path(self._lake, self._stream)
        (
            ordered(batch.coalesce(self._files(new)))
            .write.format("delta")
            .mode("append")
            .option("txnAppId", f"headrace.bronze.{self._stream}.{query}")
            .option("txnVersion", number)
            .option("userMetadata", offsets.note(self._stream, after))
            .option("delta.dataSkippingStatsColumns", _STATISTICS)
            .option(tail.FEED, "true")
            .save(path)
        )
        self.progress = after
        done = delta_log.metrics(self._spark, path)
        self.records += done.get("numOutputRows", 0)
        self.files += done.get("numFiles", 0)
        self.batches += 1
        if monotonic() >= self._mirrored_at + self._mirror_seconds:
            mirror(self._lake, self._stream, self.progress)
            self._mirrored_at = monotonic()
        if self._tell:
            self._tell(self.records)

    def settle(self) -> None:
        """Note, in a commit without rows, positions whose ends the table has passed and no batch has noted.

        Leaves it to a batch that is being written. Raises Retryable when a table's topic has appeared since a load that never
        ends began.
        """
        if not self._reaches or not self._lock.acquire(blocking=False):
            return
        try:
            if self._follows:
                self._observe()
            after, path = self._passed(self.progress), table_path(self._lake, self._stream)
            if after != self.progress and delta_log.is_table(self._spark, path):
                self._note(after, path)
                self.progress = after
        finally:
            self._lock.release()

    def _note(self, progress: Progress, path: str) -> None:
        rows = self._spark.read.format("delta").load(path).limit(0)
        (
            rows.write.format("delta")
            .mode("append")
            # Delta writes no commit in which there is nothing at all.
            .option("txnAppId", f"headrace.bronze.{self._stream}.reached")
            .option("txnVersion", delta_log.version(self._spark, path) + 1)
            .option("userMetadata", offsets.note(self._stream, progress))
            .save(path)
        )

    def _observe(self) -> None:
        found = topics.observe(self._lake, self._stream)
        assert found is not None, "asked of streams with a topic for each table alone"
        if fresh := sorted({place.topic for place in found.heads} - set(self.progress.topics)):
            raise Retryable(f"stream {self._stream!r} has new topics: {', '.join(fresh)}", hint="Load it again.")
        self._reaches.append(found)

    def _passed(self, progress: Progress) -> Progress:
        """Return the progress with the newest positions whose ends it has passed."""
        ends = {name: held.offsets for name, held in progress.topics.items()}
        passed = [number for number, reach in enumerate(self._reaches) if reach.passed(ends)]
        if not passed:
            return progress
        positions = dict(progress.positions or {})
        # The last one stays: a batch that fails has noted nothing.
        self._reaches = self._reaches[passed[-1] :]
        for source, position in self._reaches[0].positions.items():
            positions[source] = max(position, positions.get(source, ""))
        return replace(progress, positions=positions)

    def _files(self, records: int) -> int:
        """Return into how many files a batch goes: few, but no core idle."""
        cores = int(self._spark.sparkContext.defaultParallelism)
        return max(ceil(records / _RECORDS_PER_FILE), min(cores, ceil(records / _RECORDS_PER_CORE)), 1)
