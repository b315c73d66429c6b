"""Bronze: a stream's records as they came, with the few fields of their envelope that everything later is chosen by.

Guarantees that each committed record of the stream's topics is in the table exactly once, whenever a load dies and however many
run at the same time: every batch is read from the offsets noted in the table's own newest commit, and is one Delta commit with a
note of its own; of two loads that follow the same note the second one is refused. The same code loads once or permanently
(bronze_follow.py). Where tables have topics of their own, the note also has up to where all of each source is in the table.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from time import monotonic

from pyspark.sql import SparkSession

from headrace.configuration.lake import LakeFile
from spark_jobs.bronze.batches import Ranges, done, next_batch
from spark_jobs.bronze.envelope import COLUMNS
from spark_jobs.bronze.sink import Sink, group, mirror, renew, table_path
from spark_jobs.errors import explained
from spark_jobs.kafka import requests, topics
from spark_jobs.kafka.client import Topic
from spark_jobs.session import for_appending
from spark_jobs.state import offsets
from spark_jobs.state.offsets import Progress

__all__ = ["BronzeReport", "Ranges", "group", "load", "mirror", "reach", "table_path"]

OnProgress = Callable[[int, int], None]

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
        after = done(sink.progress, there, {})
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
        ranges=ranges.pop(there[0].name),
        tables={name: found for name, found in ranges.items() if found},
        records=sink.records,
        files=sink.files,
        batches=sink.batches,
        quarantined=sink.quarantined,
        seconds=monotonic() - began,
    )


def reach(spark: SparkSession, lake: LakeFile, stream: str, version: int | None = None) -> dict[str, str] | None:
    """Return up to where all of each source is in the table; None where a stream has one topic: all that is there counts.

    Of a version that is read, or read before the newest version is, since later ones reach further.
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
        held = replace(held, topics={name: one for name, one in held.topics.items() if name in names})
    topics.check(lake, stream, held, there, table_path(lake, stream))
    if missing and not accept_gap:
        topics.check_retention(held, there, stream)
    for name, gap in missing:
        _log.warning("bronze %s goes on without topic %s, %s: accepted by the operator", stream, name, gap)
    return held
