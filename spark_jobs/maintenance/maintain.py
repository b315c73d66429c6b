"""Small files put together and old ones removed, without breaking what is published or can be queried as of the past.

Guarantees that the version of a table that is published can be read at any moment: compacted versions are published before old
files are removed, a table with commits that are not published yet is left as it is while its published files would be among them,
and what was published within `keep_days` keeps its files. Loads may run
meanwhile: a table whose files a load is changing is left as it is, and a load whose table was compacted does that table again.
Called by `headrace lake maintain`, by its DAG, and now and then by a load that never ends.
"""

import logging
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from time import monotonic

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headrace.configuration.lake import LakeFile
from spark_jobs import scratch, storage
from spark_jobs.bronze import load as bronze
from spark_jobs.bronze import note_renewal
from spark_jobs.errors import explained, is_conflict
from spark_jobs.silver import clustering, scd2, table_task
from spark_jobs.state import delta_log, publication, published, retention, schema_texts
from spark_jobs.state.published import Table

#: Files smaller than this are put together, into files of this size.
_TARGET = 128 * 1024 * 1024
_OPTIMIZE = ("spark.databricks.delta.optimize.minFileSize", "spark.databricks.delta.optimize.maxFileSize")
#: Into how many tasks the listing of a table's files goes: ten thousand by default, however few the files are.
_LISTING = "spark.sql.sources.parallelPartitionDiscovery.parallelism"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class MaintainReport:
    """What was done for a stream."""

    stream: str
    #: Files taken together and files made of them, by path under the lake's root.
    compacted: dict[str, tuple[int, int]] = field(default_factory=dict)
    #: Tables that were left as they are, since a load has written to them and not published.
    skipped: list[str] = field(default_factory=list)
    seconds: float = 0.0


def maintain(spark: SparkSession, lake: LakeFile, stream: str) -> MaintainReport:
    """Compact bronze, silver and history of a stream, publish that, and remove files that nobody can ask for any more."""
    began = monotonic()
    with explained(f"maintain {stream}"):
        done = compact(spark, lake, stream)
        session = spark.newSession()
        retention.for_vacuum(session)
        session.conf.set(_LISTING, "8")
        needed: dict[str, int | None] = {
            bronze.table_path(lake, stream): None,
            published.path(lake): None,
            schema_texts.path(lake): None,
        }
        for name, known in published.latest(session, lake, stream).tables.items():
            needed |= {table_task.path(lake, stream, name): known.version, scd2.path(lake, stream, name): known.history}
        left = [
            path.removeprefix(f"{lake.root}/")
            for path, version in needed.items()
            if not _vacuum(session, lake, path, version)
        ]
        _sweep(session, lake)
    return replace(done, skipped=sorted({*done.skipped, *left}), seconds=monotonic() - began)


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
    session.sql(f"VACUUM {storage.table(path)} RETAIN {lake.lake.keep_days * 24} HOURS")
    return True


def compact(spark: SparkSession, lake: LakeFile, stream: str) -> MaintainReport:
    """Put small files together, and publish the versions that this made; removes nothing. Loads may run meanwhile."""
    with explained(f"compact {stream}"):
        return _compact(spark, lake, stream)


def _compact(spark: SparkSession, lake: LakeFile, stream: str) -> MaintainReport:
    began, started = monotonic(), datetime.now(UTC)
    session = spark.newSession()
    for setting in _OPTIMIZE:
        session.conf.set(setting, str(_TARGET))
    before = published.latest(session, lake, stream)
    base: dict[str, Table] = {}
    tables: dict[str, Table] = {}
    done = MaintainReport(stream=stream)
    for name in before.tables:
        # Loads may have published since the last table.
        base[name] = known = published.latest(session, lake, stream).tables[name]
        tables[name] = replace(
            known,
            version=_table(session, lake, known, table_task.path(lake, stream, name), known.version, done),
            history=_table(session, lake, known, scd2.path(lake, stream, name), known.history, done),
        )
    raw = bronze.table_path(lake, stream)
    if delta_log.is_table(session, raw):
        retention.ensure(session, lake, raw)
        note_renewal.renew(session, lake, stream)
        if found := _optimize(session, raw):
            done.compacted[raw.removeprefix(f"{lake.root}/")] = found
    if tables != base:
        after = replace(before, started_at=started, tables=tables)
        publication.append(session, lake, after, before=replace(before, tables=base), maintenance=True)
    return replace(done, seconds=monotonic() - began)


def _table(
    session: SparkSession, lake: LakeFile, known: Table, path: str, version: int | None, done: MaintainReport
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
        clustering.prepare(session, path, known)
        found = _optimize(session, path)
    except (PySparkException, Py4JError) as error:
        # A load has changed the files that were to be compacted.
        if not is_conflict(error):
            raise
        done.skipped.append(place)
        return version
    if found:
        done.compacted[place] = found
    # A load may have come in between.
    newest = delta_log.maintained(session, path, version)
    return version if newest is None else newest


def _optimize(spark: SparkSession, path: str) -> tuple[int, int] | None:
    """Put a table's small files together; return how many went and how many came, None when there was nothing to do."""
    row = (
        spark.sql(f"OPTIMIZE {storage.table(path)}").select("metrics.numFilesRemoved", "metrics.numFilesAdded").first()
    )
    return (int(row[0]), int(row[1])) if row is not None and row[0] else None


def _sweep(spark: SparkSession, lake: LakeFile) -> None:
    """Remove what queries that died left behind."""
    folder = scratch.root(lake)
    for name in storage.names(spark, folder):
        if scratch.is_abandoned(name, storage.modified(spark, f"{folder}/{name}")):
            storage.delete(spark, f"{folder}/{name}")
