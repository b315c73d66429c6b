"""Older records of bronze removed, `bronze_keep_days` after Kafka had them: silver and history go on without.

Of each source a beginning of its log is removed as a whole, up to a position that is published ahead of that; never what a table
still needs, nor schema records, nor the last record that is published. That position decides where a table can be built from.
Called by maintenance.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from delta import DeltaTable
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.

from headrace.configuration.lake import LakeFile
from spark_jobs.bronze import increment
from spark_jobs.bronze import load as bronze
from spark_jobs.silver.commit import NOTE_SETTING
from spark_jobs.state import delta_log, publication, published
from spark_jobs.state.published import Positions, Published

#: A row that a vector marks would stay in its file.
_VECTORS = "spark.databricks.delta.delete.deletionVectors.persistent"


def remove(spark: SparkSession, lake: LakeFile, stream: str) -> Positions:
    """Remove records that are old enough; return up to which position of each source none are left."""
    path = bronze.table_path(lake, stream)
    if lake.lake.bronze_keep_days is None or not delta_log.is_table(spark, path):
        return {}
    state = published.latest(spark, lake, stream)
    before = datetime.now(UTC) - timedelta(days=lake.lake.bronze_keep_days)
    old = spark.read.format("delta").load(path).filter((F.col("timestamp") < F.lit(before)) & _removable(limits(state)))
    rows = old.groupBy("source").agg(F.max("position").alias("position")).collect()
    cuts = {row["source"]: row["position"] for row in rows}
    if not cuts:
        return {}
    # Ahead of the removal, so that nothing is built of what lacks its beginning.
    removed = state.bronze_removed | {s: max(cut, state.bronze_removed.get(s, "")) for s, cut in cuts.items()}
    publication.append(spark, lake, replace(state, bronze_removed=removed), before=state, maintenance=True)
    session = spark.newSession()
    session.conf.set(_VECTORS, "false")
    session.conf.set(NOTE_SETTING, delta_log.write(increment.REMOVED, stream=stream))
    upto = F.lit(False)
    for source, cut in sorted(cuts.items()):
        upto |= (F.col("source") == source) & (F.col("position") <= cut)
    DeltaTable.forPath(session, path).delete(upto & _changes())
    return cuts


def limits(state: Published) -> Positions:
    """Return the position of each source from which on its records are needed: by a table, or as the last one published."""
    return {
        source: min([position, *(table.positions.get(source, "") for table in state.tables.values())])
        for source, position in state.positions.items()
    }


def _removable(below: Mapping[str, str]) -> Column:
    condition = F.lit(False)
    for source, position in sorted(below.items()):
        condition |= (F.col("source") == source) & (F.col("position") < position)
    return condition & _changes()


def _changes() -> Column:
    """Return the condition that a record is no schema record: those are few, and describe what comes later."""
    return F.col("op").isNotNull() | F.col("table").isNull()
