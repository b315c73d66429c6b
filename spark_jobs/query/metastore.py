"""A Hive metastore that knows the lake's tables: `headrace lake register`, and each load where [metastore] is in the lake's file.

Each silver table is there twice: in the database of the tables as an external table of Delta, which engines read at its newest
version, half of a load among them; and in the database of the views as a view of Spark SQL at its published version. Both carry
comments, the key, and where they are in the stream. A load renews those that went on since the load that the metastore knows, so
what a metastore missed while it was down is made up for by the next load. Spark's own jars have the client; nothing here runs a
Spark job. No load fails by what happens here.
"""

import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf
from threading import Lock
from time import monotonic

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import types as T  # noqa: N812 - PySpark's own idiom.

from headrace.configuration.lake import LakeFile
from headrace.errors import NotConnected, ReplicationError, Retryable
from headrace.lake.table import find_stored
from headrace.schema import TableSchema
from spark_jobs.errors import explained
from spark_jobs.query import metastore_client
from spark_jobs.query.metastore_client import AGAIN, OURS, Client, Described
from spark_jobs.silver import table_task
from spark_jobs.state import delta_log, log_files, names, publication, published
from spark_jobs.state.published import Published, Table

_log = logging.getLogger(__name__)

#: How long a load waits for all of its tables; the next one goes on behind those that are there.
_TIMEOUT_SECONDS = 60.0
#: A load and the maintenance next to it would put older versions behind newer ones.
_lock = Lock()


@dataclass(kw_only=True)
class Registered:
    """What was done to a metastore for a stream."""

    stream: str
    #: The load whose publication it has now.
    load: int = 0
    #: Names in SQL of what was made or renewed, and of what is there no more.
    renewed: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    #: Why the metastore is behind; empty where it is not.
    problem: str = ""
    seconds: float = 0.0

    def line(self) -> str:
        """Return it as a line for people."""
        if self.problem:
            return f"metastore {self.stream}: behind: {self.problem}"
        what = f"{len(self.renewed)} tables renewed, {len(self.removed)} removed"
        return f"metastore {self.stream}: load {self.load}, {what}, {self.seconds:.1f} s"


def after_load(spark: SparkSession, lake: LakeFile, stream: str) -> Registered | None:
    """Register what a load published; None without a metastore. A failure is logged and returned."""
    if lake.metastore is None:
        return None
    try:
        with explained("metastore"):
            return register(spark, lake, stream, within=_TIMEOUT_SECONDS)
    except Exception as error:  # noqa: BLE001 - what is published is published.
        problem = error.message if isinstance(error, ReplicationError) else type(error).__name__
        _log.warning("the load is done, and the metastore is behind: %s", problem)
        return Registered(stream=stream, problem=problem)


def register(
    spark: SparkSession,
    lake: LakeFile,
    stream: str,
    *,
    whole: bool = False,
    dry_run: bool = False,
    within: float = inf,
) -> Registered:
    """Bring the metastore up to what is published of a stream; `whole` renews all of it, whatever the metastore knows.

    Raises NotConnected where it does not answer, or not `within` seconds, and, when the others are done, Retryable for tables
    that it refuses, or that cannot be read.
    """
    with _lock:
        return _register(spark, lake, stream, whole=whole, dry_run=dry_run, within=within)


def _register(
    spark: SparkSession, lake: LakeFile, stream: str, *, whole: bool, dry_run: bool, within: float
) -> Registered:
    assert lake.metastore is not None
    began = monotonic()
    state = published.latest(spark, lake, stream)
    named = names.of(spark, lake, [(stream, name) for name in state.tables | state.dropped])
    with metastore_client.connected(spark, lake) as client:
        views, tables = f"{lake.metastore.prefix}silver", f"{lake.metastore.prefix}silver_tables"
        databases = [client.database(name, make=not dry_run) for name in (views, tables)]
        former = None if whole else _known(databases, stream)
        done, refused = Registered(stream=stream, load=state.load), dict[str, str]()
        moved = _since(spark, lake, state, former)
        for name in sorted(name for name in moved if state.tables[name].version is not None):
            if monotonic() - began > within:
                what = f"the metastore at {lake.metastore.uri} is slow: {len(done.renewed)} tables in {within:.0f} s"
                raise NotConnected(what, hint=AGAIN)
            sql_name = named[stream, name]
            try:
                described = _describe(spark, state, state.tables[name], table_task.path(lake, stream, name))
                if whole or not client.shows(views, sql_name, described):
                    _put(client, [] if dry_run else [tables, views], sql_name, described)
                    done.renewed.append(sql_name)
            except (PySparkException, Py4JError, ReplicationError) as error:
                if metastore_client.is_of_transport(error):
                    raise
                refused[sql_name] = metastore_client.name_of(error)
        gone = [there for name in state.dropped if (there := named.get((stream, name)))]
        done.removed = [sql_name for sql_name in gone if client.has(views, sql_name)]
        if not dry_run:
            for sql_name in done.removed:
                client.drop(views, sql_name)
                client.drop(tables, sql_name)
        if refused:
            listed = ", ".join(f"{name} ({why})" for name, why in refused.items())
            raise Retryable(f"{len(refused)} tables are not in the metastore as they are: {listed}", hint=AGAIN)
        if not dry_run and former != state.load:
            _mark(client, [views, tables], state)
    done.seconds = monotonic() - began
    return done


def _put(client: Client, databases: list[str], name: str, described: Described) -> None:
    for database, view in zip(databases, (False, True), strict=False):
        client.put(database, name, described, view=view)


def _mark(client: Client, databases: list[str], state: Published) -> None:
    marks = {f"{OURS}{state.stream}.load": str(state.load)}
    marks |= {f"{OURS}{state.stream}.position.{source}": at for source, at in state.positions.items()}
    for database in databases:
        client.mark(database, marks)


def _known(databases: Iterable[Mapping[str, str]], stream: str) -> int | None:
    loads = [int(marks.get(f"{OURS}{stream}.load", 0)) for marks in databases]
    return min(loads) or None


def _since(spark: SparkSession, lake: LakeFile, state: Published, former: int | None) -> set[str]:
    """Return the tables that went on after a load, or all."""
    if former == state.load:
        return set()
    if former is None or former > state.load:
        return set(state.tables)
    commits = (
        delta_log.read_note(info, publication.NOTE) for _, info in delta_log.commits(spark, published.path(lake))
    )
    own = list(_back_to(commits, state.stream, former))
    # Commits go from the log after a while, and earlier releases named no tables.
    if not own or own[-1]["load"] > former + 1 or any("moved" not in note for note in own):
        return set(state.tables)
    return publication.read_moved(own, former, maintenance=True)[1].keys() & state.tables.keys()


def _back_to(notes: Iterable[delta_log.Note | None], stream: str, load: int) -> Iterator[delta_log.Note]:
    for note in notes:
        if note is not None and note["stream"] == stream:
            if note["load"] <= load:
                return
            yield note


def _describe(spark: SparkSession, state: Published, table: Table, path: str) -> Described:
    version = table.version or 0
    snapshot = log_files.snapshot(spark, path)
    if snapshot.version() == version:
        schema = T.StructType.fromJson(json.loads(snapshot.schema().json()))
    else:
        schema = spark.read.format("delta").option("versionAsOf", version).load(path).schema
    columns, keys = {}, list[str]()
    for text in table.schemas.values():
        at_source = TableSchema.parse(text)
        keys = at_source.key or keys
        for column in at_source.columns:
            sizes = ",".join(str(size) for size in (column.length, column.scale) if size is not None)
            kind = f"{column.type_name}({sizes})" if sizes else column.type_name
            columns[find_stored(column.name, schema.names)] = f"{kind}, key" if column.name in at_source.key else kind
    comments = {name: {"comment": text} for name, text in columns.items()}
    own = {"stream": state.stream, "table": table.table, "version": str(version), "load": str(state.load)}
    # In a folder that was made again versions begin with 0.
    own |= {"since": str(table.since or 0), "key": ", ".join(keys)} | {
        f"position.{source}": at for source, at in table.positions.items()
    }
    return Described(
        path=path if "://" in path or path.startswith("file:") else f"file://{path}",
        version=version,
        # Without what Delta notes with a column.
        schema=T.StructType([T.StructField(f.name, f.dataType, True, comments.get(f.name)) for f in schema.fields]),
        comment=f"{table.table} of stream {state.stream}",
        columns=columns,
        properties={f"{OURS}{name}": value for name, value in own.items()},
    )
