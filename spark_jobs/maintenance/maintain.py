"""Small files put together and old ones removed, without breaking what is published or can be queried as of the past.

Guarantees that the version of a table that is published can be read at any moment: compacted versions are published before old
files are removed, a table with commits that are not published yet is left as it is while its published files would be among them,
and what was published within `keep_days` keeps its files. Loads may run meanwhile: a table whose files a load is changing is left
as it is, and a load whose table was compacted does that table again.

Records of bronze are removed `bronze_keep_days` after Kafka had them; silver and history go on without. Of each source a
beginning of its log is removed as a whole, up to a position that is published ahead of that; never what a table still needs, nor
schema records, nor the last record that is published. That position decides where a table can be built from.

Tables are kept as every reader of Delta can read them where `readers` of the lake's file demands it: an open table has no
deletion vectors, no columns widened in place and no names that Parquet does not take. Loads make new tables like this; a table
that they made otherwise is changed here, once: its files are written again, and its protocol is lowered.

Called by `headrace lake maintain`, by its DAG, and now and then by a load that never ends.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from time import monotonic

from delta import DeltaTable
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.

from headrace.configuration.lake import LakeFile
from headrace.lake.table import is_mapped, open_name
from spark_jobs import storage
from spark_jobs.bronze import erased_records, increment, sink
from spark_jobs.bronze import load as bronze
from spark_jobs.errors import explained, is_conflict
from spark_jobs.maintenance import drop, erase, vacuum
from spark_jobs.silver import merge, table_task
from spark_jobs.silver.commit import NOTE_SETTING
from spark_jobs.state import delta_log, log_files, publication, published, retention
from spark_jobs.state.published import Positions, Published, Table

#: Files smaller than this are put together, into files of this size.
_TARGET = 128 * 1024 * 1024
_OPTIMIZE = ("spark.databricks.delta.optimize.minFileSize", "spark.databricks.delta.optimize.maxFileSize")
#: Tables of silver that are compacted, published and vacuumed together: what is killed in between is done again.
_SLICE = 20
#: What is recorded as maintained next to tables of silver, by names that none of them can have.
_BRONZE, _OWN = "bronze", "lake"
#: Into how many tasks the listing of a table's files goes: ten thousand by default, however few the files are.
_LISTING = "spark.sql.sources.parallelPartitionDiscovery.parallelism"

#: Receives how many tables are done, and how many there are.
OnProgress = Callable[[int, int], None]

_log = logging.getLogger(__name__)
#: A row that a vector marks would stay in its file.
_VECTORS_SETTING = "spark.databricks.delta.delete.deletionVectors.persistent"


@dataclass(frozen=True, kw_only=True)
class MaintainReport:
    """What was done for a stream."""

    stream: str
    #: Files taken together and files made of them, by path under the lake's root.
    compacted: dict[str, tuple[int, int]] = field(default_factory=dict)
    #: Tables that were left as they are, since a load has written to them and not published.
    skipped: list[str] = field(default_factory=list)
    seconds: float = 0.0


def maintain(
    spark: SparkSession,
    lake: LakeFile,
    stream: str,
    *,
    older_than: timedelta = timedelta(0),
    on_progress: OnProgress | None = None,
    stopped: Callable[[], bool] = lambda: False,
) -> MaintainReport:
    """Compact bronze, silver and history of a stream, publish that, and remove files that no query can need any more.

    It is done a few tables at a time, those first that were maintained the longest ago, and each time is recorded: when it is
    killed, or `stopped` between two, the next one goes on behind them. Tables that were maintained less than `older_than` ago are
    left out.
    """
    began, started = monotonic(), datetime.now(UTC)
    done = MaintainReport(stream=stream)
    with explained(f"maintain {stream}"):
        session = _session(spark)
        slices = _slices(session, lake, stream, started - older_than)
        maintained_now, todo = 0, sum(map(len, slices))
        for names in slices:
            if stopped():
                break
            if names == [_OWN]:
                vacuum.maintain_own_tables(session, lake, stream)
            else:
                if names == [_BRONZE]:
                    erased_records.empty_again(session, lake, stream)
                    # Ahead of the removal: what is left may not show where a load goes on.
                    sink.renew(session, lake, stream)
                    remove_old_records(session, lake, stream)
                _compact(session, lake, stream, names, done)
                _vacuum_all(session, lake, stream, names, done)
            vacuum.record_times(session, lake, stream, names)
            maintained_now += len(names)
            if on_progress:
                on_progress(maintained_now, todo)
        else:
            vacuum.forget_times(session, lake, stream, started - older_than)
            drop.remove(session, lake, stream)
            erase.vacuum(session, lake, stream)
            _sweep(session, lake)
    return replace(done, skipped=sorted(set(done.skipped)), seconds=monotonic() - began)


def is_due(spark: SparkSession, lake: LakeFile, stream: str, older_than: timedelta) -> bool:
    """Whether a table of a stream was maintained longer ago than that, or never."""
    return bool(_slices(spark, lake, stream, datetime.now(UTC) - older_than))


def _session(spark: SparkSession) -> SparkSession:
    session = spark.newSession()
    for setting in _OPTIMIZE:
        session.conf.set(setting, str(_TARGET))
    retention.for_vacuum(session)
    session.conf.set(_LISTING, "8")
    return session


def _slices(spark: SparkSession, lake: LakeFile, stream: str, before: datetime) -> list[list[str]]:
    """Return what was maintained last before a time, the longest ago first, a few tables of silver together."""
    last = vacuum.read_times(spark, lake, stream)
    never = datetime.fromtimestamp(0, UTC)
    state = published.latest(spark, lake, stream)
    every = (_BRONZE, _OWN, *state.tables, *state.renamed)
    due = [name for name in every if last.get(name, never) <= before]
    due.sort(key=lambda name: (last.get(name, never), name))
    tables = [name for name in due if name not in {_BRONZE, _OWN}]
    slices = [tables[first : first + _SLICE] for first in range(0, len(tables), _SLICE)]
    slices += [[name] for name in due if name in {_BRONZE, _OWN}]
    return sorted(slices, key=lambda names: last.get(names[0], never))


def _vacuum_all(session: SparkSession, lake: LakeFile, stream: str, names: list[str], done: MaintainReport) -> None:
    state, needed = published.latest(session, lake, stream), dict[str, int | None]()
    tables = state.tables | state.renamed
    for name in names:
        if name == _BRONZE:
            needed[bronze.table_path(lake, stream)] = None
        elif name in tables:
            needed[table_task.path(lake, stream, name)] = tables[name].version
            needed[table_task.history_path(lake, stream, name)] = tables[name].history
    for path, version in needed.items():
        if not _vacuum(session, lake, path, version):
            done.skipped.append(path.removeprefix(f"{lake.root}/"))


def _vacuum(session: SparkSession, lake: LakeFile, path: str, version: int | None) -> bool:
    """Remove a table's old files; return False, and remove none, where the version that is published may need them."""
    if not delta_log.is_table(session, path):
        return True
    # What VACUUM removes was replaced before: a later commit that is that old replaced files of this version.
    replaced = delta_log.first_after(session, path, version) if version is not None else None
    keep = timedelta(days=lake.lake.keep_days)
    if replaced is not None and replaced < datetime.now(UTC) - keep:
        _log.warning("%s: not vacuumed, since commits of %s or later are not published yet", path, replaced.isoformat())
        return False
    vacuum.run(session, path, lake.lake.keep_days)
    return True


def compact(spark: SparkSession, lake: LakeFile, stream: str, names: Iterable[str]) -> MaintainReport:
    """Put small files of bronze and of some tables together, and publish the versions that this made; removes nothing.

    Loads may run meanwhile.
    """
    began, done = monotonic(), MaintainReport(stream=stream)
    with explained(f"compact {stream}"):
        _compact(_session(spark), lake, stream, [_BRONZE, *sorted(names)], done)
    return replace(done, seconds=monotonic() - began)


def _compact(session: SparkSession, lake: LakeFile, stream: str, names: list[str], done: MaintainReport) -> None:
    started = datetime.now(UTC)
    before = published.latest(session, lake, stream)
    base: dict[str, Table] = {}
    tables: dict[str, Table] = {}
    for name in names:
        # Loads may have published since the last table, or it was dropped.
        table = published.latest(session, lake, stream).tables.get(name)
        if table is None:
            continue
        base[name] = table
        tables[name] = replace(
            table,
            version=_table(session, lake, table, table_task.path(lake, stream, name), table.version, done),
            history=_table(session, lake, table, table_task.history_path(lake, stream, name), table.history, done),
        )
    raw = bronze.table_path(lake, stream)
    if _BRONZE in names and delta_log.is_table(session, raw):
        retention.ensure(session, raw, retention.of_bronze(lake))
        sink.renew(session, lake, stream)
        if files := _optimize(session, raw):
            done.compacted[raw.removeprefix(f"{lake.root}/")] = files
    if tables != base:
        after = replace(before, started_at=started, tables=tables)
        publication.append(session, lake, after, before=replace(before, tables=base), maintenance=True)


@log_files.listed_once()
def _table(
    session: SparkSession, lake: LakeFile, table: Table, path: str, version: int | None, done: MaintainReport
) -> int | None:
    """Compact a table as it is published; return the version to publish in place of that one."""
    if version is None or not delta_log.is_table(session, path):
        return version
    place = path.removeprefix(f"{lake.root}/")
    if not delta_log.only_maintained(session, path, version):
        done.skipped.append(place)
        return version
    try:
        retention.renew(session, lake, path, version)
        apply_readers(session, path, is_open=lake.stream(done.stream).is_open(table.table))
        merge.prepare(session, path, table)
        files = _optimize(session, path)
    except (PySparkException, Py4JError) as error:
        # A load has changed the files that were to be compacted.
        if not is_conflict(error):
            raise
        done.skipped.append(place)
        return version
    if files:
        done.compacted[place] = files
    # A load may have come in between.
    newest = delta_log.find_maintained(session, path, version)
    return version if newest is None else newest


def _optimize(spark: SparkSession, path: str) -> tuple[int, int] | None:
    """Put a table's small files together; return how many went and how many came, None when there was nothing to do."""
    if log_files.is_whole(spark, path) and not merge.columns(spark, path):
        return None
    row = (
        spark.sql(f"OPTIMIZE {storage.table(path)}").select("metrics.numFilesRemoved", "metrics.numFilesAdded").first()
    )
    return (int(row[0]), int(row[1])) if row is not None and row[0] else None


def _sweep(spark: SparkSession, lake: LakeFile) -> None:
    """Remove what queries that died left behind."""
    folder = storage.scratch_root(lake)
    for name in storage.names(spark, folder):
        if storage.is_abandoned(name, storage.modified(spark, f"{folder}/{name}")):
            storage.delete(spark, f"{folder}/{name}")


_VECTORS, _MAPPING = "deletionVectors", "columnMapping"
#: What readers may not know, in the order in which it is dropped.
_FEATURES = (_VECTORS, "typeWidening", "typeWidening-preview", _MAPPING)
_PROPERTY = "delta.enableDeletionVectors"


def apply_readers(session: SparkSession, path: str, *, is_open: bool) -> None:
    """Keep a table as every reader knows it from now on, or as Delta does; where Delta refuses it, the table stays as it is."""
    properties, features = log_files.properties(session, path), log_files.features(session, path)
    dropped = [name for name in _FEATURES if name in features]
    session.conf.set(NOTE_SETTING, delta_log.write(delta_log.READERS))
    try:
        if not is_open and properties.get(_PROPERTY) == "false":
            _set_vectors(session, path, "true")
        if is_open and properties.get(_PROPERTY) != "false":
            _set_vectors(session, path, "false")
        if is_open and dropped:
            _drop_features(session, path, dropped)
    except (PySparkException, Py4JError) as error:
        if is_conflict(error):
            raise
        why = error.getCondition() if isinstance(error, PySparkException) else type(error).__name__
        _log.warning("%s still needs readers that know %s: %s", path, ", ".join(dropped), why)
    finally:
        session.conf.unset(NOTE_SETTING)


def _drop_features(session: SparkSession, path: str, features: list[str]) -> None:
    table = storage.table(path)
    if _MAPPING in features:
        for name in DeltaTable.forPath(session, path).toDF().columns:
            if is_mapped(name):
                other = open_name(name)
                session.sql(f"ALTER TABLE {table} RENAME COLUMN {storage.name(name)} TO {storage.name(other)}")
        if merge.columns(session, path):
            # Delta keeps the mapped names of these columns, and cannot read the table without the mapping.
            session.sql(f"ALTER TABLE {table} CLUSTER BY NONE")
    for name in features:
        session.sql(f"ALTER TABLE {table} DROP FEATURE `{name}`")


def _set_vectors(session: SparkSession, path: str, value: str) -> None:
    session.sql(f"ALTER TABLE {storage.table(path)} SET TBLPROPERTIES ('{_PROPERTY}' = '{value}')")


def remove_old_records(spark: SparkSession, lake: LakeFile, stream: str) -> Positions:
    """Remove records that are old enough; return up to which position of each source none are left."""
    path = bronze.table_path(lake, stream)
    if lake.lake.bronze_keep_days is None or not delta_log.is_table(spark, path):
        return {}
    state = published.latest(spark, lake, stream)
    before = datetime.now(UTC) - timedelta(days=lake.lake.bronze_keep_days)
    old = (
        spark.read.format("delta")
        .load(path)
        .filter((F.col("timestamp") < F.lit(before)) & _removable(removable_positions(state)))
    )
    rows = old.groupBy("source").agg(F.max("position").alias("position")).collect()
    cuts = {row["source"]: row["position"] for row in rows}
    if not cuts:
        return {}
    # Ahead of the removal, so that nothing is built of what lacks its beginning.
    removed = state.bronze_removed | {s: max(cut, state.bronze_removed.get(s, "")) for s, cut in cuts.items()}
    publication.append(spark, lake, replace(state, bronze_removed=removed), before=state, maintenance=True)
    session = spark.newSession()
    session.conf.set(_VECTORS_SETTING, "false")
    session.conf.set(NOTE_SETTING, delta_log.write(increment.REMOVED, stream=stream))
    upto = F.lit(False)
    for source, cut in sorted(cuts.items()):
        upto |= (F.col("source") == source) & (F.col("position") <= cut)
    DeltaTable.forPath(session, path).delete(upto & _changes())
    return cuts


def removable_positions(state: Published) -> Positions:
    """Return the position of each source from which on its records are needed: by a table, or as the last one published."""
    return {
        source: min([position, *(table.positions.get(source, "") for table in state.tables.values())])
        for source, position in state.positions.items()
        # What came late of one that is held is before its position.
        if source not in state.held
    }


def _removable(below: Mapping[str, str]) -> Column:
    condition = F.lit(False)
    for source, position in sorted(below.items()):
        condition |= (F.col("source") == source) & (F.col("position") < position)
    return condition & _changes()


def _changes() -> Column:
    """Return the condition that a record is no schema record: those are few, and describe what comes later."""
    return F.col("op").isNotNull() | F.col("table").isNull()
