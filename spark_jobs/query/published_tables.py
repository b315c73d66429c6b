"""Reading silver as published, so a load that is half done is never seen. Called by SQL and by verification."""

from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from headrace.configuration.lake import LakeFile
from headrace.errors import NeedsOperator
from headrace.lake.published import bronze_name
from spark_jobs import run_log, storage
from spark_jobs.bronze import load as bronze
from spark_jobs.silver import table_task
from spark_jobs.state import delta_log, names, published
from spark_jobs.state.published import Published
from spark_jobs.state.published_rows import DROPPED


@dataclass(frozen=True, kw_only=True)
class Relation:
    """A table that SQL can query."""

    #: `silver`, `history`, `bronze`, `lake` or `headrace`, and the name in it.
    database: str
    name: str
    path: str
    #: Delta version to read; None for the newest.
    version: int | None = None
    #: The statement that reads it, where that is more than its name.
    query: str | None = None

    def sql(self) -> str:
        """Return the statement that reads it."""
        if self.query is not None:
            return self.query
        return f"SELECT * FROM {storage.table(self.path, self.version)}"  # noqa: S608 - quoted.


def frame(spark: SparkSession, lake: LakeFile, stream: str, name: str) -> DataFrame | None:
    """Return a table's published rows, by its source's `schema.table`, or None when silver has none.

    In addition to the table's own columns a row has `_source`, `_position` and `_commit_time`.
    """
    table = published.latest(spark, lake, stream).tables.get(name)
    if table is None or table.version is None:
        return None
    return spark.read.format("delta").option("versionAsOf", table.version).load(table_task.path(lake, stream, name))


def relations(spark: SparkSession, lake: LakeFile, streams: list[Published] | None = None) -> list[Relation]:
    """Return every table of every stream that SQL can query, under the names that name_registry gives.

    `streams` is what they published last, where that is known already.
    """
    streams = published.latest_of_all(spark, lake) if streams is None else streams
    there = {(state.stream, t.table): t for state in streams for t in state.tables.values() if t.version is not None}
    named = names.of(spark, lake, there)
    silver = [
        Relation(database="silver", name=name, path=table_task.path(lake, *place), version=there[place].version)
        for place, name in named.items()
    ]
    former = [
        Relation(
            database="history", name=name, path=table_task.history_path(lake, *place), version=there[place].history
        )
        for place, name in named.items()
        if there[place].history is not None
    ]
    raw = [
        Relation(database="bronze", name=bronze_name(stream, lake.streams), path=bronze.table_path(lake, stream))
        for stream in sorted(lake.streams)
        if delta_log.is_table(spark, bronze.table_path(lake, stream))
    ]
    place = published.path(lake)
    own = [Relation(database="lake", name=n, path=place, query=q) for n, q in _views(lake).items()]
    own = own if delta_log.is_table(spark, place) else []
    if delta_log.is_table(spark, run_log.path(lake)):
        own.append(Relation(database="headrace", name="loads", path=run_log.path(lake)))
    return [*silver, *former, *raw, *own]


def _views(lake: LakeFile) -> dict[str, str]:
    return views(storage.table(published.path(lake)))


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
    }


def positions(spark: SparkSession, lake: LakeFile, stream: str) -> Published:
    """Return what is published of a stream; raise NeedsOperator when nothing is."""
    state = published.latest(spark, lake, stream)
    if not state.load:
        raise NeedsOperator(
            f"nothing of stream {stream!r} is published yet", hint=f"Run 'headrace lake load {stream}'."
        )
    return state
