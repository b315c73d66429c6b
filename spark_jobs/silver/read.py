"""Reading silver as published, so a load that is half done is never seen. Called by SQL and by verification."""

from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from headrace.configuration.lake import LakeFile
from headrace.errors import NeedsOperator
from spark_jobs import bronze, delta_log
from spark_jobs.silver import published, table


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


def relations(spark: SparkSession, lake: LakeFile) -> list[Relation]:
    """Return every table of every stream: `silver.<table>`, `silver.<schema>_<table>` outside of schema public.

    A name that two streams would share has the stream ahead of it in both: `silver.<stream>_<table>`.
    """
    streams = published.latest_of_all(spark, lake)
    named = [
        (state.stream, t, _name(t.table)) for state in streams for t in state.tables.values() if t.version is not None
    ]
    names = [name.casefold() for _, _, name in named]
    silver = [
        Relation(
            database="silver",
            name=f"{stream}_{name}" if names.count(name.casefold()) > 1 else name,
            path=table.path(lake, stream, known.table),
            version=known.version,
        )
        for stream, known, name in named
    ]
    raw = [
        Relation(database="bronze", name=stream, path=bronze.table_path(lake, stream))
        for stream in sorted(lake.streams)
        if delta_log.is_table(spark, bronze.table_path(lake, stream))
    ]
    own = [Relation(database="lake", name="published", path=published.path(lake))] if streams else []
    return [*silver, *raw, *own]


def _name(name: str) -> str:
    schema, _, own = name.partition(".")
    return own if schema == "public" else f"{schema}_{own}"


def positions(spark: SparkSession, lake: LakeFile, stream: str) -> published.Published:
    """Return what is published of a stream; raise NeedsOperator when nothing is."""
    state = published.latest(spark, lake, stream)
    if not state.load:
        raise NeedsOperator(
            f"nothing of stream {stream!r} is published yet", hint=f"Run 'headrace lake load {stream}'."
        )
    return state
