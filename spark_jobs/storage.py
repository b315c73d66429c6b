"""Small files on the file system of the lake's root: this machine's disk, or any other that Hadoop has a file system for.

Used to see what is at a path and to read the log of a table; tables are read and written by Delta alone. Also names and texts as
Spark SQL reads them, whatever characters they hold; and the scratch folders of queries and replays under the lake's root, whose
names contain the time of creation: an object store's folders have no time of their own, and a local one's does not change while
it is read.
"""

import re
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import unquote, urlsplit

from pyspark.sql import SparkSession

from headrace.configuration.lake import LakeFile


def is_local(spark: SparkSession, path: str) -> bool:
    """Whether a path is on this machine's own disk, by Hadoop's file system of it."""
    scheme = urlsplit(path).scheme
    if scheme:
        return scheme == "file"
    # A path without a scheme is on `fs.defaultFS`.
    return str(_open(spark, path)[0].getScheme()) == "file"


def local(path: str) -> str:
    """Return a path of this machine without its scheme."""
    return unquote(urlsplit(path).path) if path.startswith("file:") else path


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
