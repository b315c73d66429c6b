"""Large tables clustered by source and key (Delta's liquid clustering), so that a MERGE reads the files that may have its keys.

A table of one copy has every key in every file. Clustering it writes it once more; after that OPTIMIZE clusters what came since,
together with clusters that are not much larger, so rows are written a few times in all, however often maintenance runs. Loads
write files as they come. Columns that cannot be clustered by, and those after them, are left out. Called by maintenance.
"""

import logging

from delta import DeltaTable
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T  # noqa: N812 - PySpark's own idiom.

from headrace.errors import NeedsOperator
from headrace.schema import TableSchema
from spark_jobs import storage
from spark_jobs.silver import target_schema
from spark_jobs.state import log_files
from spark_jobs.state.published import Table

#: Bytes from which on a table is clustered: a smaller one has few files.
LARGE = 1 << 30
#: Delta's bound.
_MOST_COLUMNS = 4
#: Bytes of a cluster that is written no more, and how much larger than what came since one may be that is written again.
_CLUSTER, _GROWTH = 2 << 30, 4
_SETTING = "spark.databricks.delta.optimize.clustering.mergeStrategy.minCubeSize"
_ORDERED = (T.NumericType, T.DateType, T.TimestampType, T.TimestampNTZType, T.StringType)

_log = logging.getLogger(__name__)


def prepare(session: SparkSession, path: str, known: Table) -> None:
    """Let the session's next OPTIMIZE of a table cluster it, where it is large; a smaller one is compacted."""
    clustered = columns(session, path)
    if not clustered and log_files.size(session, path) < LARGE:
        return
    wanted = _wanted(session, path, known)
    if wanted and wanted != clustered:
        names = ", ".join(map(storage.name, wanted))
        try:
            session.sql(f"ALTER TABLE {storage.table(path)} CLUSTER BY ({names})")
        except AnalysisException as error:
            _log.warning("%s is not clustered by %s: %s", path, names, error.getCondition())
    came = log_files.unclustered(session, path)
    session.conf.set(f"{_SETTING}.threshold", str(min(_CLUSTER, _GROWTH * came)))
    session.conf.set(f"{_SETTING}.targetCubeSize", str(_CLUSTER))


def release(rows: DataFrame, path: str) -> None:
    """Cluster a table no more by columns that the rows do not have which are to replace its own."""
    spark = rows.sparkSession
    if DeltaTable.isDeltaTable(spark, path) and not set(columns(spark, path)) <= set(rows.columns):
        spark.sql(f"ALTER TABLE {storage.table(path)} CLUSTER BY NONE")


def columns(spark: SparkSession, path: str) -> list[str]:
    """Return the columns that a table is clustered by, none where it is not."""
    found = DeltaTable.forPath(spark, path).detail().select("clusteringColumns").first()
    return list(found[0] or []) if found is not None else []


def _wanted(session: SparkSession, path: str, known: Table) -> list[str]:
    try:
        key = target_schema.of(known.table, [TableSchema.parse(text) for text in known.schemas.values()]).key
    except NeedsOperator:
        return []
    kinds = {field.name: field.dataType for field in session.read.format("delta").load(path).schema.fields}
    wanted = [target_schema.SOURCE]
    for name in key[: _MOST_COLUMNS - 1]:
        if not isinstance(kinds.get(name), _ORDERED):
            break
        wanted.append(name)
    return wanted if len(wanted) > 1 else []
