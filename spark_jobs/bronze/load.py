"""Bronze: a stream's records as they came, with the few fields of their envelope that everything later is chosen by.

Guarantees that each committed record of the stream's topics is in the table exactly once, whenever a load dies and however many
run at the same time: every batch is read from the offsets noted in the table's own newest commit, and is one Delta commit with a
note of its own; of two loads that follow the same note the second one is refused. Where tables have topics of their own, the note
also has up to where all of each source is in the table.

The same code loads once, or permanently in a thread (`following`): what has come since the table's newest note, every few seconds
and ahead of each load of silver.
A round that was refused because another load ran begins again from that note; whatever else goes wrong ends the thread and is
raised by the next `check`.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from threading import Condition, Event, Thread
from time import monotonic

from pyspark.sql import SparkSession

from headrace.configuration.lake import LakeFile
from spark_jobs.bronze.envelope import COLUMNS
from spark_jobs.bronze.sink import Sink, group, mirror, renew, table_path
from spark_jobs.errors import Conflict, explained
from spark_jobs.kafka import requests, topics
from spark_jobs.kafka.client import Place, Topic
from spark_jobs.kafka.topics import Ranges, held_after, next_batch
from spark_jobs.session import carry, for_appending
from spark_jobs.state import offsets
from spark_jobs.state.offsets import Progress

__all__ = ["BronzeReport", "Ranges", "group", "load", "mirror", "reach", "table_path"]

OnProgress = Callable[[int, int], None]

_log = logging.getLogger(__name__)
#: Seconds between two commits of a load that never ends, but for those ahead of silver's loads. Each takes cores from silver and
#: from queries; where a stream has one topic live rows are read from Kafka (increment.py), and nobody waits for bronze.
_EVERY, _EVERY_PER_TABLE = 10.0, 2.0
#: Seconds between two looks at the age of the table's note.
_LOOK_AT_NOTE = 60.0 * 60


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
    #: Records that were no records of ours, or named another source than their partition's, by that source: they are in the
    #: table `quarantine`, and not in bronze.
    quarantined: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0


def load(
    spark: SparkSession, lake: LakeFile, stream: str, *, accept_gap: bool = False, on_progress: OnProgress | None = None
) -> BronzeReport:
    """Append everything that the topics have and the table has not; commit it batch by batch.

    Raises NeedsOperator when Kafka no longer holds what is needed (unless `accept_gap`), when a topic or the path is
    another one; Conflict, which is retryable, when another load ran at the same time; NotConnected; CorruptInput for a value that
    is no record. `on_progress` receives records done and records in all.
    """
    began = monotonic()
    with explained(f"bronze {stream}"):
        reach = topics.observe(lake, stream)
        there = topics.ready(lake, stream, reach)
        held = offsets.of_table(spark, lake, table_path(lake, stream), stream, COLUMNS)
        if topics.behind(held, there):
            # Another load has gone on since Kafka's ends were read.
            there = topics.describe(lake, stream, reach)
        before = checked(lake, stream, held, there, accept_gap=accept_gap)
        todo = topics.todo(before, there)
        report = (lambda done: on_progress(min(done, todo), todo)) if on_progress else None
        sink = Sink(for_appending(spark, few=False), lake, stream, before, report)
        sink.observed(reach)
        while batch := next_batch(sink.progress, there, lake.stream(stream).records_per_batch):
            sink.write(batch, there)
        sink.settle()
        after = held_after(sink.progress, there, {})
        if accept_gap and not sink.batches and after.topics != held.topics:
            # Nothing to read after a gap: without a note the next load would be refused again.
            sink.note(after)
        if not sink.batches:
            renew(spark, lake, stream, sink)
            sink.mirror()
    ranges = {name: ranges_of(before, sink.progress, name) for name in sink.progress.topics}
    return BronzeReport(
        stream=stream,
        topic=there[0].name,
        ranges=ranges.pop(there[0].name, {}),
        tables={name: changed for name, changed in ranges.items() if changed},
        records=sink.records,
        files=sink.files,
        batches=sink.batches,
        quarantined=sink.quarantined,
        seconds=monotonic() - began,
    )


def reach(spark: SparkSession, lake: LakeFile, stream: str, version: int | None = None) -> dict[str, str] | None:
    """Return up to where all of each source is in the table; None where a stream has one topic: all that is there counts.

    Of the version that is read: a later one may reach less far, where a topic has joined that could not be seen before.
    """
    per_table = lake.stream(stream).topic_per_table
    return offsets.read_reached(spark, table_path(lake, stream), topic_per_table=per_table, version=version)


def ranges_of(before: Progress, after: Progress, topic: str) -> Ranges:
    """Return the offsets of a topic before and after, in the partitions that had something new."""
    old = before.of(topic).offsets
    return {p: (old.get(p, 0), end) for p, end in after.of(topic).offsets.items() if end > old.get(p, 0)}


def checked(lake: LakeFile, stream: str, held: Progress, there: list[Topic], *, accept_gap: bool) -> Progress:
    """Return what is held, once it is known that Kafka's topics are the same and go on from there; see `load`."""
    names = {topic.name for topic in there}
    missing = [(topic.name, gap) for topic in there for gap in requests.gaps(held.of(topic.name).offsets, topic)]
    if accept_gap:
        for name in sorted(set(held.topics) - names):
            _log.warning("bronze %s goes on without topic %s: accepted by the operator", stream, name)
        held = replace(held, topics={name: progress for name, progress in held.topics.items() if name in names})
    topics.check(lake, stream, held, there, table_path(lake, stream))
    if missing and not accept_gap:
        topics.check_retention(held, there, stream)
    for name, gap in missing:
        _log.warning("bronze %s goes on without topic %s, %s: accepted by the operator", stream, name, gap)
    return held


@contextmanager
def following(spark: SparkSession, lake: LakeFile, stream: str, *, every: float | None = None) -> Iterator["Follower"]:
    """Append what comes to the topics, a commit every so many seconds at most, until the block is left.

    Yields what does it. Raises what `bronze.load` raises before the first record.
    """
    every = every or (_EVERY_PER_TABLE if lake.stream(stream).topic_per_table else _EVERY)
    follower = Follower(spark, lake, stream, every)
    follower.prepare()
    follower.start()
    try:
        yield follower
    finally:
        follower.end()


class Follower(Thread):
    """Loads in rounds until it is ended or fails: every so many seconds, and when it is asked to."""

    def __init__(self, spark: SparkSession, lake: LakeFile, stream: str, every: float) -> None:
        super().__init__(name=f"bronze-{stream}", daemon=True)
        # Few rows at a time.
        self._spark, self._aside = spark, for_appending(spark, few=True)
        self._begin = carry(spark)
        self._lake, self._stream, self._every = lake, stream, every
        self._sink: Sink | None = None
        #: Ends of tables' topics that were the same before and after positions were read: passed, so no position is beyond.
        self._quiet: dict[Place, int] | None = None
        #: When the age of the table's note was last looked at.
        self._looked = monotonic()
        self._ended = Event()
        #: Guards whether a round is wanted at once, and how many have begun and ended.
        self._turn = Condition()
        self._is_wanted, self._begun, self._done = False, 0, 0
        self._failure: Exception | None = None

    def prepare(self) -> Sink:
        """Read where the table ends, and check that Kafka goes on from there; return what commits from there on."""
        with explained(f"bronze {self._stream}"):
            held = offsets.of_table(
                self._aside, self._lake, table_path(self._lake, self._stream), self._stream, COLUMNS
            )
            there = topics.describe(self._lake, self._stream, topics.observe(self._lake, self._stream))
            checked(self._lake, self._stream, held, there, accept_gap=False)
        self._sink = Sink(self._aside, self._lake, self._stream, held, follows=True)
        return self._sink

    def run(self) -> None:
        """Load round after round."""
        try:
            self._begin()
            # Its small jobs do not wait behind those of a MERGE.
            self._spark.sparkContext.setLocalProperty("spark.scheduler.pool", "bronze")
            while not self._ended.is_set():
                ends = monotonic() + self._every
                with self._turn:
                    self._is_wanted, self._begun = False, self._begun + 1
                self._round()
                with self._turn:
                    self._done = self._begun
                    self._turn.notify_all()
                    self._turn.wait_for(lambda: self._is_wanted or self._ended.is_set(), max(0.0, ends - monotonic()))
        except Exception as failure:  # noqa: BLE001 - raised in the thread that checks.
            self._failure = failure
        finally:
            with self._turn:
                self._done = self._begun + 1
                self._turn.notify_all()

    def catch_up(self, seconds: float) -> None:
        """Append what is there now: begin a round, and wait for its end, or so many seconds. Raises as `check` does."""
        with self._turn:
            self._is_wanted, following = True, self._begun + 1
            self._turn.notify_all()
            self._turn.wait_for(lambda: self._done >= following, seconds)
        self.check()

    def check(self) -> None:
        """Raise what went wrong."""
        if self._failure is not None:
            raise self._failure

    def end(self) -> None:
        """Begin no more rounds; return once the batch that is being written is committed, and lag tools know."""
        with self._turn:
            self._ended.set()
            self._turn.notify_all()
        self.join()
        if self._sink is not None and self._sink.batches:
            self._sink.mirror()

    def _round(self) -> None:
        # Twice, where another load has committed meanwhile; then the next round goes on.
        for _ in range(2):
            try:
                with explained(f"bronze {self._stream}"):
                    self._load(self._sink or self.prepare())
            except Conflict as conflict:
                _log.info("%s; going on from what it committed", conflict.message)
                self._sink = None
            else:
                return

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
        checked(self._lake, self._stream, sink.progress, there, accept_gap=False)
        sink.observed(reach)
        limit = self._lake.stream(self._stream).records_per_batch
        while not self._ended.is_set() and (batch := next_batch(sink.progress, there, limit)):
            sink.write(batch, there)
        sink.settle()
        if reach is not None and reach.heads == heads and not sink.waits:
            self._quiet = heads
