"""A table's history brought up to a load's cuts, in one commit that carries the positions it reaches, as for current rows.

Begins at the table's first change in bronze when there is no history yet, or where an earlier one was left. Raises NeedsOperator
for what stops this table alone. Called by the load after the table's current rows, in the same session.
"""

from dataclasses import replace
from typing import Literal

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.

from headrace.errors import NeedsOperator
from spark_jobs.silver import batch_profile, changes, commit, ordered_apply, scd2, table_load
from spark_jobs.silver import merge as write
from spark_jobs.silver.commit import Base
from spark_jobs.silver.table_load import LoadContext, TableTask
from spark_jobs.silver.target_schema import COMMIT_TIME, POSITION, SOURCE, TargetSchema
from spark_jobs.state.published import Positions, Table


def missing(known: Table) -> bool:
    """Whether a table has rows to keep the history of, and no history: one without a key never has."""
    return known.version is not None and known.history is None and known.keyed


def apply(spark: SparkSession, job: LoadContext, work: TableTask, done: Table) -> Table:
    """Bring the history up to the cuts; return the table with its version, or with none when none is kept."""
    if work.history is None:
        return replace(done, history=None)
    # A version that ended has its end, whether or not deleted current rows are kept.
    work = replace(work, soft=False)
    place = work.history_path
    published = replace(work.known, version=work.known.history)
    base = table_load.based(spark, job, place, published, scd2.NOTE)
    if not base.exists:
        base = replace(base, positions={})
    commit.check_order(base, work.cuts, f"history of {work.table}")
    floors, version = base.positions, base.current
    own = work if base.exists and floors == work.known.positions else _from(spark, job, work, floors)
    ahead = table_load.ahead_of(own, floors)
    if ahead or not base.exists:
        if not _keyed(own):
            return replace(done, history=None)
        exists = base.exists
        for step, since in table_load.steps(spark, job, own, floors):
            version = _write(spark, job, step, since, "change" if exists else "create")
            exists = True
    return replace(done, history=version)


def rebuild(
    spark: SparkSession, job: LoadContext, work: TableTask, done: Table, floors: Positions | None = None
) -> Table:
    """Build the history again, from some positions on if given; return the table with its version."""
    work = replace(work, soft=False)
    own = _from(spark, job, work, {}) if floors is None else work
    if not _keyed(own):
        return replace(done, history=None)
    version = None
    for number, (step, since) in enumerate(table_load.steps(spark, job, own, floors or {})):
        version = _write(spark, job, step, since, "change" if number else "replace")
    return replace(done, history=version)


def _base(spark: SparkSession, job: LoadContext, work: TableTask) -> Base:
    published = replace(work.known, version=work.known.history)
    return table_load.based(spark, job, work.history_path, published, scd2.NOTE)


def _keyed(work: TableTask) -> bool:
    return bool(table_load.formed(work)[0].key)


def _check_names(form: TargetSchema) -> None:
    own = {name.casefold() for name in (scd2.START, scd2.END, scd2.FROM, scd2.UPTO)}
    if taken := sorted(name for name in form.columns if name.casefold() in own):
        raise NeedsOperator(
            f"{form.table}: columns {', '.join(taken)} have names that its history uses itself",
            hint="Keep no history of this table (history = false), or rename them at the source.",
        )


def _from(spark: SparkSession, job: LoadContext, work: TableTask, floors: Positions) -> TableTask:
    """Return the work that begins at positions of its own."""
    rows = job.rows(spark, None)
    new = batch_profile.extent(rows.filter(F.col("table") == work.table), floors, work.cuts)
    known = replace(work.known, schemas=work.known.schemas if floors else {})
    return replace(work, known=known, seen=new.seen, records=new.records, after=None)


def _write(
    spark: SparkSession,
    job: LoadContext,
    work: TableTask,
    floors: Positions,
    how: Literal["create", "replace", "change"],
) -> int:
    """Write the versions that come after the floors; return the version of the commit."""
    assert work.history is not None
    form, _ = table_load.formed(work)
    base = _base(spark, job, work)
    commit.check_unmoved(base, floors, work.cuts, f"history of {work.table}", how)
    place, exists = work.history_path, how == "change"
    _check_names(form)
    own = commit.begin(spark, base, stream=job.stream, kind=scd2.NOTE, attempt=job.attempt)
    if exists:
        form = write.fit(spark, place, form)
    raw = job.rows(spark, work.after)
    within = batch_profile.within(floors, work.cuts)
    ahead = table_load.ahead_of(work, floors)
    cleared = table_load.truncated(work, ahead, floors)
    inside = changes.of_range(raw, work.table, within, {})
    current = None
    if exists:
        current = spark.read.format("delta").load(place).filter(F.col(scd2.UPTO).isNull())
    partial = any(one.partial for one in ahead)
    tracked = work.history.tracked(name for name in form.columns if name not in form.key)
    note = table_load.note(job, work, scd2.NOTE, base)
    with table_load.kept() as keep:
        seeds = None
        if current is not None:
            seeds = current.withColumns({POSITION: F.col(scd2.FROM), COMMIT_TIME: F.col(scd2.START)})
        timeline = ordered_apply.row_versions(inside, form, seeds, keep, partial=partial)
        rows = scd2.versions(timeline, form, current, tracked, cleared)
        if exists:
            scd2.merge(spark, keep(rows), place, form, note, cleared)
        else:
            lead = (SOURCE, scd2.FROM, *form.key)
            (write.replace if how == "replace" else write.create)(rows, place, note, own, lead)
    of_table = f"history of {work.table}"
    return commit.made(spark, place, base, table=of_table, kind=scd2.NOTE, attempt=job.attempt)
