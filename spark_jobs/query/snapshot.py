"""A stream's tables at a moment that no load has published: a published state with the changes that came later laid over it.

Guarantees what a load guarantees: every source exactly up to one position, at the end of a transaction, in all tables alike;
the changes are folded by the load's own code. Nothing of the lake is written but the folded changes of the tables that are
queried, in a scratch folder, so a query reads them as often as it likes, by SQL that lays them over the published rows. Called by
SQL for `silver_live` and `--as-of`.
"""

from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.
from pyspark.sql import types as T  # noqa: N812 - PySpark's own idiom.

from headrace.configuration.lake import LakeFile
from headrace.errors import NeedsOperator
from spark_jobs import storage
from spark_jobs.bronze import increment
from spark_jobs.bronze import load as bronze
from spark_jobs.bronze.increment import Beyond, Live, Since
from spark_jobs.silver import batch_profile, changes, held_back, profiles, table_load, table_task, target_schema
from spark_jobs.silver.changes import OP
from spark_jobs.silver.profiles import BatchProfile, TableProfile, Truncate
from spark_jobs.silver.table_task import TableTask
from spark_jobs.silver.target_schema import COMMIT_TIME, DELETED_AT, POSITION, SOURCE, TAKEN, TargetSchema
from spark_jobs.state import delta_log, offsets, published
from spark_jobs.state.published import Positions, Published, Table
from spark_jobs.storage import name as _q

#: Database of the tables that read the folders of folded changes.
_SCRATCH = "headrace_scratch"


@dataclass(frozen=True, kw_only=True)
class StreamSnapshot:
    """A stream at its high watermarks."""

    #: The published state below.
    base: Published
    #: What bronze has after it, up to the high watermarks.
    new: BatchProfile
    #: The version of bronze that is read, and the point after which the changes came; None when not known.
    version: int
    after: Since | None
    #: Its rows between them, with those that Kafka has beyond.
    raw: DataFrame
    #: Which these are, and their rows alone; None when there are none.
    beyond: Beyond
    ahead: DataFrame | None

    def release(self) -> None:
        """Forget rows that are held in memory."""
        self.raw.unpersist()

    def tables(self) -> list[str]:
        """Return the tables that there are, by their source's `schema.table`."""
        published = {name for name, table in self.base.tables.items() if table.version is not None}
        new = {
            profile.table
            for profile in self.new.seen
            if not self._held_back(profile) and not self._only_truncated(profile)
        }
        return sorted(published | new)

    def _only_truncated(self, profile: TableProfile) -> bool:
        """Whether a table has no schema, and so no rows either."""
        table = self.base.tables.get(profile.table)
        described = (table is not None and bool(table.schemas)) or any(
            r.table == profile.table for r in self.new.records
        )
        return profile.only_truncates and not described

    def _held_back(self, profile: TableProfile) -> bool:
        """Whether all of it belongs to a copy that is under way, or to a source with which the table cannot be."""
        table = self.base.tables.get(profile.table, Table(table=profile.table))
        records = [record for record in self.new.records if record.table == profile.table]
        waiting = replace(table, copying=held_back.find_copying(table.copying, records)).waiting
        return profile.source in waiting and profile.first > waiting[profile.source]


def moment(
    spark: SparkSession,
    lake: LakeFile,
    base: Published,
    upto: Positions | None = None,
    *,
    former: StreamSnapshot | None = None,
    live: Live | None = None,
) -> StreamSnapshot | None:
    """Return the stream at the high watermarks, or at its newest whole transactions; None when nothing of it was ever loaded.

    The `former` moment is returned itself while nothing came after it. Of `live` rows, if they are few, they are held in
    memory until it is released, and go on to the end of Kafka's topic; else to that of bronze.
    """
    path = bronze.table_path(lake, base.stream)
    if not delta_log.is_table(spark, path):
        return None
    published.refuse_removed(base.positions, base.bronze_removed, f"stream {base.stream!r} at that point")
    base = published.known_versions(spark, path, base)
    version, beyond, ahead, sources = delta_log.version(spark, path), {}, None, {}
    # With what is unfinished: its end may be in Kafka.
    since = held_back.unpublished_since(base)
    if live and not increment.few(spark, path, since, version, more=held_back.unfinished_changes(base, since)):
        live = None
    if live and (progress := offsets.read(spark, path)):
        # A commit may have come since.
        version = max(version, progress.version)
        beyond, sources = increment.beyond(spark, lake, base.stream, progress, live), progress.sources
    if former is not None and (former.base.load, former.version, former.beyond) == (base.load, version, beyond):
        return former
    if live:
        raw = increment.rows(live.session, path, since, version)
        if beyond:
            ahead = increment.read(lake, base.stream, beyond, sources, live)
            raw = raw.unionByName(ahead, allowMissingColumns=True)
        # Read again for each table that is queried.
        raw = raw.coalesce(1).persist()
    else:
        raw = increment.rows(spark, path, since, version)
    try:
        committed = bronze.reach(spark, lake, base.stream, version)
        new = batch_profile.profile(raw, base.positions, upto, committed=committed, held=base.held).without(
            base.dropped
        )
    except Exception:
        raw.unpersist()
        raise
    return StreamSnapshot(base=base, new=new, version=version, after=since, raw=raw, beyond=beyond, ahead=ahead)


def sql(spark: SparkSession, lake: LakeFile, at: StreamSnapshot, name: str, scratch: str) -> str:
    """Return the statement that reads a table at the moment; its folded changes are written to the scratch folder.

    What was written stays until it is forgotten. Raises NeedsOperator or CorruptInput where a load would stop the table.
    """
    task = task_of(spark, lake, at, name)
    low, stored = task.published.positions, task.published.version
    ahead = table_task.ahead_of(task, low)
    below, hidden = None, False
    if stored is not None:
        below = spark.read.format("delta").option("versionAsOf", stored).load(task.path)
        # Marked rows from the time in which they stayed.
        hidden = DELETED_AT in below.columns and not task.soft
        if hidden:
            below = below.filter(F.col(DELETED_AT).isNull()).drop(DELETED_AT)
    if not ahead and below is not None:
        living = f" WHERE {DELETED_AT} IS NULL" if hidden else ""
        return f"SELECT {', '.join(map(_q, below.columns))} FROM {_published(task)}{living}"  # noqa: S608 - ours, and quoted.
    target = table_task.target_of(task)
    table_task.refuse_keyless(target, ahead, low, task)
    _refuse_another_key(target)
    if below is not None:
        target = target_schema.fit_types(target, {field.name: field.dataType for field in below.schema.fields})
    cleared = table_task.find_truncates(task, ahead, low)
    raw = at.raw if task.after == at.after else _whole(spark, lake, at)
    with table_load.persist_scope() as persist:
        changed = changes.of_range(raw, task.table, batch_profile.within(low, task.high))
        rows, _ = table_load.rows(target, changed, ahead, below, persist, cleared)
        columns = [*target.columns, *target.own, OP, *(name for name in rows.columns if name == TAKEN)]
        # Numbered, since Parquet does not take every name that a database does.
        placed = {column: f"c{place}" for place, column in enumerate(columns)}
        changed = rows.select(*(F.col(_q(column)).alias(c) for column, c in placed.items()))
        changed.write.parquet(scratch)
    return _statement(task, target, below, cleared, placed, _described(spark, scratch, changed.schema), hidden=hidden)


def _refuse_another_key(target: TargetSchema) -> None:
    """Raise NeedsOperator where records of a former key do not name all columns of the present one: a load applies them first."""
    if any(former and not set(target.key) <= set(former) for former in target.former_keys):
        raise NeedsOperator(
            f"{target.table}: its key changed in what no load has merged yet",
            hint="Query silver, or query again after the next load.",
        )


def forget(spark: SparkSession, scratch: str) -> None:
    """Remove what a statement reads from a scratch folder."""
    spark.sql(f"DROP TABLE IF EXISTS {_place(scratch)}")
    storage.delete(spark, scratch)


def _described(spark: SparkSession, scratch: str, schema: T.StructType) -> str:
    """Return the name of a table that reads the folder: a bare path costs two jobs each time it is named."""
    columns = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in schema)
    spark.sql(f"CREATE DATABASE IF NOT EXISTS {_SCRATCH}")
    spark.sql(f"CREATE TABLE {_place(scratch)} ({columns}) USING parquet LOCATION {storage.text(scratch)}")
    return _place(scratch)


def _place(scratch: str) -> str:
    return f"{_SCRATCH}.`{PurePosixPath(scratch).name}`"


def task_of(spark: SparkSession, lake: LakeFile, at: StreamSnapshot, name: str) -> TableTask:
    """Return what is to be done for a table; one that is behind its stream begins where it is."""
    table = at.base.tables.get(name)
    records = [record for record in at.new.records if record.table == name]
    whole = table is None or table.positions == at.base.positions
    if (
        table is None
        or whole
        or (
            held_back.waits_for_sources(table, at.base.positions)
            and not held_back.has_copy_ended(table.copying, records)
        )
    ):
        return held_back.hold_back(table_task.task_of(lake, at.base, name, at.new, after=at.after))
    new = batch_profile.profile(_whole(spark, lake, at).filter(F.col("table") == name), table.positions, at.new.high)
    task = table_task.task_of(lake, replace(at.base, tables={name: table}), name, new, after=None)
    removed = {s: cut for s, cut in at.base.bronze_removed.items() if s in table_task.newest_schemas(task)}
    published.refuse_removed(table.positions, removed, name)
    return held_back.hold_back(task)


def _whole(spark: SparkSession, lake: LakeFile, at: StreamSnapshot) -> DataFrame:
    rows = increment.rows(spark, bronze.table_path(lake, at.base.stream), None, at.version)
    return rows if at.ahead is None else rows.unionByName(at.ahead, allowMissingColumns=True)


def _statement(
    task: TableTask,
    target: TargetSchema,
    below: DataFrame | None,
    cleared: list[Truncate],
    placed: dict[str, str],
    changed: str,
    *,
    hidden: bool,
) -> str:
    """Return the statement that lays the changed rows over the published ones; those marked as deleted may be hidden."""
    stored = [] if below is None else [column for column in below.columns if column not in target.own]
    columns = [*target.columns, *(column for column in stored if column not in target.columns), *target.own]
    news = ", ".join(f"{placed.get(column, 'NULL')} AS {_q(column)}" for column in columns)
    there = "" if target.soft else f" WHERE {placed[OP]} <> 'd'"
    over = f"SELECT {news} FROM {changed}{there}"  # noqa: S608 - names and paths are ours, and quoted.
    if below is None:
        return over
    marks = _marks(cleared, DELETED_AT in below.columns) if target.soft else {}
    old = ", ".join(
        marks.get(column) or _stored(column, column in below.columns, target.columns.get(column)) for column in columns
    )
    known_by = {column: placed[column] for column in (SOURCE, *target.key)}
    if TAKEN in placed:
        # The row that a change takes, in a table without a key.
        known_by |= {POSITION: placed[TAKEN]}
    same = " AND ".join(f"t.{_q(column)} = s.{place}" for column, place in known_by.items())
    if TAKEN in placed and DELETED_AT in below.columns:
        same += f" AND t.{DELETED_AT} IS NULL"
    join = f" LEFT ANTI JOIN {changed} s ON {same}" if target.key or TAKEN in placed else ""
    conditions = f" AND t.{DELETED_AT} IS NULL" if hidden else ""
    if cleared and not target.soft:
        conditions += f" AND NOT ({profiles.where_removed(cleared, 't.')})"
    return f"SELECT {old} FROM {_published(task)} t{join} WHERE true{conditions} UNION ALL {over}"  # noqa: S608 - as above.


def _marks(cleared: list[Truncate], marked: bool) -> dict[str, str]:
    """Return the values of a published row's columns that a truncate may have changed; `marked` where it has its mark."""
    stored = {column: f"t.{column}" for column in (DELETED_AT, COMMIT_TIME, POSITION)}
    if not marked:
        stored[DELETED_AT] = "CAST(NULL AS timestamp)"
    if cleared:
        ended = profiles.where_ended(cleared, f"{stored[DELETED_AT]} IS NULL", POSITION, "t.")
        marks = profiles.truncate_marks(cleared, "t.")
        stored = {
            column: f"CASE WHEN {ended} THEN {marks[column]} ELSE {value} END" for column, value in stored.items()
        }
    return {column: f"{value} AS {column}" for column, value in stored.items()}


def _published(task: TableTask) -> str:
    """Return the table as it was published, as SQL names it."""
    return storage.table(task.path, task.published.version)


def _stored(column: str, there: bool, kind: T.DataType | None) -> str:
    """Return a column of the published rows, in the type that the newest schema gives it."""
    value = f"t.{_q(column)}" if there else "NULL"
    return f"{value} AS {_q(column)}" if kind is None else f"CAST({value} AS {kind.simpleString()}) AS {_q(column)}"
