"""A table dropped from the lake: one that its source dropped, or that is no longer wanted.

Loads pass over its records, and what is published no longer shows it; bronze keeps what came. Its folders stay for `keep_days`,
for readers of former versions, and maintenance removes them then. Until the drop is taken back, no record brings the table back:
an edge writes a schema record in each of its sessions. Called by `headrace lake drop` and by maintenance.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from pyspark.sql import SparkSession

from headrace.configuration.lake import LakeFile
from headrace.errors import NeedsOperator, Retryable
from spark_jobs import storage
from spark_jobs.bronze import erasures
from spark_jobs.errors import explained
from spark_jobs.silver import table_task
from spark_jobs.state import names, publication, published
from spark_jobs.state.published import Dropped, Published, Table

#: How often it is published again when loads of the stream publish at the same time.
_TRIES = 20
#: Maintenance by a clock that is ahead may be removing folders that are that close to their time.
_MARGIN = timedelta(days=1)


@dataclass(frozen=True, kw_only=True)
class DropReport:
    """What a drop, or taking one back, did; or would do."""

    stream: str
    table: str
    #: `silver.NAME` in SQL: it keeps its name, which no other table gets.
    name: str
    #: `dropped`, `taken back`, or `nothing` when it was so already.
    done: str
    #: Number of the publication; None of a dry run, and when there was nothing to do.
    load: int | None = None
    #: Folders under the lake's root that maintenance removes, and from when on.
    folders: list[str] = field(default_factory=list)
    removed_after: str | None = None


def drop(spark: SparkSession, lake: LakeFile, stream: str, table: str, *, dry_run: bool = False) -> DropReport:
    """Drop a table and publish that; raise NeedsOperator when the stream has no such table."""

    def change(before: Published) -> Published | None:
        if table in before.dropped and table not in before.renamed:
            return None
        if former := before.former_names(table):
            raise NeedsOperator(
                f"{table} had the name {former[-1]}, whose history the lake keeps",
                hint=f"Drop that first: 'headrace lake drop {stream} {former[-1]}'; or take the rename back, with --undo.",
            )
        return without(before, Dropped(at=datetime.now(UTC), table=before.renamed.get(table) or find(before, table)))

    state, load = publish(spark, lake, stream, change, dry_run=dry_run)
    was_dropped = table in state.dropped and table not in state.renamed
    at = state.dropped[table].at if was_dropped else datetime.now(UTC)
    return DropReport(
        stream=stream,
        table=table,
        name=_name(spark, lake, stream, table),
        done="nothing" if load is None and was_dropped else "dropped",
        load=load,
        folders=[path.removeprefix(f"{lake.root}/") for path in _folders(spark, lake, stream, table)],
        removed_after=(at + timedelta(days=lake.lake.keep_days)).isoformat(),
    )


def find(state: Published, table: str) -> Table:
    """Return a table of a stream; raise NeedsOperator when it has none of that name."""
    if table in state.dropped:
        raise NeedsOperator(
            f"{table} of stream {state.stream!r} is dropped",
            hint=f"Take that back and load: 'headrace lake drop {state.stream} {table} --undo'.",
        )
    if table not in state.tables:
        raise _unknown(state, table)
    return state.tables[table]


def without(before: Published, drop: Dropped) -> Published:
    """Return what is published, without a table that is dropped."""
    name = drop.table.table
    tables = {other: replace(entry, changes=0) for other, entry in before.tables.items() if other != name}
    return replace(before, tables=tables, dropped=before.dropped | {name: drop})


def undo(spark: SparkSession, lake: LakeFile, stream: str, table: str, *, dry_run: bool = False) -> DropReport:
    """Take a drop back, or a rename: the next load goes on with the table from where it was, or builds it from bronze.

    Raises NeedsOperator when the stream has no such table.
    """

    def change(before: Published) -> Published | None:
        if table in before.tables:
            return None
        if table not in before.dropped:
            raise _unknown(before, table)
        dropped = before.dropped[table]
        # Nothing is known of bronze since then.
        restored = replace(dropped.table, changes=0, bronze_after=None, settings=None)
        is_old = datetime.now(UTC) > dropped.at + timedelta(days=lake.lake.keep_days) - _MARGIN
        is_stale = is_old or erasures.has_since(spark, lake, stream, table, dropped.at)
        # Folders of a renamed table stay, and erasures go through them.
        if not dry_run and is_stale and not dropped.renamed_to:
            # So that no half of them is taken for a table, and no row comes back that was erased from bronze meanwhile.
            _delete(spark, lake, stream, table)
        others = {name: other for name, other in before.dropped.items() if name != table}
        tables = {name: replace(other, changes=0) for name, other in before.tables.items()} | {table: restored}
        return replace(before, tables=tables, dropped=others)

    state, load = publish(spark, lake, stream, change, dry_run=dry_run)
    done = "nothing" if load is None and table in state.tables else "taken back"
    return DropReport(stream=stream, table=table, name=_name(spark, lake, stream, table), done=done, load=load)


def remove(spark: SparkSession, lake: LakeFile, stream: str) -> list[str]:
    """Remove the folders of tables that were dropped longer ago than `keep_days`; return those tables."""
    removed = []
    for table in sorted(published.latest(spark, lake, stream).dropped):
        # One may have been taken back meanwhile.
        dropped = published.latest(spark, lake, stream).dropped.get(table)
        if (
            dropped is None
            or dropped.renamed_to
            or datetime.now(UTC) <= dropped.at + timedelta(days=lake.lake.keep_days)
        ):
            continue
        if _folders(spark, lake, stream, table):
            _delete(spark, lake, stream, table)
            removed.append(table)
    return removed


def publish(
    spark: SparkSession, lake: LakeFile, stream: str, change: Callable[[Published], Published | None], *, dry_run: bool
) -> tuple[Published, int | None]:
    """Publish a change of what is published last; return the state, and the number of the publication if there was one."""
    with explained(f"drop {stream}"):
        for tries in range(_TRIES):
            before = published.latest(spark, lake, stream)
            after = change(before)
            if after is None or dry_run:
                return before, None
            after = replace(after, load=before.load + 1, started_at=datetime.now(UTC), changes=0)
            try:
                done = publication.append(spark, lake, after, before=before)
            except Retryable:
                # A load published first.
                if tries + 1 == _TRIES:
                    raise
            else:
                return done, done.load
    raise AssertionError("the last try returns or raises")


def _unknown(state: Published, table: str) -> NeedsOperator:
    listed = ", ".join(sorted(state.tables)) or "none"
    return NeedsOperator(f"stream {state.stream!r} has no table {table}", hint=f"Tables that are published: {listed}.")


def _name(spark: SparkSession, lake: LakeFile, stream: str, table: str) -> str:
    return f"silver.{names.of(spark, lake, [(stream, table)])[stream, table]}"


def _paths(lake: LakeFile, stream: str, table: str) -> list[str]:
    former = f"{lake.root}/former/{stream}/{published.folder(table)}"
    return [table_task.path(lake, stream, table), table_task.history_path(lake, stream, table), former]


def _folders(spark: SparkSession, lake: LakeFile, stream: str, table: str) -> list[str]:
    return [path for path in _paths(lake, stream, table) if storage.exists(spark, path)]


def _delete(spark: SparkSession, lake: LakeFile, stream: str, table: str) -> None:
    for path in _paths(lake, stream, table):
        # First what makes it a table: what is left of one that was killed here is none.
        storage.delete(spark, f"{path}/_delta_log")
        storage.delete(spark, path)
