"""Rows of the lake's own small tables, read in this process: a query of a new driver over a few rows costs ten seconds of CPU.

Only where Python can: the folder is on this machine, Arrow is installed, the rows are not many and the table needs no other
reader. Everything else, damage too, is left to Spark, which says what is wrong. Called by what reads `state`, `names`, `schemas`.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession

from headrace.errors import ReplicationError
from headrace.lake.own_tables import PublishedTable, newest_places
from headrace.lake.storage import Storage
from headrace.lake.table import LakeTable
from spark_jobs import storage

if TYPE_CHECKING:
    import pyarrow as pa

#: Rows from which on Spark reads a table, which does so by all cores; and bytes, of which it holds those alone that are chosen.
_MANY, _LARGE = 200_000, 64 * 1024 * 1024

Row = dict[str, Any]


def read(
    spark: SparkSession,
    path: str,
    version: int,
    *,
    columns: tuple[str, ...] = (),
    choose: "Callable[[pa.Table], pa.Table]",
    query: Callable[[DataFrame], DataFrame],
) -> list[Row]:
    """Return rows of a table at a version: those that a function chooses in this process, or else a query of Spark."""
    rows = _read(spark, path, version, columns)
    if rows is not None:
        return list(choose(rows).to_pylist(maps_as_pydicts="strict"))
    frame = spark.read.format("delta").option("versionAsOf", version).load(path)
    return [row.asDict(recursive=True) for row in query(frame.select(*columns) if columns else frame).collect()]


def newest(rows: "pa.Table") -> "pa.Table":
    """Return the newest row of each stream and table."""
    return rows.take(list(newest_places(rows).values()))


def _read(spark: SparkSession, path: str, version: int, columns: tuple[str, ...]) -> "pa.Table | None":
    """Return a table's rows; None where Spark has to read them."""
    if not storage.is_local(spark, path):
        return None
    try:
        import pyarrow as pa
    except ImportError:
        return None
    place = Path(storage.local(path))
    published = PublishedTable(name=place.name, path=place.name, version=version, stream="", table="", positions={})
    try:
        # As an address: a name may have what addresses have a meaning for.
        files = Storage(place.parent.absolute().as_uri(), {})
        table, batches, count, size = LakeTable(files, published, columns or None), [], 0, 0
        for batch in table.batches():
            count, size = count + batch.num_rows, size + batch.nbytes
            if count > _MANY or size > _LARGE:
                return None
            batches.append(batch)
        return pa.Table.from_batches(batches, table.schema)
    except (ReplicationError, OSError, ValueError, KeyError, TypeError, pa.ArrowException):
        return None
