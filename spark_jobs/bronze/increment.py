"""The end of a bronze table: rows of the versions that came after one, read from the files that those versions added.

What a load, a look at live rows or a replay has to read does not grow with the table. Guarantees that no row of those versions
is missing; where the log no longer tells them apart the whole table is read, so callers choose rows by position all the same.
"""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.

from spark_jobs import storage
from spark_jobs.state import delta_log, offsets

#: Property of the table by which Delta answers what versions added; costs an append-only table nothing.
FEED = "delta.enableChangeDataFeed"
_OWN = ("_change_type", "_commit_version", "_commit_timestamp")
#: Rows, and bytes in files, that are read once and then held: planning their reading costs more than they do.
_FEW_ROWS, _FEW_BYTES = 100_000, 32 * 1024 * 1024
#: Tables whose property was seen; nobody of ours takes it away.
_fed: set[str] = set()


def rows(spark: SparkSession, path: str, after: int | None, upto: int) -> DataFrame:
    """Return the rows of versions after one, up to and including another; of all versions when `after` is None."""
    whole = spark.read.format("delta").option("versionAsOf", upto).load(path)
    if after is None or not _told(spark, path, after + 1):
        return whole
    if after >= upto:
        return whole.limit(0)
    feed = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", after + 1)
    changes = feed.option("endingVersion", upto).load(path)
    return changes.filter(F.col("_change_type") == "insert").drop(*_OWN)


def few(spark: SparkSession, path: str, after: int | None, upto: int) -> bool:
    """Whether the rows of those versions are so few that they may be held in memory."""
    if after is None or not _told(spark, path, after + 1):
        return False
    rows, size = delta_log.added(spark, path, after, upto)
    return rows <= _FEW_ROWS and size <= _FEW_BYTES


def _told(spark: SparkSession, path: str, first: int) -> bool:
    """Whether the log still tells, from the first version on, what was added and nothing else."""
    newest = delta_log.note(spark, path, offsets.NOTE)
    if newest is None or (offsets.parse(newest[1]).rewritten or 0) >= first:
        return False
    there = storage.exists(spark, f"{path}/_delta_log/{first:020d}.json") or delta_log.version(spark, path) < first
    if there and path not in _fed and delta_log.has_property(spark, path, FEED):
        _fed.add(path)
    return there and path in _fed
