"""The tables of streams as they are published: their names at the source and in SQL, and their state.

Called by `headrace lake tables`.
"""

from dataclasses import dataclass
from datetime import UTC, datetime

from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table as Printed

from headrace.configuration.lake import LakeFile
from headrace.schema import TableSchema
from headrace.table_state import table_state
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
    now, listed_tables = datetime.now(UTC), []
    with explained("tables"):
        # Of all streams, since names are chosen among all of them.
        states = published.latest_of_all(spark, lake)
        table_names = names.of(spark, lake, [(state.stream, name) for state in states for name in state.tables])
        for state in states:
            for table in sorted(state.tables.values(), key=lambda table: table.table):
                if state.stream not in streams:
                    continue
                at = state.finished_at
                counted = (
                    _rows(spark, table_task.path(lake, state.stream, table.table), table.version) if rows else None
                )
                listed_tables.append(
                    ListedTable(
                        stream=state.stream,
                        table=table.table,
                        name=f"silver.{table_names[state.stream, table.table]}",
                        state=table_state(
                            reason=table.problem,
                            copying=table.copying,
                            version=table.version,
                            behind=table.positions != state.positions,
                        ),
                        reason=table.problem or (copies.reason(table.copying) if table.copying else None),
                        keyed=table.keyed,
                        columns=_columns(table, open_names=lake.streams[state.stream].is_open(table.table)),
                        positions=dict(table.positions),
                        published_at=at.isoformat() if at else None,
                        age_seconds=round((now - at).total_seconds(), 1) if at else None,
                        rows=counted,
                    )
                )
    return listed_tables


def _columns(table: Table, *, open_names: bool) -> dict[str, str]:
    schemas = [TableSchema.parse(text) for text in table.schemas.values()]
    names = (column.name for schema in schemas for column in schema.columns)
    return target_schema.choose_names(names, open_names=open_names)


def _rows(spark: SparkSession, path: str, version: int | None) -> int | None:
    """Return how many rows a table has at a version: Delta knows it from the statistics of the files."""
    if version is None:
        return None
    row = spark.sql(f"SELECT count(*) AS n FROM {storage.table(path, version)}").first()  # noqa: S608 - quoted.
    return None if row is None else int(row["n"])


def show(console: Console, listed_tables: list[ListedTable]) -> None:
    """Print a line for each table, then why tables stopped."""
    counted = any(table.rows is not None for table in listed_tables)
    printed = Printed("stream", "at the source", "in SQL", "state", *(["rows"] if counted else []), "published")
    for table in listed_tables:
        age = "-" if table.age_seconds is None else f"{table.age_seconds:,.0f} s ago"
        number = [] if not counted else ["-" if table.rows is None else f"{table.rows:,}"]
        printed.add_row(table.stream, table.table, table.name, table.state, *number, age)
    console.print(printed)
    if keyless := [table.table for table in listed_tables if not table.keyed and table.state == "published"]:
        listed = ", ".join(keyless)
        console.print(
            f"without a key, so rows are known by all of their columns, and have no history: {listed}", markup=False
        )
    for table in listed_tables:
        if table.columns:
            listed = ", ".join(f"{name} as {stored}" for name, stored in table.columns.items())
            console.print(f"{table.stream} {table.table} has columns under other names: {listed}", markup=False)
    for table in listed_tables:
        if table.reason is not None:
            console.print(f"{table.stream} {table.table}: {table.reason}", markup=False)
