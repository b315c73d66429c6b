"""Silver done again from bronze; readers go on seeing the old tables until all new ones are published together.

Each table is one overwriting commit, made of the newest published state before the point from which it is done again, or of
nothing, and of bronze's changes from there to what is published now. A replay that dies has published nothing; loads and
replays after it go on as if it had not been. Called by `headrace lake replay`.
"""

import logging
import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from time import monotonic

from pyspark.sql import SparkSession

from headrace.configuration.lake import LakeFile
from headrace.errors import CorruptInput, NeedsOperator
from spark_jobs import scratch, storage
from spark_jobs.bronze import increment
from spark_jobs.bronze import load as bronze
from spark_jobs.errors import explained
from spark_jobs.query import published_tables, snapshot
from spark_jobs.query.snapshot import StreamSnapshot
from spark_jobs.silver import commit, rebuild, scd2, table_load, table_task
from spark_jobs.silver import merge as write
from spark_jobs.silver.load import SilverReport
from spark_jobs.silver.tables_load import OnProgress
from spark_jobs.silver.types import Incompatible
from spark_jobs.state import bronze_identity, publication, published
from spark_jobs.state.published import Positions, Published, Table

_log = logging.getLogger(__name__)


def replay(
    spark: SparkSession,
    lake: LakeFile,
    stream: str,
    since: Positions | None = None,
    *,
    on_progress: OnProgress | None = None,
) -> SilverReport:
    """Make every table of the stream again and publish them together; with `since`, from positions of its sources on.

    Raises NeedsOperator when nothing is published, or nothing that old is kept. A table that cannot be made stays as it is
    published, and is in the report.
    """
    began, started = monotonic(), datetime.now(UTC)
    with explained(f"replay silver {stream}"):
        bronze_path = bronze.table_path(lake, stream)
        before = bronze_identity.known_versions(spark, bronze_path, published_tables.positions(spark, lake, stream))
        nothing = Published(stream=stream, dropped=before.dropped, bronze_removed=before.bronze_removed)
        base = nothing if since is None else _base(spark, lake, stream, since)
        at = snapshot.moment(spark, lake, base, before.positions)
        assert at is not None, "what is published came from bronze"
        bronze_identity.refuse_lacking(increment.rows(spark, bronze_path, None, at.version), before)
        aside = f"{scratch.root(lake)}/{scratch.name()}"
        tables = dict(before.tables)
        context = table_task.LoadContext(
            stream=stream,
            bronze=bronze_path,
            version=at.version,
            load=before.load + 1,
            removed=before.bronze_removed,
        )
        try:
            for done, name in enumerate(at.tables(), 1):
                table = before.tables.get(name, Table(table=name))
                try:
                    tables[name] = _table(spark.newSession(), lake, context, at, table, f"{aside}/{uuid.uuid4().hex}")
                except (NeedsOperator, CorruptInput) as error:
                    tables[name] = replace(table, changes=0, problem=f"{error.message} {error.hint}".strip())
                if on_progress:
                    on_progress(done, len(at.tables()))
        finally:
            storage.delete(spark, aside)
        after = replace(
            before,
            load=context.load,
            started_at=started,
            changes=sum(t.changes for t in tables.values()),
            tables=tables,
        )
        after = publication.append(spark, lake, after, before=before)
    return SilverReport(
        stream=stream,
        load=after.load,
        ranges={source: (base.positions.get(source, ""), cut) for source, cut in before.positions.items()},
        changes={name: table.changes for name, table in tables.items() if table.changes},
        problems={name: table.problem for name, table in tables.items() if table.problem is not None},
        seconds=monotonic() - began,
    )


def _base(spark: SparkSession, lake: LakeFile, stream: str, since: Positions) -> Published:
    kept_since = datetime.now(UTC) - timedelta(days=lake.lake.keep_days)
    state = published.before(spark, lake, stream, since, kept_since)
    if state is None:
        raise NeedsOperator(
            f"nothing that was published of stream {stream!r} in the last {lake.lake.keep_days} days is that old",
            hint=f"Do all of it again: 'headrace lake replay {stream}' without --from.",
        )
    return state


def _table(
    spark: SparkSession, lake: LakeFile, context: table_task.LoadContext, at: StreamSnapshot, table: Table, scratch: str
) -> Table:
    """Overwrite one table; return its state. The session is this table's own."""
    task = snapshot.task_of(spark, lake, at, table.table)
    if not at.base.load:
        return _from_bronze(spark, context, replace(task, published=replace(table, schemas={}, positions={})))
    try:
        base = table_load.read_base(spark, context, task.path, table, table_load.NOTE)
        commit.check_erased(spark, base, context.bronze, context.version, task.table)
        rows = spark.sql(snapshot.sql(spark, lake, at, table.table, scratch))
        own = commit.begin(spark, base, stream=context.stream, kind=table_load.NOTE, attempt=context.attempt)
        write.replace(rows, task.path, table_load.note(context, task, table_load.NOTE, base), own)
        version = commit.find_own_version(
            spark, task.path, base, table=task.table, kind=table_load.NOTE, attempt=context.attempt
        )
    finally:
        snapshot.forget(spark, scratch)
    return replace(
        table,
        version=version,
        changes=sum(profile.changes for profile in task.seen),
        positions=task.high,
        schemas=table_task.newest_schemas(task),
        problem=None,
        bronze_after=None,
        settings=None,
        failures=0,
    )


def _from_bronze(spark: SparkSession, context: table_task.LoadContext, task: table_task.TableTask) -> Table:
    """Overwrite one table with all that bronze has of it, or what it has since the newest copy that fits the present schema."""
    try:
        done = table_load.build(spark, context, task, {})
    except Incompatible:
        return rebuild.apply(spark, context, *rebuild.from_copies(spark, context, task))
    return done if task.history is None else scd2.rebuild(spark, context, task, done)
