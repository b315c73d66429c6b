"""Bronze loaded permanently: every few seconds, what has come to the topics since the table's newest note.

Guarantees what a single load guarantees. A round that was refused because another load ran begins again from the table's newest
note; whatever else goes wrong ends the thread and is raised by the next `check`. Called by a load that never ends.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread
from time import monotonic

from pyspark.sql import SparkSession

from headrace.configuration.lake import LakeFile
from spark_jobs.bronze import load as bronze
from spark_jobs.bronze.batches import next_batch
from spark_jobs.bronze.envelope import COLUMNS
from spark_jobs.bronze.sink import Sink, renew, table_path
from spark_jobs.errors import Conflict, explained
from spark_jobs.kafka import topics
from spark_jobs.kafka.client import Place
from spark_jobs.session import for_appending
from spark_jobs.state import offsets

#: Seconds between two commits of a load that never ends. Each takes cores from silver and from queries; where a stream has one
#: topic live rows are read from Kafka (kafka_increment.py), and nobody waits for bronze.
_EVERY, _EVERY_PER_TABLE = 5.0, 2.0
#: Seconds between two looks at the age of the table's note.
_LOOK_AT_NOTE = 60.0 * 60

_log = logging.getLogger(__name__)


@contextmanager
def following(
    spark: SparkSession, lake: LakeFile, stream: str, *, every: float | None = None
) -> Iterator[Callable[[], None]]:
    """Append what comes to the topics, a commit every so many seconds at most, until the block is left.

    Yields a function that raises what stopped it, if anything did. Raises what `bronze.load` raises before the first record.
    """
    every = every or (_EVERY_PER_TABLE if lake.stream(stream).topic_per_table else _EVERY)
    follower = _Follower(spark, lake, stream, every)
    follower.prepare()
    follower.start()
    try:
        yield follower.check
    finally:
        follower.end()


class _Follower(Thread):
    """Loads in rounds until it is ended or fails."""

    def __init__(self, spark: SparkSession, lake: LakeFile, stream: str, every: float) -> None:
        super().__init__(name=f"bronze-{stream}", daemon=True)
        # Few rows at a time.
        self._spark, self._aside = spark, for_appending(spark, few=True)
        self._lake, self._stream, self._every = lake, stream, every
        self._sink: Sink | None = None
        #: Ends of tables' topics that were the same before and after positions were read: passed, so no position is beyond.
        self._quiet: dict[Place, int] | None = None
        #: When the age of the table's note was last looked at.
        self._looked = monotonic()
        self._ended = Event()
        self._failure: Exception | None = None

    def prepare(self) -> Sink:
        """Read where the table ends, and check that Kafka goes on from there; return what commits from there on."""
        with explained(f"bronze {self._stream}"):
            held = offsets.of_table(
                self._aside, self._lake, table_path(self._lake, self._stream), self._stream, COLUMNS
            )
            there = topics.describe(self._lake, self._stream, topics.observe(self._lake, self._stream))
            bronze.checked(self._lake, self._stream, held, there, accept_gap=False)
        self._sink = Sink(self._aside, self._lake, self._stream, held, follows=True)
        return self._sink

    def run(self) -> None:
        """Load round after round."""
        # Its small jobs do not wait behind those of a MERGE.
        self._spark.sparkContext.setLocalProperty("spark.scheduler.pool", "bronze")
        try:
            while not self._ended.is_set():
                ends = monotonic() + self._every
                self._round()
                self._ended.wait(max(0.0, ends - monotonic()))
        except Exception as failure:  # noqa: BLE001 - raised in the thread that checks.
            self._failure = failure

    def check(self) -> None:
        """Raise what went wrong."""
        if self._failure is not None:
            raise self._failure

    def end(self) -> None:
        """Begin no more rounds; return once the batch that is being written is committed, and lag tools know."""
        self._ended.set()
        self.join()
        if self._sink is not None and self._sink.batches:
            self._sink.mirror()

    def _round(self) -> None:
        try:
            with explained(f"bronze {self._stream}"):
                self._load(self._sink or self.prepare())
        except Conflict as conflict:
            _log.info("%s; going on from what it committed", conflict.message)
            self._sink = None

    def _load(self, sink: Sink) -> None:
        if monotonic() >= self._looked + _LOOK_AT_NOTE:
            self._looked = monotonic()
            renew(self._aside, self._lake, self._stream, sink)
        reach = None
        if self._lake.stream(self._stream).topic_per_table:
            heads = topics.heads(self._lake, self._stream)
            if heads == self._quiet:
                # A request for each source, and for each topic: only when something came.
                return
            reach = topics.observe(self._lake, self._stream)
        there = topics.describe(self._lake, self._stream, reach)
        bronze.checked(self._lake, self._stream, sink.progress, there, accept_gap=False)
        sink.observed(reach)
        limit = self._lake.stream(self._stream).records_per_batch
        while not self._ended.is_set() and (batch := next_batch(sink.progress, there, limit)):
            sink.write(batch, there)
        sink.settle()
        if reach is not None and reach.heads == heads and not sink.waits:
            self._quiet = heads
