"""A table that was renamed at its sources: it goes on by its new name with its rows, its history and its records in bronze.

The table of the new name is built from the records of both names, up to what is published. Then bronze's records of the former
name get the new one, and both tables are published in one commit; the former one is dropped with that. Whatever ends this in
between has published nothing: loads go on, and the rename is run again. Called by `headrace lake rename`.
"""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from time import monotonic
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.

from headrace.configuration.lake import LakeFile
from headrace.errors import NeedsOperator
from headrace.schema import TableSchema
from spark_jobs.bronze import erased_records, increment, renamed_records, sink
from spark_jobs.bronze.renamed_records import Rename
from spark_jobs.errors import explained
from spark_jobs.maintenance import replay
from spark_jobs.silver import batch_profile, expectations, table_task
from spark_jobs.silver.table_task import LoadContext
from spark_jobs.state import delta_log, names, publication, published
from spark_jobs.state.published import Dropped, Positions, Published, Table
from spark_jobs.state.published_rows import NEW, Renamed


@dataclass(frozen=True, kw_only=True)
class RenameReport:
    """What a rename did, or would do."""

    stream: str
    former: str
    table: str
    #: `silver.NAME` in SQL, which the table has had since its first record by this name.
    name: str
    #: `renamed`, or `nothing` when it was so already.
    done: str = "renamed"
    #: Number of the publication; None of a dry run, and when there was nothing to do.
    load: int | None = None
    #: Position before which records of the former name are the table's, by source.
    before: Positions = field(default_factory=dict)
    #: Changes of both names.
    changes: int = 0
    seconds: float = 0.0


def rename(
    spark: SparkSession, lake: LakeFile, stream: str, former: str, table: str, *, dry_run: bool = False
) -> RenameReport:
    """Let a table go on by its new name, and publish that.

    Raises NeedsOperator where the stream has no such tables, or they are not all published; where a source has not sent the new
    name yet, or both names by turns; and where bronze no longer has all records. Retryable when a load publishes meanwhile.
    """
    began, started = monotonic(), datetime.now(UTC)
    with explained(f"rename {former}"):
        erased_records.empty_again(spark, lake, stream)
        path = sink.table_path(lake, stream)
        before = published.known_versions(spark, path, published.latest(spark, lake, stream))
        name = f"silver.{names.of(spark, lake, [(stream, table)])[stream, table]}"
        report = RenameReport(stream=stream, former=former, table=table, name=name)
        if _is_done(before, former, table):
            return replace(report, done="nothing")
        own = _own(before, former, table)
        version = delta_log.version(spark, path)
        raw = increment.rows(spark, path, None, version)
        published.refuse_lacking(raw, before)
        moved = renamed_records.read_written(spark, path, former, table)
        moved = moved or Rename(former=former, table=table, before=_find_ends(raw, before, former, table))
        report = replace(report, before=moved.before)
        if dry_run:
            return report
        rows = renamed_records.named(raw, [moved])
        context = LoadContext(
            stream=stream,
            bronze=increment.Bronze(path, version, (None, rows)),
            load=before.load + 1,
            removed=before.bronze_removed,
        )
        nothing = batch_profile.nothing(before.positions)
        task = table_task.task_of(lake, replace(before, tables={table: own}), table, nothing, after=None)
        whole = table_task.from_the_beginning(spark, context, task)
        with explained(f"silver {table}"):
            done = replay.build_from_bronze(spark.newSession(), context, whole)
        # Ahead of what is committed: old notes leave the log by commits.
        erased_records.retry_conflicts(lambda: sink.renew(spark.newSession(), lake, stream))
        erased_records.retry_conflicts(lambda: renamed_records.write(spark, lake, stream, moved))
        gone = Dropped(
            at=datetime.now(UTC), table=before.tables[former], renamed=Renamed(table=table, before=moved.before)
        )
        after = replace(
            before,
            load=context.load,
            started_at=started,
            changes=done.changes,
            # What was published by this name before is another table.
            tables=_without(before.tables, former) | {table: replace(done, since=NEW)},
            dropped={other: drop for other, drop in before.dropped.items() if other != table} | {former: gone},
        )
        after = publication.append(spark, lake, expectations.count(spark, lake, before, after), before=before)
    return replace(report, load=after.load, changes=done.changes, seconds=monotonic() - began)


def _is_done(state: Published, former: str, table: str) -> bool:
    dropped = state.dropped.get(former)
    return dropped is not None and dropped.renamed is not None and dropped.renamed.table == table


def _own(state: Published, former: str, table: str) -> Table:
    """Return the table of the new name as it is published; one that had this name before is dropped."""
    dropped = state.dropped.get(table)
    if former not in state.tables:
        listed = ", ".join(sorted(state.tables)) or "none"
        raise NeedsOperator(
            f"stream {state.stream!r} has no table {former}", hint=f"Tables that are published: {listed}."
        )
    if former == table or (table not in state.tables and (dropped is None or dropped.renamed is None)):
        raise NeedsOperator(
            f"stream {state.stream!r} has no table {table} that {former} could have become",
            hint="It is there once a load has brought its first change by the new name: change a row of it at each source.",
        )
    own = state.tables[table] if dropped is None else dropped.table
    for one in [state.tables[former]] + ([own] if dropped is None else []):
        if one.positions != state.positions or one.problem is not None or one.copying:
            raise NeedsOperator(
                f"{one.table} is not where stream {state.stream!r} is: {one.problem or 'a copy is under way'}",
                hint=f"Let it go on first: 'headrace lake tables {state.stream}' lists what it waits for.",
            )
    return replace(own, positions={}, schemas={}, warnings={}, bronze_after=None, settings=None)


def _without(tables: dict[str, Table], former: str) -> dict[str, Table]:
    return {name: replace(table, changes=0) for name, table in tables.items() if name != former}


def _find_ends(rows: DataFrame, state: Published, former: str, table: str) -> Positions:
    """Return the position of each source before which records of the former name are the table's.

    Raises NeedsOperator where the log does not have one name behind the other.
    """
    position, changed = F.col("position"), F.when(F.col("op").isNotNull(), F.col("position"))
    groups = rows.filter(F.col("table").isin(former, table) & position.isNotNull()).groupBy("source", "table")
    ends = groups.agg(F.min(position).alias("first"), F.max(changed).alias("last"), F.max_by("op", changed).alias("op"))
    by_name: dict[str, dict[str, Any]] = {former: {}, table: {}}
    for row in ends.collect():
        by_name[row["table"]][row["source"]] = row
    old, new = {s: row for s, row in by_name[former].items() if row["last"]}, by_name[table]
    if silent := sorted(old.keys() - new.keys()):
        raise NeedsOperator(
            f"{', '.join(silent)} sent {former}, and nothing of {table} yet",
            hint="Rename it there too and change a row of it, then load and run this again.",
        )
    if mixed := sorted(source for source, row in old.items() if row["last"] >= new[source]["first"]):
        raise NeedsOperator(
            f"{', '.join(mixed)} sent {former} after {table}: these are two tables",
            hint=f"Copy {table} at these sources ('headrace edge snapshot --replace'), and drop {former} from the lake.",
        )
    # MariaDB and MySQL, whose types are in capitals, empty the former name as a table is renamed: the table has its rows.
    schemas = state.tables[former].schemas
    emptied = {
        source
        for source, row in old.items()
        if row["op"] == "t" and source in schemas and _is_of_mysql(TableSchema.parse(schemas[source]))
    }
    return {source: row["last"] if source in emptied else new[source]["first"] for source, row in old.items()}


def _is_of_mysql(schema: TableSchema) -> bool:
    return all(column.type_name.isupper() for column in schema.columns)
