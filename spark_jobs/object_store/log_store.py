"""Whether several drivers may write one lake where its root is, and the jars of Hadoop's file system for S3.

Delta's own log stores for S3 exclude writers of one JVM at most: of two drivers that commit the same version one is lost
without an error, and all streams of a lake share tables. `GCSLogStore` does not help, although it creates a file only if it is
absent: no setting of Hadoop 3.5 makes a plain `create` on S3 conditional. So a lake on S3 has a log store of ours, whose commits
S3 itself decides (ConditionalLogStore.java), where the server does that; and it lists a log from what is known of it on (L41).
HDFS, ABFS and GCS have a safe default.
Called by session.
"""

import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from headrace.errors import ConfigurationError, NeedsOperator

_S3 = frozenset({"s3", "s3a", "s3n"})
#: Ours, and the jar that has it (infra/release/java_build.py).
CONDITIONAL, _JAR = "headrace.ConditionalLogStore", "headrace-log-store.jar"
#: The operator's word that one driver at a time writes to the lake.
_ONE_DRIVER = "io.delta.storage.S3SingleDriverLogStore"
#: Delta's own that do not exclude other drivers on S3, and do not report it either.
_UNSAFE = frozenset(
    f"{package}.{name}"
    for package in ("io.delta.storage", "org.apache.spark.sql.delta.storage")
    for name in ("GCSLogStore", "HDFSLogStore", "LocalLogStore", "AzureLogStore")
)
#: Settings by which a user brings jars of his own.
_OWN_JARS = frozenset({"spark.jars", "spark.jars.packages", "spark.driver.extraClassPath"})
_CHOICE = (
    "io.delta.storage.S3DynamoDBLogStore (with its jars, and a table in DynamoDB) for several drivers, or "
    f"{_ONE_DRIVER} where one driver at a time loads, replays and maintains all streams"
)


def settings(root: str, folder: Path, given: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of log stores for a root on S3: ours, where its jar was made and no other one is named."""
    if urlsplit(root).scheme not in _S3:
        return {}
    return {} if _chosen(root, given) or not _log_store(folder) else {_setting(root): CONDITIONAL}


def check(root: str, effective: Mapping[str, str]) -> None:
    """Raise ConfigurationError where two drivers that commit at the same time could lose a commit, and nobody has chosen that."""
    if urlsplit(root).scheme not in _S3:
        return
    store = _chosen(root, effective)
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
    if urlsplit(root).scheme not in _S3 or _chosen(root, effective) != CONDITIONAL:
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
    """Return the jars of Hadoop's file system for the root, and of our log store; raise NeedsOperator if they are not there."""
    if urlsplit(root).scheme not in _S3:
        return []
    if _OWN_JARS & given.keys() or os.environ.get("SPARK_HOME"):
        return _log_store(folder)
    if files := sorted((folder / "object-store").glob("*.jar")):
        return files + _log_store(folder)
    raise NeedsOperator(
        f"no jars of an S3 file system in {folder / 'object-store'}",
        hint="Run 'headrace jars object-store' ('make object-store-jars' in a checkout), or name jars of your own in "
        "[spark.settings]: spark.jars.",
    )


def _log_store(folder: Path) -> list[Path]:
    """Return the jar of our log store: the wheel's, or in a checkout the one that was made there; none if there is neither."""
    packaged = Path(__file__).with_name(_JAR)
    jar = folder / "log-store" / _JAR
    return [packaged] if packaged.exists() else [jar] if jar.exists() else []


def _setting(root: str) -> str:
    return f"spark.delta.logStore.{urlsplit(root).scheme}.impl"


def _chosen(root: str, given: Mapping[str, str]) -> str | None:
    return given.get(_setting(root)) or given.get("spark.delta.logStore.class")
