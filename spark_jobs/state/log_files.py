"""Files of tables' logs, read without Spark: in a folder of this machine, or on S3 by the package `deltalake`.

On S3 that is an attempt: where a package is not installed, or the store does not answer with the credentials of the file or of
this process's environment, `Unreadable` is raised, and the caller leaves the question to Spark. Other stores are read by
Spark alone. Called by delta_log.py, and by what looks at a lake before a session is made.

A Delta table as its log describes it now: version, properties, size, files, numbers of transactions.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from time import time
from typing import Any, Protocol
from urllib.parse import urlsplit

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.

from headrace.configuration.lake import LakeFile
from headrace.errors import NotConnected
from headrace.lake.storage import is_s3, store_options

#: A store that does not answer must not delay the load that asks it: Spark's own client retries for minutes.
_IMPATIENT = {"connect_timeout": "2s", "timeout": "5s", "max_retries": "1", "retry_timeout": "5s"}


class Unreadable(NotConnected):
    """A lake's root cannot be read without Spark."""


class LogFiles(Protocol):
    """Files under a root; a path is one that `path` returned, with names after it."""

    def path(self, *names: str) -> str:
        """Return the path of something under the root."""

    def read(self, path: str) -> str | None:
        """Return a file's text, None when there is no such file."""

    def exists(self, path: str) -> bool:
        """Whether there is such a file."""

    def names(self, path: str) -> list[str]:
        """Return the names in a folder; empty when there is no such folder."""

    def tables(self, path: str) -> list[str]:
        """Return the names of the tables in a folder."""


class LocalFiles:
    """Files of this machine."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root

    def path(self, *names: str) -> str:
        """Return the path of something under the root."""
        return str(self._root.joinpath(*names))

    def read(self, path: str) -> str | None:
        """Return a file's text, None when there is no such file."""
        try:
            return Path(path).read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return None

    def exists(self, path: str) -> bool:
        """Whether there is such a file."""
        return Path(path).exists()

    def names(self, path: str) -> list[str]:
        """Return the names in a folder; empty when there is no such folder."""
        folder = Path(path)
        return [entry.name for entry in folder.iterdir()] if folder.is_dir() else []

    def tables(self, path: str) -> list[str]:
        """Return the names of the tables in a folder."""
        return [log.parent.name for log in Path(path).glob("*/_delta_log")]


class StoreFiles:
    """Objects of an S3 bucket; every method raises Unreadable when the store does not answer."""

    def __init__(self, root: str, settings: dict[str, str]) -> None:
        try:
            # For a lake on S3 alone.
            from deltalake.fs import DeltaStorageHandler
            from pyarrow.fs import FileSelector, FileType
        except ImportError as error:
            raise Unreadable("the packages deltalake and pyarrow are not installed") from error
        self._selector, self._missing = FileSelector, FileType.NotFound
        place = urlsplit(root)._replace(scheme="s3").geturl().rstrip("/")
        self._store = self._tried(DeltaStorageHandler, place, store_options(root, settings) | _IMPATIENT)

    def path(self, *names: str) -> str:
        """Return the path of something under the root."""
        return "/".join(names)

    def read(self, path: str) -> str | None:
        """Return an object's text, None when there is no such object."""
        try:
            return str(self._tried(self._text, path))
        except FileNotFoundError:
            return None

    def exists(self, path: str) -> bool:
        """Whether there is such an object."""
        (info,) = self._tried(self._store.get_file_info, [path])
        return bool(info.type != self._missing)

    def names(self, path: str) -> list[str]:
        """Return the names below a prefix, one level deep; empty when there is nothing."""
        below = self._selector(path, allow_not_found=True, recursive=False)
        return [info.base_name for info in self._tried(self._store.get_file_info_selector, below)]

    def tables(self, path: str) -> list[str]:
        """Return the names of the tables in a folder; a prefix is taken for a table: there may be thousands of them."""
        return self.names(path)

    def _text(self, path: str) -> str:
        return bytes(self._store.open_input_file(path).read()).decode(errors="replace")

    def _tried(self, function: Any, *arguments: Any) -> Any:
        """Call the store; its library has errors of many kinds, none of which is a reason to fail."""
        try:
            return function(*arguments)
        except FileNotFoundError:
            raise
        except Exception as error:
            raise Unreadable(f"the object store cannot be read without Spark ({type(error).__name__})") from error


def of_lake(lake: LakeFile) -> LogFiles | None:
    """Return the files under a lake's root, None where Spark alone can read them; raise Unreadable as well."""
    if lake.folder is not None:
        return LocalFiles(lake.folder)
    return StoreFiles(lake.root, lake.spark_settings()) if is_s3(lake.root) else None


def version(spark: SparkSession, path: str) -> int:
    """Return the newest version of the table."""
    return int(snapshot(spark, path).version())


def properties(spark: SparkSession, path: str) -> dict[str, str]:
    """Return the properties of the table."""
    # From the snapshot itself: Delta's description of a table is a query.
    entries = snapshot(spark, path).metadata().configuration().iterator()
    pairs: dict[str, str] = {}
    while entries.hasNext():
        entry = entries.next()
        pairs[str(entry._1())] = str(entry._2())  # noqa: SLF001 - a pair's parts in Scala.
    return pairs


def features(spark: SparkSession, path: str) -> set[str]:
    """Return the names of what a reader or writer of the table has to know."""
    protocol, names = snapshot(spark, path).protocol(), set[str]()
    for known in (protocol.implicitlySupportedFeatures(), protocol.readerAndWriterFeatureNames()):
        entries = known.iterator()
        while entries.hasNext():
            entry = entries.next()
            names.add(entry if isinstance(entry, str) else str(entry.name()))
    return names


def size(spark: SparkSession, path: str) -> int:
    """Return the bytes of the table's files."""
    return int(snapshot(spark, path).sizeInBytes())


def is_whole(spark: SparkSession, path: str) -> bool:
    """Whether all rows of the table are certainly in one file that has no other ones: nothing is there to put together."""
    checksum = snapshot(spark, path).checksumOpt()
    if not checksum.isDefined() or int(checksum.get().numFiles()) > 1:
        return False
    vectors = checksum.get().numDeletionVectorsOpt()
    return bool(vectors.isDefined() and int(vectors.get()) == 0)


def measure_unclustered(spark: SparkSession, path: str) -> int:
    """Return the bytes of the table's files that Delta has not clustered."""
    files = DataFrame(snapshot(spark, path).allFiles().toDF(), spark)
    row = files.filter("clusteringProvider IS NULL").agg(F.sum("size")).first()
    return int(row[0] or 0) if row is not None else 0


def transaction(spark: SparkSession, path: str, application: str) -> int | None:
    """Return the newest number that an application's transactions have in a table, None when it has none."""
    number = snapshot(spark, path).transactions().get(application)
    return int(number.get()) if number.isDefined() else None


#: Since when, in milliseconds since 1970, snapshots of tables may be; None for now.
_since: ContextVar[int | None] = ContextVar("since", default=None)


@contextmanager
def listed_once() -> Iterator[None]:
    """Let looks at a table inside list its log once: on a file system that is the whole folder, weeks of commits each time.

    What others commit meanwhile may not be seen, what this process commits is.
    """
    token = _since.set(int(time() * 1000))
    try:
        yield
    finally:
        _since.reset(token)


def snapshot(spark: SparkSession, path: str) -> Any:
    """Return Delta's snapshot of a table as it is now, or was `listed_once`; Delta lists the log from the last checkpoint on."""
    log = spark._jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, path)  # noqa: SLF001 - PySpark offers no other way.
    since, none = _since.get(), spark._jvm.scala.Option.empty()  # noqa: SLF001 - as above.
    return log.update(False, none if since is None else spark._jvm.scala.Option.apply(since), none)  # noqa: SLF001
