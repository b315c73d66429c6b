"""A Delta table as its log describes it now: version, properties, size, files, numbers of transactions.

Asked of Delta's own snapshot, through py4j: no Spark job runs, but for the files that are not clustered. Called by delta_log.py,
and by what chooses how a table is written and maintained.
"""

from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.


def version(spark: SparkSession, path: str) -> int:
    """Return the newest version of the table."""
    return int(_snapshot(spark, path).version())


def properties(spark: SparkSession, path: str) -> dict[str, str]:
    """Return the properties of the table."""
    # Of the snapshot itself: Delta's description of a table is a query.
    found = _snapshot(spark, path).metadata().configuration().iterator()
    pairs: dict[str, str] = {}
    while found.hasNext():
        one = found.next()
        pairs[str(one._1())] = str(one._2())  # noqa: SLF001 - a pair's parts in Scala.
    return pairs


def size(spark: SparkSession, path: str) -> int:
    """Return the bytes of the table's files."""
    return int(_snapshot(spark, path).sizeInBytes())


def unclustered(spark: SparkSession, path: str) -> int:
    """Return the bytes of the table's files that Delta has not clustered."""
    files = DataFrame(_snapshot(spark, path).allFiles().toDF(), spark)
    found = files.filter("clusteringProvider IS NULL").agg(F.sum("size")).first()
    return int(found[0] or 0) if found is not None else 0


def transaction(spark: SparkSession, path: str, application: str) -> int | None:
    """Return the newest number that an application's transactions have in a table, None when it has none."""
    found = _snapshot(spark, path).transactions().get(application)
    return int(found.get()) if found.isDefined() else None


def _snapshot(spark: SparkSession, path: str) -> Any:
    """Return Delta's snapshot of a table as it is now; Delta lists the log from the last checkpoint on."""
    log = spark._jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, path)  # noqa: SLF001 - PySpark offers no other way.
    return log.update(*(getattr(log, f"update$default${place}")() for place in (1, 2, 3)))
