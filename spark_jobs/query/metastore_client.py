"""Hive's own client of a metastore, in Spark's JVM, and what it makes of a table: an external one of Delta, and a view.

Called by metastore.py.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import SparkSession
from pyspark.sql import types as T  # noqa: N812 - PySpark's own idiom.

from headrace.configuration.lake import LakeFile
from headrace.errors import NotConnected, Retryable
from spark_jobs import storage

_TIMEOUT_SECONDS = 20
#: Spark divides a schema into properties of at most so many characters.
_PART = 4000
#: What names of our properties begin with.
OURS = "headrace."
#: By what the same rows are known.
_SAME = tuple(f"{OURS}{name}" for name in ("stream", "table", "version", "since"))
AGAIN = "Run 'headrace lake register' again; the next load does as well."


@dataclass(frozen=True, kw_only=True)
class Described:
    """A table of silver at its published version."""

    path: str
    version: int
    schema: T.StructType
    comment: str
    #: By column of silver: its type at the source, and whether it is of the key.
    columns: dict[str, str]
    properties: dict[str, str]


class Client:
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
        """End the connection."""
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
        """Give a database properties."""
        database = self._client.getDatabase(name)
        database.setParameters(dict(database.getParameters() or {}) | dict(marks))
        self._client.alterDatabase(name, database)

    def has(self, database: str, name: str) -> bool:
        """Whether a table or view is there."""
        return bool(self._client.tableExists(database, name))

    def shows(self, database: str, name: str, described: Described) -> bool:
        """Whether a table or view is there, and has the version that is described."""
        if not self.has(database, name):
            return False
        there = dict(self._client.getTable(database, name).getParameters() or {})
        return all(there.get(key) == described.properties[key] for key in _SAME)

    def drop(self, database: str, name: str) -> None:
        """Remove a table or view, and no file."""
        self._client.dropTable(database, name, False, True)

    def put(self, database: str, name: str, described: Described, *, view: bool) -> None:
        """Make a table or view as it is described, or let it become that."""
        table = self._table(database, name, described, view=view)
        if self.has(database, name):
            try:
                self._client.alter_table(database, name, table)
            except Py4JJavaError:
                # Columns that Hive does not let change.
                self.drop(database, name)
            else:
                return
        self._client.createTable(table)

    def _table(self, database: str, name: str, described: Described, *, view: bool) -> Any:
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
def connected(spark: SparkSession, lake: LakeFile) -> Iterator[Client]:
    """Give a client of the metastore; raise NotConnected or Retryable for what goes wrong with it."""
    assert lake.metastore is not None
    client = None
    try:
        client = Client(spark, lake)
        yield client
    except Py4JError as error:
        name = name_of(error)
        if client is None or is_of_transport(error):
            raise NotConnected(f"the metastore at {lake.metastore.uri} does not answer ({name})", hint=AGAIN) from error
        raise Retryable(f"the metastore at {lake.metastore.uri} refuses ({name})", hint=AGAIN) from error
    finally:
        if client is not None:
            client.close()


def name_of(error: Exception) -> str:
    """Return the name of an error's class, of Java's where it has one."""
    java = getattr(error, "java_exception", None)
    return str(java.getClass().getSimpleName()) if java is not None else type(error).__name__


def is_of_transport(error: Exception) -> bool:
    """Whether the connection failed."""
    return "Transport" in name_of(error)


def _view_properties(described: Described) -> dict[str, str]:
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
