"""Databases of SQL whose tables no load has published: the newest rows (`silver_live`), or those of a moment in the past.

Guarantees that all tables of a stream that one query names are shown at the same moment. The changes that are laid over published
tables are in a scratch folder under the lake's root until they are replaced or the session is closed.

In the past each source is shown up to its last transaction before the first one that committed later: exactly its state at that
moment, provided that its own clock only goes forward. That begins at the newest published state before it whose files are kept,
else at nothing, and applies bronze's changes from there. The first one that committed later is searched after what was published
by then, where that was committed earlier at each source.
"""

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.

from headrace.configuration.lake import LakeFile
from headrace.errors import ConfigurationError, ReplicationError
from spark_jobs import storage
from spark_jobs.bronze import load as bronze
from spark_jobs.bronze.increment import Live
from spark_jobs.errors import explained
from spark_jobs.query import snapshot
from spark_jobs.query.snapshot import StreamSnapshot
from spark_jobs.session import for_few_rows
from spark_jobs.silver import batch_profile
from spark_jobs.state import delta_log, names, published
from spark_jobs.state.names import Place
from spark_jobs.state.published import Positions, Published


def _new_folder(lake: LakeFile) -> tuple[str, datetime]:
    now = datetime.now(UTC)
    return f"{storage.scratch_root(lake)}/{storage.new_scratch_name(now)}", now


class Overlays:
    """One database: the tables of all streams, each stream at a moment of its own."""

    def __init__(self, spark: SparkSession, lake: LakeFile, database: str, *, as_of: datetime | None = None) -> None:
        self.database = database
        self._spark, self._lake, self._as_of = spark, lake, as_of
        self._folder, self._made = _new_folder(lake)
        self._live: Live | None = None
        self._moments: dict[str, StreamSnapshot] = {}
        #: Why a stream cannot be shown.
        self._problems: dict[str, ReplicationError] = {}
        #: What each table was last written for, and where.
        self._written: dict[Place, tuple[StreamSnapshot, str]] = {}

    def close(self) -> None:
        """Remove what was written, and release what is held."""
        for moment in self._moments.values():
            moment.release()
        for _, folder in self._written.values():
            snapshot.forget(self._spark, folder)
        storage.delete(self._spark, self._folder)

    def outdated(self, words: set[str], streams: list[Published]) -> Iterator[tuple[str, Place]]:
        """Yield each table that a query names and that differs from when it was last queried.

        `words` is what the query's text consists of, `streams` what they published last.
        """
        self._renew()
        for place, name in names.of(self._spark, self._lake, self._places(streams)).items():
            old = self._written.get(place)
            current = old is not None and old[0] is self._moments.get(place[0])
            if name.casefold() in words and not current:
                yield name, place

    def statement(self, place: Place) -> str:
        """Return the statement that reads a table; raise NeedsOperator or CorruptInput where a load would stop the table."""
        if old := self._written.pop(place, None):
            snapshot.forget(self._spark, old[1])
        if place[0] in self._problems:
            raise self._problems[place[0]]
        moment, folder = self._moments[place[0]], f"{self._folder}/{uuid.uuid4().hex}"
        statement = snapshot.sql(self._spark, self._lake, moment, place[1], folder)
        self._written[place] = (moment, folder)
        return statement

    def _renew(self) -> None:
        """Begin a new folder before maintenance takes the present one for abandoned, and write all that is queried again."""
        if datetime.now(UTC) - self._made > storage.SCRATCH_RENEWED:
            for _, folder in self._written.values():
                snapshot.forget(self._spark, folder)
            self._written.clear()
            storage.delete(self._spark, self._folder)
            self._folder, self._made = _new_folder(self._lake)

    def _places(self, streams: list[Published]) -> list[Place]:
        """Return the tables, after every stream was brought up."""
        states = {state.stream: state for state in streams}
        for stream in sorted(self._lake.streams):
            try:
                self._look(stream, states.get(stream, Published(stream=stream)))
                self._problems.pop(stream, None)
            except ReplicationError as error:
                # Nothing of this stream can be shown; others are not concerned.
                self._problems[stream] = error
                if former := self._moments.pop(stream, None):
                    former.release()
        if self._as_of is not None and not self._moments and not self._problems:
            raise ConfigurationError(
                f"nothing had been captured at {self._as_of.isoformat()}",
                hint="Name a later time. SELECT min(commit_time) FROM bronze.<stream> returns the first one.",
            )
        places = [(stream, table) for stream, moment in self._moments.items() for table in moment.tables()]
        return places + [
            (stream, table) for stream in self._problems if stream in states for table in states[stream].tables
        ]

    def _look(self, stream: str, base: Published) -> None:
        """Bring a stream's moment up to its newest whole transactions, or to the moment in the past, once."""
        former = self._moments.get(stream)
        with explained(f"stream {stream}"):
            if self._as_of is None:
                self._live = self._live or Live(for_few_rows(self._spark))
                moment = snapshot.moment(self._spark, self._lake, base, former=former, live=self._live)
            else:
                moment = former or find_moment(self._spark, self._lake, stream, self._as_of)
        if moment is not None:
            if former is not None and former is not moment:
                former.release()
            self._moments[stream] = moment


def find_moment(spark: SparkSession, lake: LakeFile, stream: str, when: datetime) -> StreamSnapshot | None:
    """Return the stream at a moment at its sources; None when nothing of it had been captured by then."""
    path = bronze.table_path(lake, stream)
    if not delta_log.is_table(spark, path):
        return None
    upto = high_watermarks(spark, lake, stream, when)
    if not upto:
        return None
    kept_since = datetime.now(UTC) - timedelta(days=lake.lake.keep_days)
    base = published.before(spark, lake, stream, upto, kept_since)
    last = published.latest(spark, lake, stream)
    nothing = Published(stream=stream, dropped=last.dropped, bronze_removed=last.bronze_removed)
    return snapshot.moment(spark, lake, base or nothing, upto)


def high_watermarks(spark: SparkSession, lake: LakeFile, stream: str, when: datetime) -> Positions:
    """Return each source's last position that ends a transaction, before any that committed after the moment."""
    path = bronze.table_path(lake, stream)
    version = delta_log.version(spark, path)
    reached = bronze.reach(spark, lake, stream, version)
    every = spark.read.format("delta").option("versionAsOf", version).load(path).filter(F.col("op").isNotNull())
    low = _published_by(spark, lake, stream, every, when)
    changes = every.filter(batch_profile.within(low, reached)) if low or reached is not None else every
    later = changes.filter(F.col("commit_time") > F.lit(when)).groupBy("source").agg(F.min("position").alias("later"))
    # By name, since a source that has nothing later has no row there.
    first_later = {row["source"]: row["later"] for row in later.collect()}
    before = F.lit(True)
    for source, position in sorted(first_later.items()):
        before &= (F.col("source") != source) | (F.col("position") < position)
    ends = changes.filter(F.col("last") & before).groupBy("source").agg(F.max("position").alias("cut"))
    positions = low | {row["source"]: row["cut"] for row in ends.collect()}
    # Of what a source is held before some may be missing.
    state = published.latest(spark, lake, stream)
    limits = {source: state.positions.get(source, "") for source in state.held}
    cut = {source: min(position, limits.get(source, position)) for source, position in positions.items()}
    return {source: position for source, position in cut.items() if position}


def _published_by(spark: SparkSession, lake: LakeFile, stream: str, changes: DataFrame, when: datetime) -> Positions:
    """Return the positions that were published last before a moment; none unless they were committed before it at the sources."""
    if not delta_log.is_table(spark, published.path(lake)):
        return {}
    states = spark.read.format("delta").load(published.path(lake)).filter(F.col("stream") == stream)
    earlier = states.filter(F.col("table").isNull() & (F.col("finished_at") <= F.lit(when)))
    newest = earlier.select(F.max_by("positions", "load").alias("positions")).first()
    positions: Positions = dict(newest["positions"] or {}) if newest else {}
    # By their places, which bronze's files know the first and the last of: few are opened.
    at = F.lit(False)
    for source, position in sorted(positions.items()):
        at |= (F.col("source") == source) & (F.col("position") == position)
    rows = changes.filter(at & (F.col("commit_time") <= F.lit(when))).select("source").distinct().collect()
    return positions if positions.keys() == {row["source"] for row in rows} else {}
