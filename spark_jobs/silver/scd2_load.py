"""A table's history loaded up to the high watermarks, in one commit that has the positions it reaches, as for current rows.

Begins at the table's first change in bronze when there is no history yet, or where an earlier one was left. Raises NeedsOperator
for what stops this table alone. Called by the load next to the table's current rows, in a session of its own.
"""

from dataclasses import replace
from typing import Literal

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.

from headrace.errors import NeedsOperator
from spark_jobs.silver import batch_profile, changes, commit, ordered_apply, scd2, table_load, table_task
from spark_jobs.silver import merge as write
from spark_jobs.silver.commit import Base
from spark_jobs.silver.table_task import LoadContext, TableTask
from spark_jobs.silver.target_schema import COMMIT_TIME, POSITION, SOURCE, TargetSchema
from spark_jobs.state.published import Positions, Table


def lacks_history(table: Table) -> bool:
    """Whether a table has rows to keep the history of, and no history: one without a key never has."""
    return table.version is not None and table.history is None and table.keyed


def apply(spark: SparkSession, context: LoadContext, task: TableTask) -> int | None:
    """Bring the history up to the high watermarks; return its version, or None for a table without a key: it has none."""
    # A version that ended has its end, whether or not deleted current rows are kept.
    task = replace(task, soft=False)
    place = task.history_path
    published = replace(task.published, version=task.published.history)
    base = table_load.read_base(spark, context, place, published, scd2.NOTE)
    if not base.exists:
        base = replace(base, positions={})
    commit.check_order(base, task.high, f"history of {task.table}")
    commit.check_own(base, f"history of {task.table}")
    low, version = base.positions, base.current
    own = task if base.exists and _covered(task, low) else _from(spark, context, task, low)
    ahead = table_task.ahead_of(own, low)
    if ahead or not base.exists:
        if not _keyed(own):
            return None
        exists = base.exists
        for step, since in table_task.steps(spark, context, own, low):
            version = _write(spark, context, step, since, "change" if exists else "create")
            exists = True
    return version


def rebuild(
    spark: SparkSession, context: LoadContext, task: TableTask, done: Table, low: Positions | None = None
) -> Table:
    """Build the history again, from some positions on if given; return the table with its version."""
    task = replace(task, soft=False)
    if low is None and task.published.history is not None:
        # One that is turned on later begins with what bronze has.
        table_task.refuse_removed(context, task, {})
    own = _from(spark, context, task, {}) if low is None else task
    if not _keyed(own):
        return replace(done, history=None)
    version = None
    for number, (step, since) in enumerate(table_task.steps(spark, context, own, low or {})):
        version = _write(spark, context, step, since, "change" if number else "replace")
    return replace(done, history=version)


def _covered(task: TableTask, low: Positions) -> bool:
    """Whether the work has all that a history lacks which is at some positions; what is before them is passed over."""
    return all(position <= low.get(source, "") for source, position in task.published.positions.items())


def _base(spark: SparkSession, context: LoadContext, task: TableTask) -> Base:
    published = replace(task.published, version=task.published.history)
    return table_load.read_base(spark, context, task.history_path, published, scd2.NOTE)


def _keyed(task: TableTask) -> bool:
    return bool(table_task.target_of(task).key)


def _check_names(target: TargetSchema) -> None:
    own = {name.casefold() for name in (scd2.START, scd2.END, scd2.FROM, scd2.UPTO)}
    if taken := sorted(name for name in target.columns if name.casefold() in own):
        raise NeedsOperator(
            f"{target.table}: columns {', '.join(taken)} have names that its history uses itself",
            hint="Keep no history of this table (history = false), or rename them at the source.",
        )


def _from(spark: SparkSession, context: LoadContext, task: TableTask, low: Positions) -> TableTask:
    """Return the work that begins at positions of its own."""
    rows = context.rows(spark, None)
    new = batch_profile.profile(rows.filter(F.col("table") == task.table), low, task.high)
    table = replace(task.published, schemas=task.published.schemas if low else {})
    return replace(task, published=table, seen=new.seen, records=new.records, after=None)


def _write(
    spark: SparkSession,
    context: LoadContext,
    task: TableTask,
    low: Positions,
    how: Literal["create", "replace", "change"],
) -> int:
    """Write the versions that come after the low watermarks; return the version of the commit."""
    assert task.history is not None
    target = table_task.target_of(task)
    base = _base(spark, context, task)
    commit.check_unmoved(base, low, task.high, f"history of {task.table}", how)
    commit.check_erased(spark, base, context.bronze, context.version, f"history of {task.table}")
    place, exists = task.history_path, how == "change"
    _check_names(target)
    own = commit.begin(spark, base, stream=context.stream, kind=scd2.NOTE, attempt=context.attempt)
    if exists:
        target = write.fit(spark, place, target, is_open=task.open)
    raw = context.rows(spark, task.after)
    within = batch_profile.within(low, task.high)
    ahead = table_task.ahead_of(task, low)
    cleared = table_task.find_truncates(task, ahead, low)
    inside = changes.of_range(raw, task.table, within, {})
    current = None
    if exists:
        current = spark.read.format("delta").load(place).filter(F.col(scd2.UPTO).isNull())
    partial = any(profile.partial for profile in ahead)
    # The lake's file has the source's names.
    named = set(task.history.tracked(map(target.at_source, target.columns)))
    tracked = [name for name in target.columns if name not in target.key and target.at_source(name) in named]
    note = table_load.note(context, task, scd2.NOTE, base)
    with table_load.persist_scope() as persist:
        seeds = None
        if current is not None:
            seeds = current.withColumns({POSITION: F.col(scd2.FROM), COMMIT_TIME: F.col(scd2.START)})
        timeline = ordered_apply.row_versions(inside, target, seeds, persist, partial=partial)
        rows = scd2.versions(timeline, target, current, tracked, cleared)
        if exists:
            scd2.merge(spark, persist(rows), place, target, note, cleared)
        else:
            lead = (SOURCE, scd2.FROM, *target.key)
            if how == "replace":
                write.replace(rows, place, note, own, lead)
            else:
                write.create(rows, place, note, own, lead, is_open=task.open)
    of_table = f"history of {task.table}"
    return commit.find_own_version(spark, place, base, table=of_table, kind=scd2.NOTE, attempt=context.attempt)
