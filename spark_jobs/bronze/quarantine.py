"""Records that bronze does not take, as they came: no records of ours, or of another source than their partition's.

The stream goes on without them; their source is suspect. Each record is kept once, by its place in Kafka, and ahead of the commit
that passes over it. Called by what commits to bronze.
"""

import logging

from delta import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.

from headrace.configuration.lake import LakeFile
from spark_jobs.state import delta_log

PLACE = ("stream", "topic", "partition", "offset")

_log = logging.getLogger(__name__)


def path(lake: LakeFile) -> str:
    """Return the path of the table, of all streams."""
    return f"{lake.root}/quarantine"


def keep(spark: SparkSession, lake: LakeFile, stream: str, records: DataFrame) -> dict[str, int]:
    """Keep records (envelope.divided) that are not kept yet; return how many there are by the source of their partition."""
    held = records.withColumns({"stream": F.lit(stream), "quarantined_at": F.current_timestamp()}).persist()
    try:
        found = held.groupBy("source", "reason").agg(F.count(F.lit(1)), F.min("offset"), F.first("topic")).collect()
        if not found:
            return {}
        if delta_log.is_table(spark, path(lake)):
            table = DeltaTable.forPath(spark, path(lake)).alias("t")
            same = " AND ".join(f"t.`{name}` = s.`{name}`" for name in PLACE)
            table.merge(held.alias("s"), same).whenNotMatchedInsertAll().execute()
        else:
            held.coalesce(1).write.format("delta").save(path(lake))
    finally:
        held.unpersist()
    counts: dict[str, int] = {}
    for source, reason, count, offset, topic in found:
        name = source or "unknown source"
        counts[name] = counts.get(name, 0) + count
        _log.warning(
            "stream %s: %d record(s) in the partition of %s are quarantined (%s; the first in topic %s at offset %d)",
            *(stream, count, name, reason, topic, offset),
        )
    return counts
