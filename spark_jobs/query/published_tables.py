"""Silver as published, so that a load that is half done is never seen: rows, what SQL can query, and the list of tables.

The list has the tables' names at the source and in SQL, and their state. Called by SQL, by verification and by
`headrace lake tables`.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T  # noqa: N812 - PySpark's own idiom.
from rich.table import Table as Printed

from headrace.configuration.lake import LakeFile
from headrace.errors import NeedsOperator
from headrace.lake.own_tables import bronze_name, table_state
from headrace.schema import TableSchema
from headrace.terminal import Terminal
from spark_jobs import run_log, storage
from spark_jobs.bronze import load as bronze
from spark_jobs.errors import explained
from spark_jobs.query import full_history
from spark_jobs.silver import held_back, table_task, target_schema
from spark_jobs.state import delta_log, names, published
from spark_jobs.state.names import Place
from spark_jobs.state.published import Published, Table
from spark_jobs.state.published_rows import DROPPED


@dataclass(frozen=True, kw_only=True)
class Relation:
    """A table that SQL can query."""

    #: `silver`, `valid`, `history`, `full_history`, `bronze`, `lake` or `headrace`, and the name in it.
    database: str
    name: str
    path: str
    #: Delta version to read; None for the newest.
    version: int | None = None
    #: The statement that reads it, where that is more than its name.
    query: str | None = None
    #: Of a history by all names of its table, the history of each; its statement is made when it is read.
    histories: tuple["Relation", ...] = ()
    make: Callable[[], str] | None = field(default=None, compare=False)

    @property
    def is_view(self) -> bool:
        """Whether it is read from other relations."""
        return self.query is not None or self.make is not None

    @property
    def place(self) -> str:
        """The table as a statement names it, by its path."""
        return storage.table(self.path, self.version)

    @property
    def full_name(self) -> str:
        """The table as a statement names it, by its name."""
        return f"{self.database}.{storage.name(self.name)}"

    def sql(self) -> str:
        """Return the statement that reads it; raise ReplicationError where what it is made of is not there."""
        if self.make is not None:
            return self.make()
        return self.query or f"SELECT * FROM {self.place}"  # noqa: S608 - quoted.


def frame(spark: SparkSession, lake: LakeFile, stream: str, name: str) -> DataFrame | None:
    """Return a table's published rows, by its source's `schema.table`, or None when silver has none.

    In addition to the table's own columns a row has `_source`, `_position` and `_commit_time`.
    """
    table = published.latest(spark, lake, stream).tables.get(name)
    if table is None or table.version is None:
        return None
    return spark.read.format("delta").option("versionAsOf", table.version).load(table_task.path(lake, stream, name))


def relations(
    spark: SparkSession, lake: LakeFile, streams: list[Published] | None = None, *, by_name: bool = False
) -> list[Relation]:
    """Return every table of every stream that SQL can query, under the names that names.py assigns.

    `streams` is what they published last, where that is known already. What is made of other tables reads them `by_name`, or by
    their paths.
    """
    streams = published.latest_of_all(spark, lake) if streams is None else streams
    there = {(state.stream, t.table): t for state in streams for t in state.tables.values() if t.version is not None}
    renamed = {(state.stream, name): table for state in streams for name, table in state.renamed.items()}
    every = there | renamed
    all_named = names.of(spark, lake, every)
    named = {place: name for place, name in all_named.items() if place in there}
    silver = [
        Relation(database="silver", name=name, path=table_task.path(lake, *place), version=there[place].version)
        for place, name in named.items()
    ]
    former = {
        place: Relation(
            database="history", name=name, path=table_task.history_path(lake, *place), version=table.history
        )
        for place, name in all_named.items()
        if (table := every[place]).history is not None
    }
    valid = [
        replace(
            relation,
            database="valid",
            query=f"SELECT * FROM {relation.full_name if by_name else relation.place} WHERE {where}",  # noqa: S608 - quoted, or the file's.
        )
        for relation, place in zip(silver, named, strict=True)
        if (where := _valid(lake, *place, there[place])) is not None
    ]
    full = [
        relation
        for state in streams
        if state.renamed
        for relation in _full_histories(spark, state, former, by_name=by_name)
    ]
    raw = [
        Relation(database="bronze", name=bronze_name(stream, lake.streams), path=bronze.table_path(lake, stream))
        for stream in sorted(lake.streams)
        if delta_log.is_table(spark, bronze.table_path(lake, stream))
    ]
    place = published.path(lake)
    own = [Relation(database="lake", name=n, path=place, query=q) for n, q in views(storage.table(place)).items()]
    own = own if delta_log.is_table(spark, place) else []
    if delta_log.is_table(spark, run_log.path(lake)):
        own.append(Relation(database="headrace", name="loads", path=run_log.path(lake)))
    return [*silver, *valid, *former.values(), *full, *raw, *own]


def _full_histories(
    spark: SparkSession, state: Published, histories: dict[Place, Relation], *, by_name: bool
) -> list[Relation]:
    """Return the history of each table that was renamed, by all its names."""
    full = []
    for present in sorted(
        {drop.renamed_to for drop in state.dropped.values() if drop.renamed_to} & state.tables.keys()
    ):
        all_names = [present, *state.former_names(present)]
        if all((state.stream, name) in histories for name in all_names):
            own = tuple(histories[state.stream, name] for name in all_names)
            make = partial(_full_statement, spark, state, dict(zip(all_names, own, strict=True)), by_name=by_name)
            full.append(replace(own[0], database="full_history", histories=own, make=make))
    return full


def _full_statement(spark: SparkSession, state: Published, histories: dict[str, Relation], *, by_name: bool) -> str:
    named = []
    for name, relation in histories.items():
        table = state.kept(name) or Table(table=name)
        begins = state.dropped[name].begins if name in state.dropped else {}
        with explained(f"history of {name}"):
            schema = _schema(spark, relation, table)
        named.append(full_history.of(table, relation.full_name if by_name else relation.place, schema, begins))
    return full_history.statement(named)


#: By path, the columns of a history at the version that was read last, of the folder that a load made.
_schemas: dict[str, tuple[tuple[int | None, int | None], T.StructType]] = {}


def _schema(spark: SparkSession, relation: Relation, table: Table) -> T.StructType:
    mark = relation.version, table.since
    known = _schemas.get(relation.path)
    if known is None or known[0] != mark:
        frame = spark.read.format("delta").option("versionAsOf", relation.version or 0).load(relation.path)
        known = _schemas[relation.path] = mark, frame.schema
    return known[1]


def _valid(lake: LakeFile, stream: str, name: str, table: Table) -> str | None:
    """Return the condition of the rows that meet all expectations, of those that were counted; None without such a view."""
    options = lake.streams[stream].tables.get(name) if stream in lake.streams else None
    # Until a load has counted expectations, nothing is known to meet them.
    if options is None or not options.valid_view or (options.expect and not table.quality):
        return None
    counted = [f"({each.expression}\n)" for each in table.quality if each.problem is None]
    return " AND ".join(counted) or "true"


def views(rows: str) -> dict[str, str]:
    """Return the queries of the views in `lake`: publications of the last days, and the tables as they are published now.

    `rows` is the table of what is published, as SQL names it.
    """
    newest = f"(SELECT max_by(struct(t.*), t.load) AS r FROM {rows} t GROUP BY t.stream, t.`table`)"  # noqa: S608 - ours.
    return {
        "published": f"""SELECT stream, load, started_at, finished_at, bronze_version, bronze_done, changes, positions
            FROM {rows} WHERE `table` IS NULL""",  # noqa: S608 - as above.
        "tables": f"""SELECT t.r.stream, t.r.`table`, t.r.path, t.r.version, t.r.history, t.r.load,
            coalesce(t.r.positions, s.r.positions) AS positions, t.r.state, t.r.reason
            FROM {newest} t JOIN {newest} s ON s.r.stream = t.r.stream AND s.r.`table` IS NULL
            WHERE t.r.`table` IS NOT NULL AND t.r.state <> '{DROPPED}'""",  # noqa: S608 - as above.
        # A row of a table that a later publication wrote again without counting it has the same version.
        "quality": f"""SELECT stream, min(load) AS load, min(finished_at) AS finished_at, `table`, version, expectation,
            expression, checked, failing, total, total_failing, problem
            FROM (SELECT stream, load, finished_at, `table`, since, q.* FROM {rows} LATERAL VIEW explode(quality) AS q)
            GROUP BY stream, `table`, since, version, expectation, expression, checked, failing, total, total_failing,
            problem""",  # noqa: S608 - as above.
    }


def positions(spark: SparkSession, lake: LakeFile, stream: str) -> Published:
    """Return what is published of a stream; raise NeedsOperator when nothing is."""
    state = published.latest(spark, lake, stream)
    if not state.load:
        raise NeedsOperator(
            f"nothing of stream {stream!r} is published yet", hint=f"Run 'headrace lake load {stream}'."
        )
    return state


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
    #: By expectation: rows that the load which counted it checked, and that fail, the same of all rows, or why it is not counted.
    quality: dict[str, dict[str, Any]] = field(default_factory=dict)
    #: Names that it had at its sources before, the last one first: `full_history.<name>` has the versions by all of them.
    former_names: list[str] = field(default_factory=list)


def list_tables(spark: SparkSession, lake: LakeFile, streams: list[str], *, rows: bool) -> list[ListedTable]:
    """Return the tables of streams, by stream and name; `rows` counts the published rows of each."""
    now, listed_tables = datetime.now(UTC), []
    with explained("tables"):
        # All streams, since names are chosen among all of them.
        states = published.latest_of_all(spark, lake)
        table_names = names.of(spark, lake, [(state.stream, name) for state in states for name in state.tables])
        for state in states:
            for table in sorted(state.tables.values(), key=lambda table: table.table):
                if state.stream not in streams:
                    continue
                at = state.finished_at
                counted = (
                    _count_rows(spark, table_task.path(lake, state.stream, table.table), table.version)
                    if rows
                    else None
                )
                listed_tables.append(
                    ListedTable(
                        stream=state.stream,
                        table=table.table,
                        name=f"silver.{table_names[state.stream, table.table]}",
                        state=table_state(
                            reason=table.problem or _held_reason(state, table),
                            copying=table.copying,
                            version=table.version,
                            behind=table.positions != state.positions,
                        ),
                        reason=table.problem
                        or _held_reason(state, table)
                        or (held_back.waiting_reason(table.copying) if table.copying else None),
                        keyed=table.keyed,
                        columns=_columns(table, open_names=lake.streams[state.stream].is_open(table.table)),
                        positions=dict(table.positions),
                        published_at=at.isoformat() if at else None,
                        age_seconds=round((now - at).total_seconds(), 1) if at else None,
                        rows=counted,
                        quality={each.expectation: asdict(each) for each in table.quality},
                        former_names=state.former_names(table.table) if table.history is not None else [],
                    )
                )
    return listed_tables


def _held_reason(state: Published, table: Table) -> str | None:
    """Return why sources of a table go no further in any table; None when none is held."""
    held = [
        f"rows of {source} stay as they were: {why}" for source, why in state.held.items() if source in table.schemas
    ]
    return "; ".join(sorted(held)) or None


def _columns(table: Table, *, open_names: bool) -> dict[str, str]:
    schemas = [TableSchema.parse(text) for text in table.schemas.values()]
    names = (column.name for schema in schemas for column in schema.columns)
    return target_schema.choose_names(names, open_names=open_names)


def _count_rows(spark: SparkSession, path: str, version: int | None) -> int | None:
    """Return how many rows a table has at a version: Delta knows it from the statistics of the files."""
    if version is None:
        return None
    row = spark.sql(f"SELECT count(*) AS n FROM {storage.table(path, version)}").first()  # noqa: S608 - quoted.
    return None if row is None else int(row["n"])


def show(console: Terminal, listed_tables: list[ListedTable]) -> None:
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
        console.print(f"without a key, so rows are known by all of their columns, and have no history: {listed}")
    _show_names(console, listed_tables)
    for table in listed_tables:
        for name, quality in table.quality.items():
            if quality["problem"] is not None:
                what = f"cannot be counted: {quality['problem']}"
            else:
                what = f"{quality['total_failing']:,} of {quality['total']:,} rows do not meet it"
            console.print(f"{table.stream} {table.table}, expectation {name}: {what}")
    for table in listed_tables:
        if table.reason is not None:
            console.print(f"{table.stream} {table.table}: {table.reason}")


def _show_names(console: Terminal, listed_tables: list[ListedTable]) -> None:
    """Print which tables had other names, and which columns have other ones in SQL."""
    for table in listed_tables:
        if table.former_names:
            whole = table.name.replace("silver", "full_history", 1)
            console.print(
                f"{table.stream} {table.table} was {', before '.join(table.former_names)}: {whole} has all versions"
            )
        if table.columns:
            listed = ", ".join(f"{name} as {stored}" for name, stored in table.columns.items())
            console.print(f"{table.stream} {table.table} has columns under other names: {listed}")
