"""A table's history: every version that a row ever had, with the times at its source between which it was so (SCD type 2).

A version is named by its source, its key and the position that it began at, so writing it again changes nothing: any replay is
harmless. It has the table's columns, and `_source`, `__START_AT` and `__END_AT` (commit times at the source; null while it
is current), `_start_position` and `_end_position` (exact, where one transaction changed a row twice). The vocabulary is that of
AUTO CDC.

Loaded up to the high watermarks, in one commit that has the positions it reaches, as for current rows: from the table's first
change in bronze when there is no history yet, or from where an earlier one was left. Raises NeedsOperator for what stops this
table alone. Called by the load next to the table's current rows, in a session of its own.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from delta import DeltaTable
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.

from spark_jobs.errors import Misfit
from spark_jobs.session import plan_for_many
from spark_jobs.silver import batch_profile, commit, ordered_apply, profiles, table_load, table_task
from spark_jobs.silver import merge as write
from spark_jobs.silver.changes import OP
from spark_jobs.silver.commit import NOTE_SETTING, Base
from spark_jobs.silver.ordered_apply import KEY, SEED
from spark_jobs.silver.profiles import Truncate
from spark_jobs.silver.table_task import LoadContext, Step, TableTask
from spark_jobs.silver.target_schema import COMMIT_TIME, POSITION, SOURCE, TargetSchema
from spark_jobs.state import log_files, published
from spark_jobs.state.published import Positions, Table
from spark_jobs.storage import name as _q

NOTE = "history"
START, END, FROM, UPTO = "__START_AT", "__END_AT", "_start_position", "_end_position"
_VERSION, _BEGINS = "_version", "_begins"


def versions(
    timeline: DataFrame,
    target: TargetSchema,
    current: DataFrame | None,
    tracked: Sequence[str],
    cleared: list[Truncate],
) -> DataFrame:
    """Return the versions that a range of changes begins, goes on with or ends.

    `current` holds the history's rows that have not ended; those of keys that the range touches are among the versions.
    """
    events = timeline.filter(~F.col(SEED)).select(*_event_columns(target), F.lit(None).cast("string").alias(FROM))
    if current is not None:
        events = events.unionByName(_open(current, events, target))
    of_key = Window.partitionBy(SOURCE, KEY).orderBy(POSITION)
    here = F.struct(*(F.col(_q(name)) for name in tracked), (F.col(OP) == "d").alias(OP))
    previous = F.lag(here).over(of_key)
    events = events.withColumn("_previous", F.lag(POSITION).over(of_key))
    cut = profiles.first_truncate_after(F.col("_previous"), cleared)["position"] < F.col(POSITION)
    begins = previous.isNull() | ~here.eqNullSafe(previous) | F.coalesce(cut, F.lit(False))
    numbered = events.withColumn(_BEGINS, begins.cast("int")).withColumn(_VERSION, F.sum(_BEGINS).over(of_key))
    of_version = Window.partitionBy(SOURCE, KEY, _VERSION)
    first = of_version.orderBy(POSITION).rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    last = numbered.withColumns(
        {
            FROM: F.first(F.coalesce(FROM, POSITION)).over(first),
            START: F.first(COMMIT_TIME).over(first),
            "_rank": F.row_number().over(of_version.orderBy(F.desc(POSITION))),
        }
    ).filter(F.col("_rank") == 1)
    return _ended(last, cleared).select(
        *(F.col(f"{KEY}.{_q(n)}").alias(n) if n in target.key else F.col(_q(n)) for n in target.columns),
        *(SOURCE, START, END, FROM, UPTO),
    )


def _event_columns(target: TargetSchema) -> list[str]:
    own = [_q(name) for name in target.columns if name not in target.key]
    return [*own, SOURCE, KEY, POSITION, COMMIT_TIME, OP]


def _open(current: DataFrame, events: DataFrame, target: TargetSchema) -> DataFrame:
    """Return the rows that have not ended, of keys that the events touch, as the first events of their keys."""
    keyed = current.withColumn(KEY, F.struct(*(F.col(_q(name)).alias(name) for name in target.key)))
    touched = ordered_apply.having(keyed, events.select(SOURCE, KEY).distinct(), target)
    rows = touched.withColumns({POSITION: F.col(FROM), COMMIT_TIME: F.col(START), OP: F.lit("r")})
    return rows.select(*_event_columns(target), FROM)


def _ended(versions: DataFrame, cleared: list[Truncate]) -> DataFrame:
    """Return the versions of rows with their ends: the next change of the key, or a truncate before it."""
    of_key = Window.partitionBy(SOURCE, KEY).orderBy(FROM)
    following = F.struct(F.lead(FROM).over(of_key).alias("position"), F.lead(START).over(of_key).alias("at"))
    truncate = profiles.first_truncate_after(F.col(FROM), cleared)
    sooner = truncate["position"].isNotNull() & (
        following["position"].isNull() | (truncate["position"] < following["position"])
    )
    end = F.when(sooner, truncate).otherwise(following)
    return (
        versions.withColumn("_end", end)
        .filter(F.col(OP) != "d")
        .withColumns({END: F.col("_end.at"), UPTO: F.col("_end.position")})
    )


def merge(
    spark: SparkSession, rows: DataFrame, place: str, target: TargetSchema, note: str, cleared: list[Truncate]
) -> None:
    """Write versions: those that are there get their new values and ends; a truncate ends what its source had.

    One commit, since versions are made from those that were open before it. The session is this table's own: the note is a
    setting of the session.
    """
    table = DeltaTable.forPath(spark, place)
    same = write.same_row(rows, target, size=log_files.size(spark, place)) & (F.col(f"t.{FROM}") == F.col(f"s.{FROM}"))
    values = write.quote({name: F.col(f"s.{_q(name)}") for name in rows.columns})
    plan = table.alias("t").merge(rows.alias("s"), same)
    plan = plan.whenMatchedUpdate(set=values).whenNotMatchedInsert(values=values)
    if cleared:
        # Versions of keys that the range touches have their ends already.
        ended = profiles.where_ended(cleared, f"t.{UPTO} IS NULL", FROM, row="t.")
        ends = {END: profiles.ending_time(cleared, "t."), UPTO: profiles.ending_position(cleared, "t.")}
        plan = plan.whenNotMatchedBySourceUpdate(ended, dict(ends))
    spark.conf.set(NOTE_SETTING, note)
    plan.execute()


def apply(spark: SparkSession, context: LoadContext, task: TableTask) -> int | None:
    """Bring the history up to the high watermarks; return its version, or None for a table without a key: it has none."""
    # A version that ended has its end, whether or not deleted current rows are kept.
    task = replace(task, soft=False)
    base = read_base(spark, context, task)
    low = base.positions if base.exists else {}
    own = task if base.exists and _covered(task, low) else _from(spark, context, task, low)
    if table_task.ahead_of(own, low) or not base.exists:
        if not _keyed(own):
            return None
        for step in table_task.steps(spark, context, own, low, exists=base.exists, history=True):
            with write.plan_for(spark, base, step.changes):
                base = _write(spark, context, step, base, "change" if base.exists else "create")
    return base.current


def rebuild(
    spark: SparkSession, context: LoadContext, task: TableTask, done: Table, low: Positions | None = None
) -> Table:
    """Build the history again, from some positions on if given; return the table with its version."""
    task = replace(task, soft=False)
    if low is None and task.published.history is not None:
        # One that is turned on later begins with what bronze has.
        published.refuse_removed({}, table_task.find_removed(context, task), task.table)
    own = _from(spark, context, task, {}) if low is None else task
    if not _keyed(own):
        return replace(done, history=None)
    base = read_base(spark, context, task, overwrites=True)
    for number, step in enumerate(table_task.steps(spark, context, own, low or {}, exists=False, history=True)):
        with write.plan_for(spark, base, step.changes):
            base = _write(spark, context, step, base, "change" if number else "replace")
    return replace(done, history=base.current)


def _covered(task: TableTask, low: Positions) -> bool:
    """Whether the work has all that a history lacks which is at some positions; what is before them is passed over."""
    return all(position <= low.get(source, "") for source, position in task.published.positions.items())


def read_base(spark: SparkSession, context: LoadContext, task: TableTask, *, overwrites: bool = False) -> Base:
    """Return the history as a load finds it; raise as for a table."""
    own = replace(task.published, version=task.published.history)
    its = replace(task, table=f"history of {task.table}", path=task.history_path, published=own)
    return table_load.read_base(spark, context, its, NOTE, overwrites=overwrites)


def _keyed(task: TableTask) -> bool:
    return bool(table_task.target_of(task).key)


def _check_names(target: TargetSchema) -> None:
    own = {name.casefold() for name in (START, END, FROM, UPTO)}
    if taken := sorted(name for name in target.columns if name.casefold() in own):
        raise Misfit(
            f"{target.table}: columns {', '.join(taken)} have names that its history uses itself",
            hint="Keep no history of this table (history = false), or rename them at the source.",
        )


def _from(spark: SparkSession, context: LoadContext, task: TableTask, low: Positions) -> TableTask:
    """Return the work that begins at positions of its own."""
    with plan_for_many(spark):
        rows = context.bronze.rows(spark, None)
        new = batch_profile.profile(rows.filter(F.col("table") == task.table), low, task.high)
    table = replace(task.published, schemas=task.published.schemas if low else {})
    return replace(task, published=table, seen=new.seen, records=new.records, after=None)


def _write(
    spark: SparkSession,
    context: LoadContext,
    step: Step,
    base: Base,
    how: Literal["create", "replace", "change"],
) -> Base:
    """Write the versions that a step brings; return the history as it is then."""
    task = step.task
    assert task.history is not None
    target, cleared = step.target, step.truncates
    place, exists = base.path, how == "change"
    _check_names(target)
    own = commit.begin(spark, base, context.attempt)
    if exists:
        target = write.fit(spark, place, target, is_open=task.open)
    current = None
    if exists:
        current = spark.read.format("delta").load(place).filter(F.col(UPTO).isNull())
    partial = any(profile.partial for profile in step.ahead)
    # The lake's file has the source's names.
    named = set(task.history.tracked(map(target.at_source, target.columns)))
    tracked = [name for name in target.columns if name not in target.key and target.at_source(name) in named]
    note = table_load.note(context, task, base)
    with table_load.persist_scope() as persist:
        seeds = None
        if current is not None:
            seeds = current.withColumns({POSITION: F.col(FROM), COMMIT_TIME: F.col(START)})
        timeline = ordered_apply.row_versions(step.changed, target, seeds, persist, partial=partial)
        rows = versions(timeline, target, current, tracked, cleared)
        if exists:
            merge(spark, persist(rows), place, target, note, cleared)
        else:
            lead = (SOURCE, FROM, *target.key)
            if how == "replace":
                write.replace(rows, place, note, own, lead)
            else:
                write.create(rows, place, note, own, lead, is_open=task.open)
    return base.after(commit.find_own_version(spark, base, context.attempt), task.high)
