"""What releases before 0.2 published: one row for each load, with all tables in it. Read once a stream, then carried over.

Called by published.py, for streams that have published nothing since.
"""

from dataclasses import fields, replace
from datetime import UTC
from typing import Any

from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.

from headrace.configuration.lake import LakeFile
from headrace.schema import TableSchema
from spark_jobs.state import delta_log
from spark_jobs.state.published_rows import Published, Table

#: What each table was read as last, and at which commit.
_read: dict[str, tuple[tuple[int, str], dict[str, Published]]] = {}


def path(lake: LakeFile) -> str:
    """Return the path of the table."""
    return f"{lake.root}/published"


def latest(spark: SparkSession, lake: LakeFile) -> dict[str, Published]:
    """Return what was published last for every stream."""
    place = path(lake)
    if not delta_log.is_table(spark, place):
        return {}
    mark = delta_log.mark(spark, place)
    if place not in _read or _read[place][0] != mark:
        rows = spark.read.format("delta").option("versionAsOf", mark[0]).load(place)
        newest = rows.groupBy("stream").agg(F.max_by(F.struct(*rows.columns), "load").alias("row")).select("row.*")
        _read[place] = mark, {row["stream"]: _state(row) for row in newest.collect()}
    return _read[place][1]


def _state(row: Row) -> Published:
    columns = row.asDict(recursive=True)
    tables = {table["table"]: _table(table) for table in columns.pop("tables")}
    # PySpark hands out times without a zone, in this machine's.
    times = {name: columns.pop(name).astimezone(UTC) for name in ("started_at", "finished_at")}
    return Published(**columns, **times, data=columns["load"], tables=tables)


def _table(columns: dict[str, Any]) -> Table:
    names = {field.name for field in fields(Table)}
    table = Table(**{name: value for name, value in columns.items() if name in names and value is not None})
    return replace(table, keyed=any(TableSchema.parse(text).key for text in table.schemas.values()))
