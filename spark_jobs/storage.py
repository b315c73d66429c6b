"""Small files and the lake's own small tables, on the file system of the lake's root: this machine's disk, or any other that
Hadoop has a file system for.

Used to see what is at a path and to read the log of a table; tables are read and written by Delta alone. But rows of the lake's
own tables are read in this process where Python can: a query of a new driver over a few rows costs ten seconds of CPU. The folder
is on this machine, Arrow is installed, the rows are not many and the table needs no other reader. Everything else, damage too, is
left to Spark, which says what is wrong.

Also names and texts as Spark SQL reads them, whatever characters they hold; and the scratch folders of queries and replays under
the lake's root, whose names contain the time of creation: an object store's folders have no time of their own, and a local one's
does not change while it is read.
"""

import re
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pyspark.sql import DataFrame, SparkSession

from headrace.configuration.lake import LakeFile, local_path
from headrace.errors import ReplicationError
from headrace.lake.own_tables import PublishedTable, newest_places
from headrace.lake.storage import Storage
from headrace.lake.table import LakeTable

if TYPE_CHECKING:
    import pyarrow as pa


def is_local(spark: SparkSession, path: str) -> bool:
    """Whether a path is on this machine's own disk, by Hadoop's file system of it."""
    scheme = urlsplit(path).scheme
    if scheme:
        return scheme == "file"
    # A path without a scheme is on `fs.defaultFS`.
    return str(_open(spark, path)[0].getScheme()) == "file"


def exists(spark: SparkSession, path: str) -> bool:
    """Whether anything is at the path."""
    system, place = _open(spark, path)
    return bool(system.exists(place))


def names(spark: SparkSession, path: str) -> list[str]:
    """Return the names in a folder, sorted; empty when there is no such folder."""
    system, place = _open(spark, path)
    return sorted(status.getPath().getName() for status in system.listStatus(place)) if system.exists(place) else []


def read(spark: SparkSession, path: str) -> str:
    """Return the text of a small file."""
    system, place = _open(spark, path)
    stream = system.open(place)
    try:
        return str(_jvm(spark).org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
    finally:
        stream.close()


def delete(spark: SparkSession, path: str) -> None:
    """Remove a path and what is under it, if it is there."""
    system, place = _open(spark, path)
    system.delete(place, True)


def bring(spark: SparkSession, path: str, folder: str) -> None:
    """Move a path and what is under it to a folder of this machine that is not there yet."""
    system, place = _open(spark, path)
    # Without files of checksums next to the others.
    system.copyToLocalFile(True, place, _jvm(spark).org.apache.hadoop.fs.Path(folder), True)


def modified(spark: SparkSession, path: str) -> datetime:
    """Return when a path was changed last."""
    system, place = _open(spark, path)
    return datetime.fromtimestamp(system.getFileStatus(place).getModificationTime() / 1000, UTC)


def _open(spark: SparkSession, path: str) -> tuple[Any, Any]:
    place = _jvm(spark).org.apache.hadoop.fs.Path(path)
    return place.getFileSystem(spark._jsc.hadoopConfiguration()), place  # noqa: SLF001 - PySpark offers no other way.


def _jvm(spark: SparkSession) -> Any:
    return spark._jvm  # noqa: SLF001 - PySpark offers no other way.


def name(plain: str) -> str:
    """Return a column's name quoted: it may hold dots, spaces and backticks."""
    return f"`{plain.replace('`', '``')}`"


def table(path: str, version: int | None = None) -> str:
    """Return a Delta table as a statement names it, by its path."""
    return f"delta.{name(path)}" + ("" if version is None else f" VERSION AS OF {version}")


def text(plain: str) -> str:
    """Return a string literal."""
    escaped = plain.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


_SCRATCH_FORM = "%Y%m%dT%H%M%SZ"
_SCRATCH_NAME = re.compile(r"(\d{8}T\d{6}Z)-[0-9a-f]{32}")
#: Age from which on a folder is abandoned: a process that needs one for longer makes a new one in time.
SCRATCH_ABANDONED = timedelta(days=3)
SCRATCH_RENEWED = timedelta(days=1)


def scratch_root(lake: LakeFile) -> str:
    """Return the folder that holds all scratch folders."""
    return f"{lake.root}/scratch"


def new_scratch_name(now: datetime | None = None) -> str:
    """Return the name of a new scratch folder."""
    return f"{now or datetime.now(UTC):{_SCRATCH_FORM}}-{uuid.uuid4().hex}"


def is_abandoned(folder: str, modified: datetime, now: datetime | None = None) -> bool:
    """Whether a scratch folder can be removed; one of an earlier release has no time in its name, but when it was `modified`."""
    match = _SCRATCH_NAME.fullmatch(folder)
    creation = datetime.strptime(match[1], _SCRATCH_FORM).replace(tzinfo=UTC) if match else modified
    return (now or datetime.now(UTC)) - creation > SCRATCH_ABANDONED


#: Rows from which on Spark reads a table, which does so by all cores; and bytes, of which it holds those alone that are chosen.
_MANY, _LARGE = 200_000, 64 * 1024 * 1024

Row = dict[str, Any]


def read_rows(
    spark: SparkSession,
    path: str,
    version: int,
    *,
    columns: tuple[str, ...] = (),
    choose: "Callable[[pa.Table], pa.Table]",
    query: Callable[[DataFrame], DataFrame],
) -> list[Row]:
    """Return rows of a table at a version: those that a function chooses in this process, or else a query of Spark."""
    rows = _read_rows(spark, path, version, columns)
    if rows is not None:
        return list(choose(rows).to_pylist(maps_as_pydicts="strict"))
    frame = spark.read.format("delta").option("versionAsOf", version).load(path)
    return [row.asDict(recursive=True) for row in query(frame.select(*columns) if columns else frame).collect()]


def newest_rows(rows: "pa.Table") -> "pa.Table":
    """Return the newest row of each stream and table."""
    return rows.take(list(newest_places(rows).values()))


def _read_rows(spark: SparkSession, path: str, version: int, columns: tuple[str, ...]) -> "pa.Table | None":
    """Return a table's rows; None where Spark has to read them."""
    if not is_local(spark, path):
        return None
    try:
        import pyarrow as pa
    except ImportError:
        return None
    place = Path(local_path(path))
    published = PublishedTable(name=place.name, path=place.name, version=version, stream="", table="", positions={})
    try:
        files = Storage(str(place.parent.absolute()), {})
        table, batches, count, size = LakeTable(files, published, columns or None), [], 0, 0
        for batch in table.batches():
            count, size = count + batch.num_rows, size + batch.nbytes
            if count > _MANY or size > _LARGE:
                return None
            batches.append(batch)
        return pa.Table.from_batches(batches, table.schema)
    except (ReplicationError, OSError, ValueError, KeyError, TypeError, pa.ArrowException):
        return None
