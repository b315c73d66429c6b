"""The end of a bronze table: rows of the versions that came after a point, read from the files that those versions added.

What a load, a look at live rows or a replay has to read does not grow with the table. Guarantees that no row after the point
is missing; where the log no longer distinguishes them, or their files are gone, the whole table is read, so callers choose rows
by position all the same.

What Kafka has beyond a stream's bronze: committed records, as the rows that bronze will have. Used by live rows.

Guarantees that the rows begin exactly where bronze ends, and stay the same however often they are read. Where that cannot be, or
takes a query too long, there is nothing beyond bronze: another topic, records that retention took, a stream with a topic for
each table (only a load finds up to where all topics are complete), more than a few seconds of records, a Kafka that does not
answer. Live rows are older then, and not wrong.
"""

import logging
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Self

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.

from headrace.configuration.lake import LakeFile
from headrace.errors import ReplicationError
from headrace.waiting import BoundedClient
from spark_jobs import storage
from spark_jobs.bronze import avro_records
from spark_jobs.errors import explained
from spark_jobs.kafka import client, requests
from spark_jobs.kafka.client import Topic
from spark_jobs.state import delta_log, log_files, offsets, retention
from spark_jobs.state.offsets import Progress

_log = logging.getLogger(__name__)

#: Offset of the first record and the one after the last, by partition.
Beyond = dict[int, tuple[int, int]]

#: Records that a query reads from Kafka, at most.
_MOST = 50_000
#: Seconds in which Kafka has to answer, and for which it is not queried again when it did not.
_TIMEOUT, _REST = 5.0, 60.0
#: Until when Kafka is not queried for a stream, in monotonic seconds.
_resting: dict[tuple[str, str], float] = {}


@dataclass
class Live:
    """What queries of live rows use again, so that each of them makes no session and no connection of its own."""

    #: Whose plans suit few rows.
    session: SparkSession
    client: BoundedClient | None = None
    #: By which Spark's tasks find their consumers again; nothing is committed for it.
    id: str = field(default_factory=lambda: uuid.uuid4().hex)

    def describe(self, lake: LakeFile, stream: str) -> Topic:
        """Return a stream's topic as it is now; raise NotConnected or NeedsOperator."""
        # A client without messages counts as false.
        if self.client is None:
            self.client = client.admin(lake.kafka)
        try:
            return client.describe(lake.kafka, lake.topic(stream), timeout=_TIMEOUT, by=self.client)
        except ReplicationError:
            # The next one may have another password.
            self.client = None
            raise


def beyond(spark: SparkSession, lake: LakeFile, stream: str, held: Progress, live: Live) -> Beyond:
    """Return which records come after those that bronze holds; empty where there are none, or none that a query can read."""
    place = (lake.kafka.bootstrap, stream)
    if lake.stream(stream).topic_per_table or monotonic() < _resting.get(place, 0.0):
        return {}
    try:
        topic = live.describe(lake, stream)
    except ReplicationError as error:
        _resting[place] = monotonic() + _REST
        _log.warning("live rows of stream %s are those of bronze alone: %s", stream, error.message)
        return {}
    progress = held.of(topic.name)
    follows = progress.id == topic.id and not requests.gaps(progress.offsets, topic)
    # Whose a partition is that bronze has nothing of, bronze finds out.
    known = {p: end for p, end in topic.ends.items() if not held.sources or p in held.sources}
    ranges = {p: (progress.offsets.get(p, 0), end) for p, end in known.items() if end > progress.offsets.get(p, 0)}
    few = sum(end - start for start, end in ranges.values()) <= _MOST
    return ranges if ranges and follows and few and _readable(spark, lake, stream, ranges) else {}


def read(lake: LakeFile, stream: str, beyond: Beyond, sources: avro_records.Sources, live: Live) -> DataFrame:
    """Return the rows of these records, without the time at which they were loaded; refused ones are left to bronze."""
    batch, group = {lake.topic(stream): beyond}, f"headrace.lake.{stream}.{live.id}"
    rows, _ = avro_records.divided(live.session, lake, stream, batch, sources, group=group)
    return rows


def _readable(spark: SparkSession, lake: LakeFile, stream: str, beyond: Beyond) -> bool:
    """Whether the schemas of the records are known, where they may be in Avro."""
    if lake.registry is None:
        return True
    try:
        with explained(f"live rows of stream {stream}"):
            avro_records.learn(spark, lake, stream, {lake.topic(stream): beyond})
    except ReplicationError as error:
        _resting[lake.kafka.bootstrap, stream] = monotonic() + _REST
        _log.warning("live rows of stream %s are those of bronze alone: %s", stream, error.message)
        return False
    return True


#: Property of the table by which Delta answers what versions added; costs an append-only table nothing.
FEED = "delta.enableChangeDataFeed"
#: The note of a commit that empties records of erased rows.
ERASED = "erased"
#: And of one that removes records which are too old.
REMOVED = "removed"
#: What puts files in the place of others that maintenance removes.
_REPLACING = {"OPTIMIZE", "REORG", "DELETE"}
_OWN = ("_change_type", "_commit_version", "_commit_timestamp")
#: Rows, and bytes in files, that are read once and then held: planning their reading costs more than they do.
_FEW_ROWS, _FEW_BYTES = 100_000, 32 * 1024 * 1024
#: Rows, and commits, that a load of silver reads before it publishes and goes on.
_MOST_ROWS, _MOST_COMMITS = 10_000_000, 2_000
#: Commits up to which a whole log is read to know that.
_FEW_COMMITS = 200
#: Files that compaction replaced are read no more so long before maintenance may remove them: a load takes its time.
_MARGIN = timedelta(hours=2)
_DAYS = re.compile(r"interval (\d+) days")
#: Tables whose property was seen; nothing of ours removes it.
_fed: set[str] = set()


@dataclass(frozen=True)
class Since:
    """A point in bronze: what came after it is of versions after one, and of some sources after an earlier one."""

    version: int
    #: Sources whose transaction was unfinished there, each with the version after which it began.
    back: tuple[tuple[str, int], ...] = ()

    @classmethod
    def of(cls, version: int | None, back: Mapping[str, int]) -> Self | None:
        """Return the point, None when it is not known."""
        return None if version is None else cls(version, tuple(sorted(back.items())))


@dataclass(frozen=True)
class Bronze:
    """A stream's bronze as a load reads it."""

    path: str
    version: int
    #: The rows that came after a point, where they are held for all tables; None when they are not.
    persisted: tuple[Since | None, DataFrame] | None = None

    def rows(self, spark: SparkSession, after: Since | None) -> DataFrame:
        """Return the rows that came after a point, or all, up to the version."""
        if self.persisted is not None and self.persisted[0] == after:
            return self.persisted[1]
        return rows(spark, self.path, after, self.version)


def rows(spark: SparkSession, path: str, since: Since | None, upto: int) -> DataFrame:
    """Return the rows after a point, up to and including a version; all up to it when the point is None."""
    if since is None or (since.version < upto and not is_readable_after(spark, path, since.version)):
        return _whole(spark, path, upto)
    frame = _read_added(spark, path, since.version, upto)
    if not since.back:
        return frame
    frame = frame.filter(F.col("source").isNull() | ~F.col("source").isin(*(name for name, _ in since.back)))
    for version in sorted({version for _, version in since.back}):
        names = [name for name, after in since.back if after == version]
        frame = frame.unionByName(_read_added(spark, path, version, upto).filter(F.col("source").isin(*names)))
    return frame


def bounded(spark: SparkSession, path: str, since: Since | None, newest: int, *, reaches: bool) -> int:
    """Return up to which version a load reads: the newest, or an earlier one where more came after a point than it may hold.

    Where tables have topics of their own (`reaches`) one that has more positions whole than the version before.
    """
    rows, chosen, after = 0, None, -1 if since is None else since.version
    reached = offsets.read_reached(spark, path, topic_per_table=True, version=after) if reaches else None
    for number, (version, info) in enumerate(delta_log.after(spark, path, after)):
        if version > newest:
            break
        rows += int((info.get("operationMetrics") or {}).get("numOutputRows", 0))
        if chosen is not None and (rows > _MOST_ROWS or number >= _MOST_COMMITS):
            return chosen
        if reaches:
            note = delta_log.read_note(info, offsets.NOTE)
            positions = note.get("positions") if note else reached
            moved, reached = positions != reached, positions
        if not reaches or moved:
            chosen = version
    return newest


def few(spark: SparkSession, path: str, since: Since | None, upto: int, *, more: int = 0) -> bool:
    """Whether the rows after a point are so few that they may be held in memory; unfinished transactions have `more` of them.

    Without a point all rows count, as the whole log has them.
    """
    if (since is None and upto > _FEW_COMMITS) or (
        since is not None and not is_readable_after(spark, path, since.version)
    ):
        return False
    added = delta_log.count_added(spark, path, -1 if since is None else since.version, upto)
    return added is not None and added[0] + more <= _FEW_ROWS and added[1] <= _FEW_BYTES


def ended(new: DataFrame, sources: Mapping[str, object]) -> set[str]:
    """Return which of some sources, with a transaction that was unfinished, have the end of one in new rows."""
    ends = new.filter(F.col("source").isin(*sources) & F.col("last"))
    return {row["source"] for row in ends.select("source").distinct().collect()}


def _whole(spark: SparkSession, path: str, upto: int) -> DataFrame:
    return spark.read.format("delta").option("versionAsOf", upto).load(path)


def _read_added(spark: SparkSession, path: str, after: int, upto: int) -> DataFrame:
    """Return the rows of versions after one, up to another; all rows up to that one where they cannot be distinguished."""
    if after >= upto:
        return _whole(spark, path, upto).limit(0)
    if not is_readable_after(spark, path, after):
        return _whole(spark, path, upto)
    feed = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", after + 1)
    changes = feed.option("endingVersion", upto).load(path)
    return changes.filter(F.col("_change_type") == "insert").drop(*_OWN)


def is_readable_after(spark: SparkSession, path: str, after: int) -> bool:
    """Whether log and files still show what versions after one added, and nothing else."""
    first = after + 1
    newest = delta_log.note(spark, path, offsets.NOTE)
    if first < 1 or newest is None or (newest[1].get("rewritten") or 0) >= first:
        return False
    there = storage.exists(spark, f"{path}/_delta_log/{first:020d}.json") or delta_log.version(spark, path) < first
    if there and path not in _fed and log_files.properties(spark, path).get(FEED) == "true":
        _fed.add(path)
    if not there or path not in _fed:
        return False
    replaced = None
    for number, info in delta_log.commits(spark, path):
        if number < first:
            break
        # What versions added before it still has what was erased.
        if delta_log.read_note(info, ERASED):
            return False
        if info.get("operation") in _REPLACING:
            replaced = delta_log.time(info)
    return replaced is None or datetime.now(UTC) - replaced < _kept(spark, path)


def _kept(spark: SparkSession, path: str) -> timedelta:
    """Return for how long files that compaction replaced are surely there."""
    days = _DAYS.fullmatch(log_files.properties(spark, path).get(retention.FILES, ""))
    # Maintenance removes files a day earlier: see retention.properties.
    return timedelta(days=int(days[1]) - 1) - _MARGIN if days else timedelta()
