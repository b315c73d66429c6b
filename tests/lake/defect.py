"""Rows of silver that are wrong: changed in a commit that carries a note of a load's, as a defect of a load would leave them.

What anybody else commits stops the table before it is published.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from spark_jobs.silver.commit import NOTE_SETTING
from spark_jobs.state import delta_log


@contextmanager
def as_a_load(spark: SparkSession) -> Iterator[None]:
    """Let the session's commits carry such a note."""
    spark.conf.set(NOTE_SETTING, delta_log.write("columns", attempt="a defect"))
    try:
        yield
    finally:
        spark.conf.unset(NOTE_SETTING)
