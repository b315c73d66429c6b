"""Reading silver as published, so a load that is half done is never seen. Called by SQL and by verification."""

from collections.abc import Iterable
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from headrace.configuration.lake import LakeFile
from headrace.errors import NeedsOperator
from spark_jobs import bronze, delta_log, loads
from spark_jobs.silver import history, published, table
from spark_jobs.silver.published import Published

#: A stream and a table of it, by its source's `schema.table`.
Place = tuple[str, str]


@dataclass(frozen=True, kw_only=True)
class Relation:
    """A table that SQL can ask."""

    #: `silver` or `bronze`, and the name in it.
    database: str
    name: str
    path: str
    #: Delta version to read; None for the newest.
    version: int | None = None

    def sql(self) -> str:
        """Return the statement that reads it."""
        at = "" if self.version is None else f" VERSION AS OF {self.version}"
        return f"SELECT * FROM delta.`{self.path}`{at}"  # noqa: S608 - both are ours.


def frame(spark: SparkSession, lake: LakeFile, stream: str, name: str) -> DataFrame | None:
    """Return a table's published rows, by its source's `schema.table`, or None when silver has none.

    Beside the table's own columns a row has `_source`, `_position` and `_commit_time`.
    """
    known = published.latest(spark, lake, stream).tables.get(name)
    if known is None or known.version is None:
        return None
    return spark.read.format("delta").option("versionAsOf", known.version).load(table.path(lake, stream, name))


def relations(spark: SparkSession, lake: LakeFile, streams: list[Published] | None = None) -> list[Relation]:
    """Return every table of every stream: `silver.<table>`, `silver.<schema>_<table>` outside of schema public.

    `streams` is what they published last, where that is known already.
    A name that two streams would share has the stream ahead of it in both: `silver.<stream>_<table>`.
    """
    streams = published.latest_of_all(spark, lake) if streams is None else streams
    there = {(one.stream, t.table): t for one in streams for t in one.tables.values() if t.version is not None}
    silver = [
        Relation(database="silver", name=name, path=table.path(lake, *place), version=there[place].version)
        for place, name in names(there).items()
    ]
    former = [
        Relation(database="history", name=name, path=history.path(lake, *place), version=there[place].history)
        for place, name in names(there).items()
        if there[place].history is not None
    ]
    raw = [
        Relation(database="bronze", name=stream, path=bronze.table_path(lake, stream))
        for stream in sorted(lake.streams)
        if delta_log.is_table(spark, bronze.table_path(lake, stream))
    ]
    own = [Relation(database="lake", name="published", path=published.path(lake))] if streams else []
    if delta_log.is_table(spark, loads.path(lake)):
        own.append(Relation(database="headrace", name="loads", path=loads.path(lake)))
    return [*silver, *former, *raw, *own]


def names(tables: Iterable[Place]) -> dict[Place, str]:
    """Return the name in SQL of each table, given by its stream and its source's `schema.table`."""
    plain = {place: _name(place[1]) for place in tables}
    folded = [name.casefold() for name in plain.values()]
    return {place: f"{place[0]}_{name}" if folded.count(name.casefold()) > 1 else name for place, name in plain.items()}


def _name(name: str) -> str:
    schema, _, own = name.partition(".")
    return own if schema == "public" else f"{schema}_{own}"


def positions(spark: SparkSession, lake: LakeFile, stream: str) -> Published:
    """Return what is published of a stream; raise NeedsOperator when nothing is."""
    state = published.latest(spark, lake, stream)
    if not state.load:
        raise NeedsOperator(
            f"nothing of stream {stream!r} is published yet", hint=f"Run 'headrace lake load {stream}'."
        )
    return state
