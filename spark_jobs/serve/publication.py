"""What the server shows: each name in SQL with the path and version of its Delta table, of one publication; and how it is listed.

JDBC's and Spark's lists of tables and columns come from Spark's own catalog of the process, not from the one that reads tables.
Called by the server for what is published now, and for a session that asks the past.
"""

import json
import logging
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime

from pyspark.sql import SparkSession

from headrace.configuration.lake import LakeFile
from headrace.errors import ConfigurationError, ReplicationError
from headrace.lake.own_tables import bronze_name
from spark_jobs import storage
from spark_jobs.errors import explained
from spark_jobs.query import published_tables
from spark_jobs.query.published_tables import Relation
from spark_jobs.silver import table_task
from spark_jobs.state import delta_log, published, schema_texts
from spark_jobs.state.published import Published

_log = logging.getLogger(__name__)
DATABASES = ("silver", "valid", "history", "full_history", "bronze", "lake", "headrace")
#: The table of what is published as clients know it; the views of database `lake` read it.
PUBLICATIONS = "publications"
_POSITION = re.compile(r"(?P<source>[^\s=]+/[^\s=]+)=(?P<position>[0-9A-Za-z/.:-]+)")


def newest(spark: SparkSession, lake: LakeFile) -> list[Relation]:
    """Return the relations as they are published now."""
    return _relations(spark, lake, published.latest_of_all(spark, lake))


def of_the_past(spark: SparkSession, lake: LakeFile, as_of: str) -> list[Relation]:
    """Return the relations as they were published at a time (ISO 8601, UTC), or at `source=position` for that source's streams.

    Raises ConfigurationError for another text, and where nothing that old is kept.
    """
    if position := _POSITION.fullmatch(as_of):
        states = _at_position(spark, lake, position["source"], position["position"])
    else:
        states = _at_time(spark, lake, as_of)
    if not states:
        raise ConfigurationError(f"nothing is kept of what was published at {as_of!r}: name a later one")
    # The statement of one is that of now, which may have other columns: the past has the history by each name.
    return [each for each in _relations(spark, lake, states) if not each.histories]


def _at_time(spark: SparkSession, lake: LakeFile, text: str) -> list[Published]:
    try:
        when = datetime.fromisoformat(text)
    except ValueError as error:
        raise ConfigurationError("headrace.as_of is a time, '2026-01-31T09:15:00Z', or SOURCE=POSITION") from error
    when = when.replace(tzinfo=UTC) if when.tzinfo is None else when
    states = [published.finished_by(spark, lake, each.stream, when) for each in published.latest_of_all(spark, lake)]
    return [state for state in states if state is not None]


def _at_position(spark: SparkSession, lake: LakeFile, source: str, position: str) -> list[Published]:
    states = []
    for last in published.latest_of_all(spark, lake):
        if source not in last.positions:
            continue
        # Of other sources of the stream whatever was published with it.
        upto = last.positions | {source: position}
        state = published.before(spark, lake, last.stream, upto, datetime.fromtimestamp(0, UTC))
        if state is not None:
            states.append(state)
    return states


def _relations(spark: SparkSession, lake: LakeFile, states: list[Published]) -> list[Relation]:
    """Return the relations of states, each at a version; those of the lake's own as they are now."""
    read = {bronze_name(state.stream, lake.streams): state.bronze_version for state in states}
    relations = []
    for each in published_tables.relations(spark, lake, states, by_name=True):
        if each.database == "lake":
            continue
        if each.is_view:
            relations.append(each)
            continue
        version = each.version
        if each.database == "bronze":
            # A stream that is not published yet shows nothing of its bronze.
            if each.name not in read:
                continue
            version = read[each.name]
            version = None if version is None else _with_same_records(spark, each.path, version)
        if version is None:
            version = delta_log.version(spark, each.path)
        relations.append(Relation(database=each.database, name=each.name, path=each.path, version=version))
    place = published.path(lake)
    if delta_log.is_table(spark, place):
        version = delta_log.version(spark, place)
        relations.append(Relation(database="lake", name=PUBLICATIONS, path=place, version=version))
        relations += [
            Relation(database="lake", name=name, path=place, query=query)
            for name, query in published_tables.views(f"lake.{PUBLICATIONS}").items()
        ]
    return relations


#: What adds records to bronze; notes of progress do so without any.
_ADDING = {"WRITE", "STREAMING UPDATE"}


def _with_same_records(spark: SparkSession, path: str, version: int) -> int:
    """Return the newest version of bronze before more records came: files of earlier ones go, and erased records stay there."""
    try:
        for number, info in delta_log.after(spark, path, version):
            rows = (info.get("operationMetrics") or {}).get("numOutputRows", 0)
            if info.get("operation") in _ADDING and str(rows) != "0":
                break
            version = number
    except ReplicationError as error:
        # It concerns this stream's bronze alone, whose load says so.
        _log.warning("%s is shown at version %d: %s", path, version, error.message)
    return version


def as_json(number: str, relations: list[Relation]) -> str:
    """Return the text by which Publications.java takes a publication; a view has version -1."""
    rows = [
        {
            "database": each.database,
            "name": each.name,
            "path": each.path,
            "version": -1 if each.is_view else each.version,
        }
        for each in relations
    ]
    return json.dumps({"number": number, "relations": rows})


def columns(spark: SparkSession, lake: LakeFile) -> dict[str, str]:
    """Return a mark of the columns of each table of silver and history, by its path: it changes when they do."""
    marks = {}
    for state in published.latest_of_all(spark, lake):
        for table in state.tables.values():
            mark = repr(sorted(schema_texts.digests(table.schemas).items()))
            marks[table_task.path(lake, state.stream, table.table)] = mark
            # What is made of it needs the columns that it has: a load may add one later than its schema comes.
            version = f" {table.history}" if state.former_names(table.table) else ""
            marks[table_task.history_path(lake, state.stream, table.table)] = mark + version
    return marks


@dataclass
class Listing:
    """Spark's own catalog, kept at what is published; the session is one of the server's own.

    Each name is a view in it, made again only where a table is new or has other columns, since that opens the table.
    """

    spark: SparkSession
    #: By name, the path and the columns' mark with which it was listed.
    _listed: dict[str, tuple[str, str]] = field(default_factory=dict)

    def begin(self) -> None:
        """Make the databases."""
        for database in DATABASES:
            self.spark.sql(f"CREATE DATABASE IF NOT EXISTS {database}")

    def keep(self, relations: list[Relation], columns: dict[str, str]) -> None:
        """List these names, as far as they can be, and no others; `columns` has a mark of a table's columns by its path."""
        wanted = {f"{each.database}.{storage.name(each.name)}": each for each in relations}
        for name in self._listed.keys() - wanted.keys():
            self.spark.sql(f"DROP VIEW IF EXISTS {name}")
            del self._listed[name]
        for name, relation in wanted.items():
            try:
                with explained(name):
                    statement = relation.sql()
                    mark = (statement if relation.is_view else relation.path, columns.get(relation.path, ""))
                    if self._listed.get(name) == mark:
                        continue
                    self.spark.sql(f"CREATE OR REPLACE VIEW {name} AS {statement}")
                self._listed[name] = mark
            except ReplicationError as error:
                # It is not listed, and can be asked as far as it can be read.
                _log.warning("%s is not listed: %s", name, error.message)
