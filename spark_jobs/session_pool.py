"""Sessions of Spark that loads use again: a load that never ends would make some for each table and cycle permanently.

A session's settings are those of its making but for what a commit sets for itself, which is unset when the session comes back.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

from pyspark.sql import SparkSession

from spark_jobs.session import for_few_rows

#: What commits set in their session: their note, and the transaction by which Delta takes them once.
COMMIT_SETTINGS = (
    "spark.databricks.delta.commitInfo.userMetadata",
    "spark.databricks.delta.write.txnAppId",
    "spark.databricks.delta.write.txnVersion",
)
#: By application, its cores (which settings follow) and whether they suit few rows, those that nobody uses.
_idle: dict[tuple[str, int, bool], list[SparkSession]] = {}
_lock = Lock()


@contextmanager
def borrowed(spark: SparkSession, *, few: bool) -> Iterator[SparkSession]:
    """Give a session that nobody else uses meanwhile, whose plans suit few rows or many."""
    key = (str(spark.sparkContext.applicationId), int(spark.sparkContext.defaultParallelism), few)
    with _lock:
        idle = _idle.setdefault(key, [])
        session = idle.pop() if idle else None
    if session is None:
        session = for_few_rows(spark) if few else spark.newSession()
    try:
        yield session
    finally:
        for name in COMMIT_SETTINGS:
            session.conf.unset(name)
        with _lock:
            idle.append(session)
