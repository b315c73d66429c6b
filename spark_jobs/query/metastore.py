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
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import SparkSession
from pyspark.sql import types as T  # noqa: N812 - PySpark's own idiom.

from headrace.configuration.lake import LakeFile
from headrace.errors import NotConnected, ReplicationError, Retryable
from headrace.schema import TableSchema
from spark_jobs import storage
from spark_jobs.errors import explained
from spark_jobs.silver import table_task, target_schema
from spark_jobs.state import delta_log, log_files, names, publication, published
from spark_jobs.state.published import Published, Table

_log = logging.getLogger(__name__)

_TIMEOUT_SECONDS = 20
#: Spark divides a schema into properties of at most so many characters.
_PART = 4000
_OURS = "headrace."


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
            return register(spark, lake, stream)
    except Exception as error:  # noqa: BLE001 - what is published is published.
        problem = error.message if isinstance(error, ReplicationError) else type(error).__name__
        _log.warning("the load is done, and the metastore is behind: %s", problem)
        return Registered(stream=stream, problem=problem)


def register(
    spark: SparkSession, lake: LakeFile, stream: str, *, whole: bool = False, dry_run: bool = False
) -> Registered:
    """Bring the metastore up to what is published of a stream; `whole` renews all of it, whatever the metastore knows.

    Raises NotConnected where it does not answer, and Retryable for what it refuses.
    """
    assert lake.metastore is not None
    began = monotonic()
    state = published.latest(spark, lake, stream)
    named = names.of(spark, lake, [(stream, name) for name in state.tables | state.dropped])
    with _connected(spark, lake) as client:
        views, tables = f"{lake.metastore.prefix}silver", f"{lake.metastore.prefix}silver_tables"
        databases = [client.database(name, make=not dry_run) for name in (views, tables)]
        known = None if whole else _known(databases, stream)
        done = Registered(stream=stream, load=state.load)
        moved = _since(spark, lake, state, known)
        for name in sorted(name for name in moved if state.tables[name].version is not None):
            described = _describe(spark, state, state.tables[name], table_task.path(lake, stream, name))
            sql_name = named[stream, name]
            done.renewed.append(sql_name)
            if not dry_run:
                client.put(tables, sql_name, described, view=False)
                client.put(views, sql_name, described, view=True)
        for name in state.dropped:
            sql_name = named.get((stream, name), "")
            if sql_name and client.has(views, sql_name):
                done.removed.append(sql_name)
                if not dry_run:
                    client.drop(views, sql_name)
                    client.drop(tables, sql_name)
        if not dry_run and known != state.load:
            marks = {f"{_OURS}{stream}.load": str(state.load)}
            marks |= {f"{_OURS}{stream}.position.{source}": at for source, at in state.positions.items()}
            for database in (views, tables):
                client.mark(database, marks)
    done.seconds = monotonic() - began
    return done


def _known(databases: Iterable[Mapping[str, str]], stream: str) -> int | None:
    loads = [int(marks.get(f"{_OURS}{stream}.load", 0)) for marks in databases]
    return min(loads) or None


def _since(spark: SparkSession, lake: LakeFile, state: Published, known: int | None) -> set[str]:
    """Return the tables that went on after a load, or all."""
    if known == state.load:
        return set()
    if known is None or known > state.load:
        return set(state.tables)
    commits = (
        delta_log.read_note(info, publication.NOTE) for _, info in delta_log.commits(spark, published.path(lake))
    )
    own = list(_back_to(commits, state.stream, known))
    # Commits go from the log after a while, and earlier releases named no tables.
    if not own or own[-1]["load"] > known + 1 or any("moved" not in note for note in own):
        return set(state.tables)
    return publication.read_moved(own, known, maintenance=True)[1].keys() & state.tables.keys()


def _back_to(notes: Iterable[delta_log.Note | None], stream: str, load: int) -> Iterator[delta_log.Note]:
    for note in notes:
        if note is not None and note["stream"] == stream:
            if note["load"] <= load:
                return
            yield note


@dataclass(frozen=True, kw_only=True)
class _Described:
    path: str
    version: int
    schema: T.StructType
    comment: str
    #: By column of silver: its type at the source, and whether it is of the key.
    columns: dict[str, str]
    properties: dict[str, str]


def _describe(spark: SparkSession, state: Published, table: Table, path: str) -> _Described:
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
            columns[target_schema.find_stored(column.name, schema.names)] = (
                f"{kind}, key" if column.name in at_source.key else kind
            )
    comments = {name: {"comment": text} for name, text in columns.items()}
    own = {"stream": state.stream, "table": table.table, "version": str(version), "load": str(state.load)}
    own |= {"key": ", ".join(keys)} | {f"position.{source}": at for source, at in table.positions.items()}
    return _Described(
        path=path if "://" in path or path.startswith("file:") else f"file://{path}",
        version=version,
        # Without what Delta notes with a column.
        schema=T.StructType([T.StructField(f.name, f.dataType, True, comments.get(f.name)) for f in schema.fields]),
        comment=f"{table.table} of stream {state.stream}",
        columns=columns,
        properties={f"{_OURS}{name}": value for name, value in own.items()},
    )


class _Client:
    """Hive's own client, in Spark's JVM."""

    def __init__(self, spark: SparkSession, lake: LakeFile) -> None:
        assert lake.metastore is not None
        self._jvm: Any = spark._jvm  # noqa: SLF001 - PySpark offers no other way.
        self._hive = self._jvm.org.apache.hadoop.hive.metastore
        conf = self._jvm.org.apache.hadoop.hive.conf.HiveConf()
        given = {"hive.metastore.connect.retries": "1", "hive.metastore.client.socket.timeout": f"{_TIMEOUT_SECONDS}s"}
        for name, value in (given | lake.metastore.settings | {"hive.metastore.uris": lake.metastore.uri}).items():
            conf.set(name, value)
        self._client = self._hive.HiveMetaStoreClient(conf)

    def close(self) -> None:
        self._client.close()

    def database(self, name: str, *, make: bool) -> dict[str, str]:
        """Return the properties of a database, which may be made."""
        if name not in set(self._client.getDatabases(name)):
            if make:
                comment = "Tables of Headrace's lake"
                self._client.createDatabase(self._hive.api.Database(name, comment, None, {}))
            return {}
        return dict(self._client.getDatabase(name).getParameters() or {})

    def mark(self, name: str, marks: Mapping[str, str]) -> None:
        found = self._client.getDatabase(name)
        found.setParameters(dict(found.getParameters() or {}) | dict(marks))
        self._client.alterDatabase(name, found)

    def has(self, database: str, name: str) -> bool:
        return bool(self._client.tableExists(database, name))

    def drop(self, database: str, name: str) -> None:
        self._client.dropTable(database, name, False, True)

    def put(self, database: str, name: str, described: _Described, *, view: bool) -> None:
        """Make a table or view as it is described, or let it become that."""
        made = self._table(database, name, described, view=view)
        if self.has(database, name):
            try:
                self._client.alter_table(database, name, made)
            except Py4JJavaError:
                # Columns that Hive does not let change.
                self.drop(database, name)
            else:
                return
        self._client.createTable(made)

    def _table(self, database: str, name: str, described: _Described, *, view: bool) -> Any:
        api = self._hive.api
        fields = [
            api.FieldSchema(each.name.lower(), _hive_type(each.dataType), described.columns.get(each.name, ""))
            for each in described.schema.fields
        ]
        properties = described.properties | {"comment": described.comment}
        serde = api.SerDeInfo(name, "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe", {"serialization.format": "1"})
        storage_of = api.StorageDescriptor()
        storage_of.setCols(fields)
        storage_of.setInputFormat("org.apache.hadoop.mapred.SequenceFileInputFormat")
        storage_of.setOutputFormat("org.apache.hadoop.hive.ql.io.HiveSequenceFileOutputFormat")
        table = api.Table()
        if view:
            properties |= _view_properties(described)
            query = f"SELECT * FROM {storage.table(described.path, described.version)}"  # noqa: S608 - quoted.
            table.setViewOriginalText(query)
            table.setViewExpandedText(query)
        else:
            serde.setParameters({"serialization.format": "1", "path": described.path})
            storage_of.setLocation(described.path)
            properties |= {"EXTERNAL": "TRUE", "spark.sql.sources.provider": "delta"}
        storage_of.setSerdeInfo(serde)
        storage_of.setParameters({})
        table.setDbName(database)
        table.setTableName(name)
        table.setTableType("VIRTUAL_VIEW" if view else "EXTERNAL_TABLE")
        table.setSd(storage_of)
        table.setPartitionKeys([])
        table.setParameters(properties)
        return table


@contextmanager
def _connected(spark: SparkSession, lake: LakeFile) -> Iterator[_Client]:
    """Give a client of the metastore; raise NotConnected or Retryable for what goes wrong with it."""
    assert lake.metastore is not None
    client = None
    try:
        client = _Client(spark, lake)
        yield client
    except Py4JError as error:
        java = getattr(error, "java_exception", None)
        name = str(java.getClass().getSimpleName()) if java is not None else type(error).__name__
        again = "Run 'headrace lake register' again; the next load does as well."
        if client is None or "Transport" in name:
            raise NotConnected(f"the metastore at {lake.metastore.uri} does not answer ({name})", hint=again) from error
        raise Retryable(f"the metastore at {lake.metastore.uri} refuses ({name})", hint=again) from error
    finally:
        if client is not None:
            client.close()


def _view_properties(described: _Described) -> dict[str, str]:
    schema, names = described.schema.json(), described.schema.names
    parts = [schema[start : start + _PART] for start in range(0, len(schema), _PART)]
    properties = {"spark.sql.sources.schema.numParts": str(len(parts))}
    properties |= {f"spark.sql.sources.schema.part.{number}": part for number, part in enumerate(parts)}
    properties |= {"view.catalogAndNamespace.numParts": "2", "view.catalogAndNamespace.part.0": "spark_catalog"}
    properties |= {"view.catalogAndNamespace.part.1": "default", "view.query.out.numCols": str(len(names))}
    return properties | {f"view.query.out.col.{number}": name for number, name in enumerate(names)}


def _hive_type(kind: T.DataType) -> str:
    # Hive has no timestamp without a zone of its own.
    return "timestamp" if isinstance(kind, T.TimestampNTZType) else str(kind.simpleString())
