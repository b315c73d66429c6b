"""Whether several drivers may write one lake where its root is, and the jars of Hadoop's file system for S3.

Delta's log store for S3 excludes writers of one JVM only: of two drivers that commit the same version one is lost without an
error, and all streams of a lake share tables. `GCSLogStore` does not help, although it asks for a file only if it is absent: no
setting of Hadoop 3.5 makes a plain `create` on S3 conditional. HDFS, ABFS and GCS have a safe default. Called by session.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from headrace.errors import ConfigurationError, NeedsOperator

_S3 = frozenset({"s3", "s3a", "s3n"})
#: The operator's word that one driver at a time writes to the lake.
_ONE_DRIVER = "io.delta.storage.S3SingleDriverLogStore"
#: Delta's own that do not exclude other drivers on S3, and do not say so either.
_UNSAFE = frozenset(
    f"{package}.{name}"
    for package in ("io.delta.storage", "org.apache.spark.sql.delta.storage")
    for name in ("GCSLogStore", "HDFSLogStore", "LocalLogStore", "AzureLogStore")
)
#: Settings by which a user brings jars of his own.
_OWN_JARS = frozenset({"spark.jars", "spark.jars.packages", "spark.driver.extraClassPath"})


def check(root: str, effective: Mapping[str, str]) -> None:
    """Raise ConfigurationError where two drivers that commit at the same time could lose a commit, and nobody has chosen that."""
    scheme = urlsplit(root).scheme
    if scheme not in _S3:
        return
    setting = f"spark.delta.logStore.{scheme}.impl"
    store = effective.get(setting) or effective.get("spark.delta.logStore.class")
    if not store or store in _UNSAFE:
        raise ConfigurationError(
            f"{root}: with Delta's log store {store.rpartition('.')[2] if store else 'for S3'} two drivers that commit at the "
            "same time lose a commit without an error",
            hint=f"Name a store in [spark.settings]: {setting} = io.delta.storage.S3DynamoDBLogStore (with its jars, and a table "
            f"in DynamoDB) for several drivers; or {_ONE_DRIVER} where one driver at a time loads, replays and maintains all "
            "streams.",
        )


def jars(root: str, folder: Path, given: Mapping[str, str]) -> list[Path]:
    """Return the jars of Hadoop's file system for the root; raise NeedsOperator when they were not fetched."""
    if urlsplit(root).scheme not in _S3 or _OWN_JARS & given.keys() or os.environ.get("SPARK_HOME"):
        return []
    if found := sorted((folder / "object-store").glob("*.jar")):
        return found
    raise NeedsOperator(
        f"no jars of an S3 file system in {folder / 'object-store'}",
        hint="Run 'headrace jars object-store' ('make object-store-jars' in a checkout), "
        "or name jars of your own in [spark.settings]: spark.jars.",
    )
