"""Where bronze's batches go: each into one Delta commit with the note of its offsets, once.

Any number of processes may do this for one stream: a commit is numbered by the note that it follows, so of two that follow
the same note one is refused (`Conflict`), however long it was stopped in between. Delta does not report a number that it has
seen, so a commit counts when its own note is found in the log.

Rows of a batch are ordered by table within each file, so reading one table touches that table's pages only; files follow
the source's own order, so a range of positions or time touches the files that hold it. Where tables have topics of their own, a
note also has the newest positions whose ends all topics have passed: that of a batch, or one without rows.

While nothing comes the note is written again, long before Delta removes old commits from the log: rows alone do not show where a
load goes on, since a transaction's marker, and what Kafka has removed, are beyond the last of them. Called by bronze, by
maintenance and by erasures.
"""

import logging
import uuid
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from math import ceil
from time import monotonic, time
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from headrace.configuration.lake import LakeFile
from spark_jobs.bronze import avro_records, envelope, erasures, increment, quarantine
from spark_jobs.bronze.envelope import COLUMNS, ordered
from spark_jobs.errors import Conflict
from spark_jobs.kafka import topics
from spark_jobs.kafka.client import Place, Topic
from spark_jobs.kafka.topics import Batch, Reach, held_after, records_of
from spark_jobs.state import delta_log, offsets
from spark_jobs.state.offsets import Progress

#: Records that are worth a file of their own, and a core of their own. A task sorts the records of its file in memory: of four
#: times as many, two tasks have more than Spark gives them of a driver of 2 GB, and write what they sort to disk (X8).
_RECORDS_PER_FILE = 250_000
_RECORDS_PER_CORE = 100_000
#: Seconds between two commits of offsets for lag tools, where a load never ends.
_MIRRORED_EVERY = 5.0
#: Columns that a reader chooses files by.
_STATISTICS = "partition,offset,timestamp,source,table,op,position,commit_time"

_log = logging.getLogger(__name__)


def table_path(lake: LakeFile, stream: str) -> str:
    """Return where a stream's bronze table is."""
    return f"{lake.root}/bronze/{stream}"


def group(stream: str) -> str:
    """Return the consumer group that mirrors the offsets of a stream's bronze."""
    return f"headrace.lake.{stream}"


def mirror(lake: LakeFile, stream: str, progress: Progress, former: Progress | None = None) -> None:
    """Commit what bronze holds for its consumer group, so that lag tools see it; only what is new since it was `former`."""
    topics.mirror(
        lake.kafka,
        group(stream),
        {
            Place(name, partition): offset
            for name, held in progress.topics.items()
            for partition, offset in held.offsets.items()
            if former is None or former.of(name).offsets.get(partition) != offset
        },
    )


def commit(
    spark: SparkSession, path: str, stream: str, frame: DataFrame, held: Progress, after: Progress, **options: str
) -> tuple[Progress, dict[str, Any]]:
    """Commit rows with the note of what is held after them; return that, and what Delta reports about the commit.

    Raises Conflict when the table is no longer as it was when `held` was read from it: nothing is committed then.
    """
    own = uuid.uuid4().hex
    base = offsets.choose_base(after)
    (
        frame.write.format("delta")
        .mode("overwrite" if options else "append")
        .options(**options)
        .option("txnAppId", offsets.application(stream))
        .option("txnVersion", held.number)
        .option("userMetadata", offsets.note(stream, after, commit=own, base=base))
        .option("delta.dataSkippingStatsColumns", _STATISTICS)
        .option(increment.FEED, "true")
        .save(path)
    )
    for version, info in delta_log.after(spark, path, held.version):
        if own in (info.get("userMetadata") or ""):
            base = base or offsets.Base(version, own, time(), after.topics)
            return offsets.at(replace(after, base=base), version), info
    raise Conflict(
        f"bronze {stream}: another load of the stream ran at the same time; nothing was doubled",
        hint="Run this one again.",
    )


class Sink:
    """Commits batches to the table, each once, from what the table holds on."""

    def __init__(
        self,
        spark: SparkSession,
        lake: LakeFile,
        stream: str,
        held: Progress,
        on_progress: Callable[[int], None] | None = None,
        *,
        follows: bool = False,
    ) -> None:
        self.records = self.files = self.batches = 0
        #: Records that are quarantined, by the source of their partition.
        self.quarantined: dict[str, int] = {}
        self.progress = held
        self._spark, self._lake, self._stream, self._on_progress = spark, lake, stream, on_progress
        #: What the topics have not passed yet, or not noted, oldest first.
        self._reaches: list[Reach] = []
        self._mirror_seconds = _MIRRORED_EVERY if follows else 0.0
        self._mirrored: Progress | None = None
        self._mirrored_at = 0.0
        #: Connections to Kafka outlive a batch.
        self._group = f"{group(stream)}.{uuid.uuid4().hex}"

    def write(self, batch: Batch, topics: list[Topic]) -> None:
        """Read a batch from Kafka and commit it with its note."""
        after = self._passed(self._joined(held_after(self.progress, topics, batch)))
        info = self._learn(batch, lambda: self._write(batch, after))
        metrics = info.get("operationMetrics") or {}
        self.records += int(metrics.get("numOutputRows", 0))
        self.files += int(metrics.get("numFiles", 0))
        self.batches += 1
        if monotonic() >= self._mirrored_at + self._mirror_seconds:
            self.mirror()
        if self._on_progress:
            self._on_progress(self.records)

    def _learn(self, batch: Batch, write: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Return what writing a batch returns, once the schemas of its records are known."""
        try:
            return write()
        except (PySparkException, Py4JError) as error:
            if not avro_records.is_unread(error):
                raise
        avro_records.learn(self._spark, self._lake, self._stream, batch)
        return write()

    def _write(self, batch: Batch, after: Progress) -> dict[str, Any]:
        place = self._spark, self._lake, self._stream
        after = replace(after, sources=quarantine.learn(*place, batch, after.sources))
        try:
            return self._append(batch, avro_records.rows_of(*place, batch, after.sources, group=self._group), after)
        except (PySparkException, Py4JError) as error:
            if not envelope.is_refused(error):
                raise
        owners = quarantine.renewed(self._lake, self._stream, after.sources)
        both = after.sources | {p: (*after.sources[p], owner) for p, owner in owners.items()}
        frame, refused = avro_records.divided(*place, batch, both, group=self._group)
        for source, count in quarantine.keep(self._spark, self._lake, self._stream, refused).items():
            self.quarantined[source] = self.quarantined.get(source, 0) + count
        # In one topic all records of a partition's former source are ahead of the next one's.
        several = self._lake.stream(self._stream).topic_per_table
        now = both if several else after.sources | {p: (owner,) for p, owner in owners.items()}
        return self._append(batch, frame, replace(after, sources=now))

    def _append(self, batch: Batch, frame: DataFrame, after: Progress) -> dict[str, Any]:
        frame = erasures.emptied(self._spark, self._lake, self._stream, frame)
        self.progress, info = self._commit(ordered(frame.coalesce(self._files(records_of(batch)))), after)
        return info

    def mirror(self) -> None:
        """Let lag tools see what the table holds."""
        mirror(self._lake, self._stream, self.progress, self._mirrored)
        self._mirrored, self._mirrored_at = self.progress, monotonic()

    def observed(self, reach: Reach | None) -> None:
        """Take note of up to where each source is committed, and of the ends that have to be passed for that."""
        if reach is not None:
            self._reaches.append(reach)

    @property
    def waits(self) -> bool:
        """Whether ends were observed that the table has not passed."""
        ends = {name: held.offsets for name, held in self.progress.topics.items()}
        return any(not reach.passed(ends) for reach in self._reaches)

    def settle(self) -> None:
        """Note, in a commit without rows, positions whose ends the table has passed and no batch has noted."""
        if (after := self._passed(self.progress)) != self.progress:
            self.note(after)

    def note(self, after: Progress) -> None:
        """Commit a note without rows; there must be something to note it in."""
        path = table_path(self._lake, self._stream)
        if delta_log.is_table(self._spark, path):
            nothing = self._spark.read.format("delta").load(path).limit(0)
            # Delta writes no commit in which there is nothing at all; the transaction's number is something.
            self.progress, _ = self._commit(nothing, after)

    def _commit(self, frame: DataFrame, after: Progress) -> tuple[Progress, dict[str, Any]]:
        return commit(self._spark, table_path(self._lake, self._stream), self._stream, frame, self.progress, after)

    def _joined(self, after: Progress) -> Progress:
        """Return the progress without positions where topics join it.

        One that was there and could not be seen may have records before them: they hold again once its end is passed.
        """
        joined = after.topics.keys() - self.progress.topics.keys()
        if after.positions is None or not joined:
            return after
        newest = self._reaches[-1].heads if self._reaches else {}
        ends = {place: head for place, head in newest.items() if place.topic in joined}
        former = [Reach(after.positions, {}), *self._reaches] if joined <= {place.topic for place in ends} else []
        self._reaches = [replace(reach, heads=ends | reach.heads) for reach in former]
        return replace(after, positions={})

    def _passed(self, progress: Progress) -> Progress:
        """Return the progress with the newest positions whose ends it has passed."""
        ends = {name: held.offsets for name, held in progress.topics.items()}
        passed = [number for number, reach in enumerate(self._reaches) if reach.passed(ends)]
        if not passed:
            return progress
        positions = dict(progress.positions or {})
        for number in passed:
            for source, position in self._reaches[number].positions.items():
                positions[source] = max(position, positions.get(source, ""))
        # The last one stays: a batch that fails has noted nothing.
        self._reaches = self._reaches[passed[-1] :]
        return replace(progress, positions=positions)

    def _files(self, records: int) -> int:
        """Return into how many files a batch goes: few, but no core idle."""
        cores = int(self._spark.sparkContext.defaultParallelism)
        return max(ceil(records / _RECORDS_PER_FILE), min(cores, ceil(records / _RECORDS_PER_CORE)), 1)


#: Age of a note at which it is written again: Delta keeps bronze's log for three days at least (retention.py).
_OLD = timedelta(days=1)


def is_old(committed: datetime | None) -> bool:
    """Whether a note committed then is written again; of None there is none."""
    return committed is not None and datetime.now(UTC) - committed > _OLD


def renew(spark: SparkSession, lake: LakeFile, stream: str, sink: Sink | None = None) -> None:
    """Write the newest note again if it is old or gone, by a load's `sink` if there is one; raise Conflict if that was overtaken.

    Nothing is written where rows do not show what was noted: the next load reports it.
    """
    path = table_path(lake, stream)
    if not delta_log.is_table(spark, path):
        return
    noted = delta_log.noted_at(spark, path, offsets.NOTE)
    if noted is not None and not is_old(noted):
        return
    if sink is not None:
        sink.note(sink.progress)
        return
    try:
        held = offsets.of_table(spark, lake, path, stream, COLUMNS)
        Sink(spark, lake, stream, held).note(held)
    except Conflict:
        # A load came in between, with a note of its own.
        return
    except offsets.NotShown as problem:
        _log.warning("%s. %s", problem.message, problem.hint)
