"""Whether several drivers may write one lake where its root is; the jars of our log stores, and of Hadoop's file system for S3.

Delta's own log stores for S3 exclude writers of one JVM at most: of two drivers that commit the same version one is lost
without an error, and all streams of a lake share tables. `GCSLogStore` does not help, although it creates a file only if it is
absent: no setting of Hadoop 3.5 makes a plain `create` on S3 conditional. So a lake on S3 has a log store of ours, whose commits
S3 itself decides (ConditionalLogStore.java), where the server does that; and it lists a log from what is known of it on (L41).
On files of this machine, or mounted ones, Delta's own loses a commit in a rare moment (L53), and a long log takes it seconds to
list: ours (FileLogStore.java) is taken where the JVM has it. HDFS, ABFS and GCS have a safe default.
Called by session.
"""

import logging
import os
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from headrace.errors import ConfigurationError, NeedsOperator

_S3 = frozenset({"s3", "s3a", "s3n"})
#: Paths without a scheme are files, except where Hadoop's default is another file system: there the setting does nothing.
_FILES = frozenset({"", "file"})
#: Ours on S3 and on files, and the jars that have them (infra/release/java_build.py).
CONDITIONAL, LINKING = "headrace.ConditionalLogStore", "headrace.FileLogStore"
_JARS = {CONDITIONAL: "headrace-log-store.jar", LINKING: "headrace-file-log-store.jar"}
#: The operator's word that one driver at a time writes to the lake.
_ONE_DRIVER = "io.delta.storage.S3SingleDriverLogStore"
#: Delta's own that do not exclude other drivers on S3, and do not report it either.
_UNSAFE = frozenset(
    f"{package}.{name}"
    for package in ("io.delta.storage", "org.apache.spark.sql.delta.storage")
    for name in ("GCSLogStore", "HDFSLogStore", "LocalLogStore", "AzureLogStore")
)
_log = logging.getLogger(__name__)
#: Settings by which a user brings jars of his own.
_OWN_JARS = frozenset({"spark.jars", "spark.jars.packages", "spark.driver.extraClassPath"})
_CHOICE = (
    "io.delta.storage.S3DynamoDBLogStore (with its jars, and a table in DynamoDB) for several drivers, or "
    f"{_ONE_DRIVER} where one driver at a time loads, replays and maintains all streams"
)


def names(root: str) -> tuple[str, str]:
    """Return the settings that name a log store for a root."""
    return _setting(root), "spark.delta.logStore.class"


def settings(root: str, folder: Path, given: Mapping[str, str], has_class: Callable[[str], bool]) -> dict[str, str]:
    """Return the setting of the log store for a root: ours on S3 where its jar was made, on files where Spark has its class.

    Nothing where another one is named.
    """
    if _chosen(root, given):
        return {}
    if _scheme(root) in _S3:
        return {_setting(root): CONDITIONAL} if _jar(folder, CONDITIONAL) else {}
    return {_setting(root): LINKING} if _scheme(root) in _FILES and has_class(LINKING) else {}


def check(root: str, effective: Mapping[str, str]) -> None:
    """Raise ConfigurationError where two drivers that commit at the same time could lose a commit, and nobody has chosen that.

    On files that takes the same instant: there it is a warning.
    """
    store = _chosen(root, effective)
    if _scheme(root) in _FILES and not store:
        _log.warning(
            "%s: of two processes that commit to one table in the same instant one could lose its commit: the driver or its "
            "executors have no class %s. Headrace's wheel has it (spark_jobs/log_store/%s), a checkout makes it by 'make setup'; "
            "name it too where [spark.settings] names jars of your own.",
            root,
            LINKING,
            _JARS[LINKING],
        )
    if _scheme(root) not in _S3:
        return
    if not store or store in _UNSAFE:
        raise ConfigurationError(
            f"{root}: with Delta's log store {store.rpartition('.')[2] if store else 'for S3'} two drivers that commit at the "
            "same time lose a commit without an error",
            hint=f"Run 'make object-store-jars' in a checkout, which makes a log store for several drivers ({CONDITIONAL}); "
            f"or name one in [spark.settings] {_setting(root)}: {_CHOICE}.",
        )


def check_server(spark: SparkSession, root: str, effective: Mapping[str, str]) -> None:
    """Raise ConfigurationError where our log store would rely on what this server does not do.

    Raises NeedsOperator where the keys may not write there.
    """
    if _scheme(root) not in _S3 or _chosen(root, effective) != CONDITIONAL:
        return
    place = f"{root}/scratch/{uuid.uuid4().hex}"
    jvm = spark._jvm  # noqa: SLF001 - PySpark offers no other way.
    try:
        excludes = jvm.headrace.ConditionalLogStore.excludes(place, spark._jsc.hadoopConfiguration())  # noqa: SLF001 - as above.
    except Py4JJavaError as error:
        if "AccessDenied" not in str(error.java_exception):
            raise
        raise NeedsOperator(
            f"{root}: its server refuses to let these keys write and remove objects under it (403)",
            hint="Give the keys of loads, maintenance and replays the right to put and delete objects there; "
            "'lake sql', 'lake tables', 'lake positions' and 'verify' need to read and list only.",
        ) from error
    if not excludes:
        raise ConfigurationError(
            f"{root}: its server puts an object over another one in spite of If-None-Match, so two drivers "
            "that commit at the same time would lose a commit without an error",
            hint=f"Take a server that does, or name a log store in [spark.settings] {_setting(root)}: {_CHOICE}.",
        )


def jars(root: str, folder: Path, given: Mapping[str, str]) -> list[Path]:
    """Return the jars of our log stores, and of Hadoop's file system for the root; raise NeedsOperator if that is not there.

    The first one is in the archive of classes too (infra/release/java_build.py), which a JVM with other jars does without.
    """
    ours = _jar(folder, LINKING)
    if _scheme(root) not in _S3:
        return ours
    ours += _jar(folder, CONDITIONAL)
    if _OWN_JARS & given.keys() or os.environ.get("SPARK_HOME"):
        return ours
    if files := sorted((folder / "object-store").glob("*.jar")):
        return ours + files
    raise NeedsOperator(
        f"no jars of an S3 file system in {folder / 'object-store'}",
        hint="Run 'headrace jars object-store' ('make object-store-jars' in a checkout), or name jars of your own in "
        "[spark.settings]: spark.jars.",
    )


def _jar(folder: Path, store: str) -> list[Path]:
    """Return the jar of a log store: the wheel's, or in a checkout the one that was made there; none if there is neither."""
    packaged = Path(__file__).with_name(_JARS[store])
    jar = folder / "log-store" / _JARS[store]
    return [packaged] if packaged.exists() else [jar] if jar.exists() else []


def _scheme(root: str) -> str:
    return urlsplit(root).scheme


def _setting(root: str) -> str:
    return f"spark.delta.logStore.{_scheme(root) or 'file'}.impl"


def _chosen(root: str, given: Mapping[str, str]) -> str | None:
    return next(filter(None, map(given.get, names(root))), None)
