"""A table that was renamed at its sources: its history is joined to that of its former name.

The lake has two tables: no log says that they are one, and the present one has its rows from a copy. From a rename on the former
name is gone from all that shows tables, as one that was dropped, but its history stays, and `full_history` shows both as one
(query/full_history.py). Nothing is written again: each name keeps its folders, is erased from, and can be taken back as it was.
Called by `headrace lake rename`.
"""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import reduce
from operator import and_

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.

from headrace.configuration.lake import LakeFile
from headrace.errors import NeedsOperator, Retryable
from spark_jobs.errors import explained
from spark_jobs.maintenance import drop
from spark_jobs.query import full_history
from spark_jobs.silver import table_task
from spark_jobs.silver.scd2 import FROM, START, UPTO
from spark_jobs.silver.target_schema import SOURCE
from spark_jobs.state import delta_log, names
from spark_jobs.state.published import Dropped, Published, Table
from spark_jobs.state.published_rows import Begin
from spark_jobs.storage import name as _q


@dataclass(frozen=True, kw_only=True)
class RenameReport:
    """What a rename did, or would do."""

    stream: str
    former: str
    table: str
    #: `full_history.NAME` in SQL.
    name: str
    #: `renamed`, or `nothing` when it was so already.
    done: str
    #: Number of the publication; None of a dry run, and when there was nothing to do.
    load: int | None = None
    #: Columns whose former values have a type that does not fit: they are in the former history alone.
    misfits: list[str] = field(default_factory=list)
    #: By source, rows that were current by the former name and have no version by the present one: they end where that begins.
    ended: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class _Comparison:
    """What two histories have to do with each other."""

    misfits: list[str]
    ended: dict[str, int]
    begins: dict[str, Begin]


def rename(
    spark: SparkSession, lake: LakeFile, stream: str, former: str, table: str, *, dry_run: bool = False
) -> RenameReport:
    """Publish that a table had a former name.

    Raises NeedsOperator where these are not one table, or keep no history; Retryable while loads of the stream publish.
    """
    # Compared once, however many loads publish meanwhile: what these bring is behind what was compared.
    compared: dict[tuple[int | None, int | None], _Comparison] = {}

    def change(before: Published) -> Published | None:
        if former in before.dropped and before.dropped[former].renamed_to == table:
            return None
        old, own = drop.find(before, former), drop.find(before, table)
        _refuse_others(before, old, own, lake.stream(stream).sources)
        old = _whole(spark, lake, stream, old)
        known = old.version, old.history
        if known not in compared:
            compared.clear()
            compared[known] = _compare(spark, lake, stream, old, own)
        begins = compared[known].begins
        return drop.without(before, Dropped(at=datetime.now(UTC), table=old, renamed_to=table, begins=begins))

    state, load = drop.publish(spark, lake, stream, change, dry_run=dry_run)
    comparison = next(iter(compared.values()), None)
    is_done = former in state.dropped and load is None
    return RenameReport(
        stream=stream,
        former=former,
        table=table,
        name=f"full_history.{names.of(spark, lake, [(stream, table)])[stream, table]}",
        done="nothing" if is_done else "renamed",
        load=load,
        misfits=comparison.misfits if comparison else [],
        ended=comparison.ended if comparison else {},
    )


def _refuse_others(before: Published, old: Table, own: Table, sources: Collection[str]) -> None:
    """Raise NeedsOperator for tables that are no two names of one, or not complete."""
    if old.table == own.table:
        raise NeedsOperator(f"{old.table} has that name already", hint="Give its former name, and its present one.")
    if names_before := before.former_names(own.table):
        raise NeedsOperator(
            f"{own.table} has the former name {names_before[0]} already",
            hint=f"Rename in order: take that back ('headrace lake drop {before.stream} {names_before[0]} "
            f"--undo'), load, then rename {old.table} to {names_before[0]}, and that to {own.table}.",
        )
    for table in (old, own):
        if table.history is None:
            raise NeedsOperator(
                f"{table.table} keeps no history, which is what a rename carries on",
                hint="Set history = true for it and load; or drop the former name: "
                f"'headrace lake drop {before.stream} {old.table}'.",
            )
        if table.lags or table.held_back or table.positions != before.positions:
            why = table.problem or ("a copy of it is under way" if table.copying else "it is behind its stream")
            raise NeedsOperator(
                f"{table.table} is not complete: {why}", hint="Rename it once loads have brought it up."
            )
    # A source that the stream has no more sends nothing under any name.
    if missing := sorted(old.schemas.keys() & set(sources) - own.schemas.keys()):
        raise NeedsOperator(
            f"{', '.join(missing)} has not sent {own.table} yet, and has rows of {old.table}", hint=_copy(own)
        )


def _copy(own: Table) -> str:
    copy = f"copy it by its new name ('headrace edge snapshot {own.table}'), and load"
    return f"Rename the table there too, {copy}. A table that is empty there has to get a row first."


def _whole(spark: SparkSession, lake: LakeFile, stream: str, table: Table) -> Table:
    """Return a table at its newest versions, which maintenance may have written; raise Retryable where a load has written it.

    What that load left would be in the way of erasures: no load goes on with a former name.
    """
    silver, history = (of(lake, stream, table.table) for of in (table_task.path, table_task.history_path))
    with explained(f"rename {table.table}"):
        newest = [
            delta_log.find_maintained(spark, path, version or 0)
            for path, version in ((silver, table.version), (history, table.history))
        ]
    if None in newest:
        raise Retryable(
            f"something has written {table.table} and has not published it",
            hint="Load, or run an erasure again that was interrupted; then rename it. Where another program has written it: "
            f"'headrace lake replay {stream}'.",
        )
    return replace(table, version=newest[0], history=newest[1])


def _compare(spark: SparkSession, lake: LakeFile, stream: str, old: Table, own: Table) -> _Comparison:
    """Return what two histories have in common; raise NeedsOperator where they cannot be of one table."""
    with explained(f"rename {old.table}"):
        former, present = (_history(spark, lake, stream, table) for table in (old, own))
        histories = [full_history.of(t, t.table, f.schema) for t, f in ((old, former), (own, present))]
        if not full_history.have_same_rows(*histories):
            keys = " and ".join(f"({', '.join(history.key)})" for history in histories)
            raise NeedsOperator(
                f"{old.table} and {own.table} have keys of other columns or types: {keys}",
                hint=f"Leave both, or drop the former name: 'headrace lake drop {stream} {old.table}'.",
            )
        begun = present.groupBy(SOURCE).agg(F.min(F.struct(FROM, START)).alias("first"))
        ended = former.groupBy(SOURCE).agg(F.max(F.greatest(FROM, UPTO)).alias("last"))
        at, time = f"first.{FROM}", f"first.{START}"
        sources = {
            row[SOURCE]: row for row in ended.join(begun, SOURCE, "left").select(SOURCE, "last", at, time).collect()
        }
        for source, row in sorted(sources.items()):
            if row[FROM] is not None and row["last"] > row[FROM]:
                raise NeedsOperator(
                    f"{source} sent rows of {old.table} after it had sent {own.table}: these are two tables",
                    hint=f"If another table has the former name since, leave both; if {old.table} is no longer wanted, drop it.",
                )
        same = [
            F.col(f"v.{_q(key)}") == F.col(f"p.{_q((histories[1].find(key) or (key,))[0])}") for key in histories[0].key
        ]
        same.append(F.col(f"v.{SOURCE}") == F.col(f"p.{SOURCE}"))
        alone = former.filter(F.col(UPTO).isNull()).alias("v").join(present.alias("p"), reduce(and_, same), "left_anti")
        counts = {row[SOURCE]: int(row["count"]) for row in alone.groupBy(SOURCE).count().collect()}
        if unknown := sorted(
            source for source in counts if sources[source][FROM] is None and source in lake.stream(stream).sources
        ):
            raise NeedsOperator(
                f"{', '.join(unknown)} has sent no row of {own.table}, and has current ones of {old.table}",
                hint=_copy(own),
            )
        begins = {
            source: Begin(at=row[FROM], time=row[START].astimezone(UTC) if row[START] else None)
            for source, row in sources.items()
            if row[FROM] is not None
        }
        return _Comparison(
            misfits=full_history.find_misfits(*histories),
            ended={source: count for source, count in sorted(counts.items()) if source in begins},
            begins=begins,
        )


def _history(spark: SparkSession, lake: LakeFile, stream: str, table: Table) -> DataFrame:
    place = table_task.history_path(lake, stream, table.table)
    return spark.read.format("delta").option("versionAsOf", table.history or 0).load(place)
