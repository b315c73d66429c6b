"""The tables of streams as they are published: their names at the source and in SQL, and their state.

Called by `headrace lake tables`.
"""

from dataclasses import dataclass
from datetime import UTC, datetime

from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table as Printed

from headrace.configuration.lake import LakeFile
from headrace.lake.own_tables import table_state
from headrace.schema import TableSchema
from spark_jobs import storage
from spark_jobs.errors import explained
from spark_jobs.silver import copies, table_task, target_schema
from spark_jobs.state import names, published
from spark_jobs.state.published import Table


@dataclass(frozen=True, kw_only=True)
class ListedTable:
    """A table of a stream."""

    stream: str
    #: The source's `schema.table`.
    table: str
    #: `silver.<name>` in SQL.
    name: str
    #: `published`; `behind` its stream; `copying` or `stopped`, and why; `not made` while nothing of it could be loaded.
    state: str
    reason: str | None
    #: Whether it has a key: rows that a table without one had before capture began are not there, since no snapshot copies them.
    keyed: bool
    #: Names in SQL of columns that cannot have their own ones, by the source's name: they differ from another one by case alone.
    columns: dict[str, str]
    #: Up to which position of each source its rows go.
    positions: dict[str, str]
    #: When its stream was published last, and how long ago that was.
    published_at: str | None
    age_seconds: float | None
    #: None when they were not counted.
    rows: int | None


def tables(spark: SparkSession, lake: LakeFile, streams: list[str], *, rows: bool) -> list[ListedTable]:
    """Return the tables of streams, by stream and name; `rows` counts the published rows of each."""
    now, found = datetime.now(UTC), []
    with explained("tables"):
        # Of all streams, since names are chosen among all of them.
        states = published.latest_of_all(spark, lake)
        table_names = names.of(spark, lake, [(state.stream, name) for state in states for name in state.tables])
        for state in states:
            for one in sorted(state.tables.values(), key=lambda it: it.table):
                if state.stream not in streams:
                    continue
                at = state.finished_at
                counted = _rows(spark, table_task.path(lake, state.stream, one.table), one.version) if rows else None
                found.append(
                    ListedTable(
                        stream=state.stream,
                        table=one.table,
                        name=f"silver.{table_names[state.stream, one.table]}",
                        state=table_state(
                            reason=one.problem,
                            copying=one.copying,
                            version=one.version,
                            behind=one.positions != state.positions,
                        ),
                        reason=one.problem or (copies.reason(one.copying) if one.copying else None),
                        keyed=one.keyed,
                        columns=_columns(one, open_names=lake.streams[state.stream].is_open(one.table)),
                        positions=dict(one.positions),
                        published_at=at.isoformat() if at else None,
                        age_seconds=round((now - at).total_seconds(), 1) if at else None,
                        rows=counted,
                    )
                )
    return found


def _columns(one: Table, *, open_names: bool) -> dict[str, str]:
    schemas = [TableSchema.parse(text) for text in one.schemas.values()]
    names = (column.name for schema in schemas for column in schema.columns)
    return target_schema.renamed(names, open_names=open_names)


def _rows(spark: SparkSession, path: str, version: int | None) -> int | None:
    """Return how many rows a table has at a version: Delta knows it from the statistics of the files."""
    if version is None:
        return None
    row = spark.sql(f"SELECT count(*) AS n FROM {storage.table(path, version)}").first()  # noqa: S608 - quoted.
    return None if row is None else int(row["n"])


def show(console: Console, found: list[ListedTable]) -> None:
    """Print a line for each table, then why tables stopped."""
    counted = any(one.rows is not None for one in found)
    printed = Printed("stream", "at the source", "in SQL", "state", *(["rows"] if counted else []), "published")
    for one in found:
        age = "-" if one.age_seconds is None else f"{one.age_seconds:,.0f} s ago"
        number = [] if not counted else ["-" if one.rows is None else f"{one.rows:,}"]
        printed.add_row(one.stream, one.table, one.name, one.state, *number, age)
    console.print(printed)
    if keyless := [one.table for one in found if not one.keyed and one.state == "published"]:
        listed = ", ".join(keyless)
        console.print(
            f"without a key, so rows are known by all of their columns, and have no history: {listed}", markup=False
        )
    for one in found:
        if one.columns:
            listed = ", ".join(f"{name} as {stored}" for name, stored in one.columns.items())
            console.print(f"{one.stream} {one.table} has columns under other names: {listed}", markup=False)
    for one in found:
        if one.reason is not None:
            console.print(f"{one.stream} {one.table}: {one.reason}", markup=False)
