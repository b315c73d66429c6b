"""Bronze's note of its offsets written again while nothing comes, long before Delta removes old commits from the log.

Rows alone do not show where a load goes on: a transaction's marker, and what Kafka has removed, are beyond the last of them.
Called by loads that find nothing to do, and by maintenance.
"""

from datetime import UTC, datetime, timedelta

from pyspark.sql import SparkSession

from headrace.configuration.lake import LakeFile
from spark_jobs.bronze.envelope import COLUMNS
from spark_jobs.bronze.sink import Sink, table_path
from spark_jobs.errors import Conflict
from spark_jobs.state import delta_log, offsets

#: Age of a note at which it is written again: Delta keeps bronze's log for three days at least (retention.py).
_OLD = timedelta(days=1)


def is_old(committed: datetime | None) -> bool:
    """Whether a note committed then is written again; of None there is none."""
    return committed is not None and datetime.now(UTC) - committed > _OLD


def renew(spark: SparkSession, lake: LakeFile, stream: str, sink: Sink | None = None) -> None:
    """Write the newest note again if it is old, by a load's `sink` if there is one; raise Conflict when that was overtaken."""
    path = table_path(lake, stream)
    if not delta_log.is_table(spark, path) or not is_old(delta_log.noted_at(spark, path, offsets.NOTE)):
        return
    if sink is not None:
        sink.note(sink.progress)
        return
    held = offsets.of_table(spark, path, stream, COLUMNS)
    try:
        Sink(spark, lake, stream, held).note(held)
    except Conflict:
        # A load came in between, with a note of its own.
        return
