"""A MERGE into a table that is large compared to its changes: a Bloom filter of the changes chooses the rows that are looked at.

Without it Spark sorts all rows of the table, or brings them to one place. What the filter passes by mistake is sorted out by
the MERGE. Assumes that the changes are held, and the same whenever they are read. Called by merge.py.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.

from spark_jobs.silver.target_schema import POSITION

#: Bytes of a table from which on it pays.
_LARGE = 32 * 1024 * 1024
_BLOOM = "spark.sql.optimizer.runtime.bloomFilter"
_SETTINGS = {
    # Of what can be broadcast, Spark makes no filter.
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    f"{_BLOOM}.enabled": "true",
    f"{_BLOOM}.applicationSideScanSizeThreshold": "1",
    # As it is by default: the changes may be few, the table's rows are many.
    "spark.sql.codegen.factoryMode": "FALLBACK",
}


def pays(size: int) -> bool:
    """Whether a table of so many bytes is large enough."""
    return size >= _LARGE


@contextmanager
def by(spark: SparkSession, rows: DataFrame) -> Iterator[DataFrame]:
    """Have the session make the filter of these rows; give them as Spark wants them for that."""
    # True of all; Spark makes a filter only of what somebody has chosen.
    chosen = rows.filter(F.col(POSITION) > "")
    # And of nothing larger, which the table is.
    size = chosen._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()  # noqa: SLF001 - Spark's own figure is compared.
    settings = _SETTINGS | {f"{_BLOOM}.creationSideThreshold": f"{size}b"}
    before = {name: spark.conf.get(name) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        yield chosen
    finally:
        for name, value in before.items():
            spark.conf.set(name, str(value))
