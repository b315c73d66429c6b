"""One table's part of a load: from the positions that the table itself has, up to the load's high watermarks, in one commit.

Guarantees that applying is harmless to repeat at any point. Raises NeedsOperator for what stops this table alone. Called by the
load, each table with a session of its own.

A table of several sources goes on without those that do not fit it: by their key, their types or their values. No region may stop
a table for the others. The whole is tried first. Where that fails, the sources are tried in halves, those whose schema most of
them have first, each with all that went well before it. One that fails alone is held back: its rows stay as they were, at a
position and with a reason that are published. It is tried again once a source describes the table otherwise (all may have to
change their key), once it truncates or copies the table, and when the lake's file changes. A table that would be left without a
source stops, as one that a single source sends does. Each try is an ordinary load, which begins where the one before it ended.
"""

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Literal

from pyspark.sql import DataFrame, SparkSession

from headrace.configuration.lake import LakeFile
from headrace.doors import place_of
from headrace.errors import CorruptInput, ReplicationError
from headrace.schema import TableSchema
from spark_jobs.errors import Misfit
from spark_jobs.silver import (
    bag,
    changes,
    commit,
    held_back,
    ordered_apply,
    profiles,
    table_task,
    target_schema,
)
from spark_jobs.silver import merge as write
from spark_jobs.silver.commit import Base
from spark_jobs.silver.ordered_apply import Persist
from spark_jobs.silver.profiles import Missing, TableProfile, Truncate
from spark_jobs.silver.table_task import LoadContext, Step, TableTask
from spark_jobs.state import delta_log
from spark_jobs.state.published import Positions, Table
from spark_jobs.state.published_rows import NEW, HeldBack

NOTE = "silver"
#: Changes a key from which it pays to choose the newest ahead of the shuffle too.
_HOT = 4

_log = logging.getLogger(__name__)


def read_base(
    spark: SparkSession, context: LoadContext, task: TableTask, kind: str = NOTE, *, overwrites: bool = False
) -> Base:
    """Return the table as a load finds it.

    Raises Retryable where it is ahead of the load, and NeedsOperator where another program changed it, unless the load
    `overwrites` it.
    """
    base = commit.base(
        spark,
        task.path,
        task.table,
        stream=context.stream,
        kind=kind,
        positions=task.published.positions,
        version=task.published.version,
        load=context.load,
    )
    commit.check_order(base, task.high, context.held_sources | task.published.held_back.keys())
    commit.check_erased(spark, base, context.bronze.path, context.bronze.version)
    if not overwrites:
        commit.check_own(base)
    return base


def apply(spark: SparkSession, context: LoadContext, task: TableTask, base: Base) -> Table:
    """Bring the table, as it was found, up to the high watermarks; return its state. The session is this table's own."""
    for step in table_task.steps(spark, context, task, base.positions, exists=base.exists):
        with write.plan_for(spark, base, step.changes):
            base = _write(spark, context, step, base, "change" if base.exists else "create")
    return _done(task, base.current, base.missing)


def build(spark: SparkSession, context: LoadContext, task: TableTask, low: Positions) -> Table:
    """Replace all that the table has by what comes after the low watermarks, up to the high ones; return its state."""
    base = replace(read_base(spark, context, task, overwrites=True), missing=())
    for number, step in enumerate(table_task.steps(spark, context, task, low, exists=False)):
        with write.plan_for(spark, base, step.changes):
            base = _write(spark, context, step, base, "change" if number else "replace")
    return _done(task, base.current, base.missing)


def _done(task: TableTask, version: int | None, missing: Sequence[Missing] = ()) -> Table:
    # Those that a former attempt, or a task of the table's group, committed and that are not published count too.
    count = sum(profile.changes for profile in table_task.ahead_of(task, task.published.positions))
    schemas = table_task.newest_schemas(task)
    former_warnings = dict(task.published.warnings) | held_back.warn_of_missing(task.table, missing)
    warnings = held_back.copy_warnings(task.table, former_warnings, task.versions, task.truncated)
    return replace(
        task.published.as_going_on(),
        version=version,
        changes=count,
        positions=task.high,
        schemas=schemas,
        bronze_after=task.published.bronze_after if task.published.waiting else None,
        warnings=warnings,
        keyed=any(TableSchema.parse(text).key for text in schemas.values()),
        since=task.published.since if task.published.version is not None else NEW,
    )


def _write(
    spark: SparkSession,
    context: LoadContext,
    step: Step,
    base: Base,
    how: Literal["create", "replace", "change"],
) -> Base:
    """Write what a step brings; return the table as it is then, with the rows without a key that it lacked."""
    task, target, cleared, exists = step.task, step.target, step.truncates, how == "change"
    own = commit.begin(spark, base, context.attempt)
    if exists:
        target = write.fit(spark, base.path, target, is_open=task.open)
    silver = spark.read.format("delta").load(base.path) if exists else None
    with persist_scope() as persist:
        frame, taken = rows(target, step.changed, step.ahead, silver, persist, cleared)
        missing = (*base.missing, *taken.missing)
        text = note(context, task, base, missing)
        lead = (target_schema.SOURCE, target_schema.POSITION, *target.key)
        if how == "create":
            write.create(frame, base.path, text, own, lead, is_open=task.open)
        elif how == "replace":
            write.replace(frame, base.path, text, own, lead)
        elif target.key:
            write.merge(spark, persist(frame), base.path, target, text, cleared)
        else:
            # Read, which rows are taken, before the table changes.
            frame = persist(frame) if taken.any else frame
            if cleared:
                write.clear(spark, base.path, target, cleared)
            if taken.any:
                write.take(spark, frame, base.path, target, text)
            else:
                write.append(frame, base.path, text, own)
    return base.after(commit.find_own_version(spark, base, context.attempt), task.high, missing)


def note(context: LoadContext, task: TableTask, base: Base, missing: Sequence[Missing] = ()) -> str:
    """Return the note of a commit that brings a table or its history up to the high watermarks.

    `missing`: rows that it and commits before it lacked, none of them published.
    """
    ours = {
        "stream": context.stream,
        "table": task.table,
        "load": context.load,
        "attempt": context.attempt,
        "number": base.number + 1,
    }
    if missing:
        # A load that ends before it publishes leaves them to the next one, which writes nothing again.
        ours["missing"] = [(gap.source, gap.rows, gap.position) for gap in missing]
    return delta_log.write(base.kind, **ours, positions=task.high)


@contextmanager
def persist_scope() -> Iterator[Persist]:
    """Give a function that persists frames, and release them afterwards."""
    frames: list[DataFrame] = []

    def persist(frame: DataFrame) -> DataFrame:
        frames.append(frame.persist())
        return frame

    try:
        yield persist
    finally:
        for frame in frames:
            frame.unpersist()


def rows(
    target: target_schema.TargetSchema,
    changed: DataFrame,
    ahead: list[TableProfile],
    silver: DataFrame | None,
    persist: Persist,
    cleared: list[Truncate],
) -> tuple[DataFrame, bag.Taken]:
    """Return the newest row of each key; of a table without a key, every row, and what is known of those that changes take.

    `changed` has the table's records of the range, `silver` is the table at the low watermarks.
    """
    # What is truncated is gone before anything is parsed, unless it stays, marked.
    inside = changed if target.soft else changes.without_truncated(changed, profiles.last_truncates(cleared))
    partial = any(profile.partial for profile in ahead)
    ended = target.soft and (cleared or any(profile.deletes for profile in ahead))
    in_order = partial or ended or not target.canonical_key or any(profile.rekeyed for profile in ahead)
    if target.key and not in_order:
        newest = changes.newest(
            inside, hot=sum(profile.changes for profile in ahead) > _HOT * sum(profile.keys for profile in ahead)
        )
        return changes.parse(newest if silver is not None else newest.filter(newest["op"] != "d"), target), bag.NOTHING
    if not target.key and not any(profile.rewrites for profile in ahead):
        frame = changes.parse(inside, target)
        return profiles.mark_deleted(frame, cleared) if target.soft else frame, bag.NOTHING
    if silver is not None and not target.soft:
        silver = profiles.drop_removed(silver, cleared)
    if not target.key:
        return bag.apply_changes(inside, target, silver, persist, cleared)
    return ordered_apply.latest_rows(inside, target, silver, persist, cleared, partial=partial), bag.NOTHING


#: Characters of a reason that are kept: names of columns are as long as their owners like.
_MOST = 1_000


def apply_without_misfits(
    lake: LakeFile,
    context: LoadContext,
    task: TableTask,
    attempt: Callable[[TableTask], Table],
    reached: Callable[[], Positions],
) -> Table:
    """Return a table once `attempt` has brought it up to the high watermarks, but for sources with which it cannot be.

    `reached` returns the positions that its commits show, and its history's. Raises what `attempt` raised for the whole where no
    source is the reason, or none would be left.
    """
    try:
        return attempt(task)
    except Exception as error:
        if not (task.is_shared and _is_of_input(error, task)):
            raise
        whole = error
    sources = _order_sources(task)
    if not sources:
        raise whole
    reasons = _find_misfits(task, sources, whole, attempt, reached)
    if task.published.held_back.keys() | reasons.keys() >= task.sources:
        raise whole
    rest = _without(task, reasons, reached())
    try:
        done = attempt(rest)
    except (Misfit, CorruptInput):
        raise whole from None
    schemas = table_task.newest_schemas(task)
    held = task.published.held_back | {
        source: HeldBack(
            at=rest.high.get(source, ""), reason=reason[:_MOST], schema=held_back.digest_schema(schemas.get(source))
        )
        for source, reason in reasons.items()
    }
    # What is known of where a stopped table goes on holds for these sources.
    stopped = held_back.stop_table(lake, context, task, "")
    return replace(done, held_back=held, settings=stopped.settings, bronze_after=stopped.bronze_after).as_going_on()


def _find_misfits(
    task: TableTask,
    sources: list[str],
    whole: Exception,
    attempt: Callable[[TableTask], Table],
    reached: Callable[[], Positions],
) -> dict[str, str]:
    """Return the sources that fail alone, once all others are in, and what they fail with; `whole` is what all failed with."""
    reasons: dict[str, str] = {}
    groups = _halve(sources)
    while groups:
        group = groups.pop(0)
        left = [*reasons, *(source for other in groups for source in other)]
        error: Exception | None = whole
        if left:
            error = _try(task, _without(task, left, reached()), attempt)
        elif len(sources) > 1 and not isinstance(whole, ReplicationError):
            # It may have passed since.
            error = _try(task, task, attempt)
        if error is None:
            continue
        if len(group) > 1:
            groups = [*_halve(group), *groups]
        else:
            reasons[group[0]] = _explain(task, error)
    return reasons


def _try(task: TableTask, part: TableTask, attempt: Callable[[TableTask], Table]) -> Exception | None:
    """Return what a part of the work fails with for what a source sent; None where it goes well."""
    try:
        attempt(part)
    except Exception as error:
        if not _is_of_input(error, task):
            raise
        return error
    return None


def _halve(sources: list[str]) -> list[list[str]]:
    half = len(sources) // 2
    return [part for part in (sources[:half], sources[half:]) if part]


def _order_sources(task: TableTask) -> list[str]:
    """Return the sources of which there is something to do, those first that have the schema which most of the table's have."""
    schemas = {source: held_back.digest_schema(text) for source, text in table_task.newest_schemas(task).items()}
    alike = Counter(schemas.values())
    sources = {profile.source for profile in task.seen} | {record.source for record in task.records}
    return sorted(sources, key=lambda source: (-alike[schemas.get(source, "")], source))


def _without(task: TableTask, sources: Collection[str], reached: Positions) -> TableTask:
    """Return the work without what some sources have beyond what the table shows of them already."""
    shown = task.published.positions
    return table_task.limit(task, {source: max(shown.get(source, ""), reached.get(source, "")) for source in sources})


def _is_of_input(error: Exception, task: TableTask) -> bool:
    """Whether an error may be due to what one source sent; one that nobody expected is tried again by later loads first."""
    if isinstance(error, ReplicationError):
        return isinstance(error, Misfit | CorruptInput)
    return task.published.failures + 1 >= held_back.TRIES


def _explain(task: TableTask, error: Exception) -> str:
    if isinstance(error, ReplicationError):
        return f"{error.message} {error.hint}".strip()
    # Its text may hold what came in.
    text = f"unexpected {type(error).__name__} at {place_of(error)}: report this line"
    _log.error("silver %s: %s", task.table, text)
    return text
