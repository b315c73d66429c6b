"""Records that bronze does not take, as they came: no records of ours, or of another source than their partition's.

The stream goes on without them; their source is suspect. Each record is kept once, by its place in Kafka, and ahead of the commit
that passes over it. Called by what commits to bronze.

Which source a partition of a stream belongs to: the source of its records, whatever they say of themselves.

A source owns the same partitions in each of a stream's topics. In a first load the first record of a partition says whose it is,
and bronze's notes remember it. Of a partition that is new later, and where a record disagrees, the bridges' own offsets decide:
it may have been given to another source (`headrace bridge move`). Called by what reads Kafka into bronze.
"""

import logging

from delta import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.

from headrace import doors
from headrace.configuration.lake import LakeFile
from headrace.errors import CorruptInput, ReplicationError
from spark_jobs.bronze import avro_records
from spark_jobs.bronze.avro_records import Sources
from spark_jobs.kafka import topics
from spark_jobs.kafka.topics import Batch
from spark_jobs.state import delta_log

#: Offsets that are read of a partition to learn whose it is.
_FIRST = 100


def learn(
    spark: SparkSession, lake: LakeFile, stream: str, batch: Batch, sources: Sources
) -> dict[int, tuple[str, ...]]:
    """Return the sources of partitions: those that are known, and of others that a batch has that of the first record.

    Once some are known, it is the one to which bridges gave the partition, and with it another one that its first record names
    if no known partition is that one's: it had this one before.
    """
    unknown: Batch = {}
    left = {p for ranges in batch.values() for p in ranges} - sources.keys()
    owned = {p: owner for p, owner in _owners(lake, stream).items() if p in left} if sources and left else {}
    elsewhere = {name for names in sources.values() for name in names}
    for topic, ranges in sorted(batch.items()):
        if own := {p: (start, min(end, start + _FIRST)) for p, (start, end) in ranges.items() if p in left}:
            unknown[topic] = own
            left -= own.keys()
    if not unknown:
        return dict(sources)
    rows, _ = avro_records.divided(spark, lake, stream, unknown, {})
    first = (
        rows.filter(F.col("source").isNotNull()).groupBy("partition").agg(F.min_by("source", "offset").alias("name"))
    )
    named = {row["partition"]: row["name"] for row in first.collect()}
    fresh: dict[int, tuple[str, ...]] = {p: (name,) for p, name in (named | owned).items()}
    for p in named.keys() & owned.keys():
        if named[p] != owned[p] and named[p] not in elsewhere:
            fresh[p] = (named[p], owned[p])
    return dict(sources) | fresh


def renewed(lake: LakeFile, stream: str, sources: Sources) -> dict[int, str]:
    """Return the sources to which bridges gave partitions since they were known; none where Kafka does not say."""
    owners = _owners(lake, stream)
    return {p: owner for p, owner in owners.items() if p in sources and owner not in sources[p]}


def _owners(lake: LakeFile, stream: str) -> dict[int, str]:
    try:
        return topics.owners(lake, stream)
    except ReplicationError as error:
        _log.warning("stream %s: whose its partitions are now cannot be read: %s", stream, error.message)
        return {}


PLACE = ("stream", "topic", "partition", "offset")

_log = logging.getLogger(__name__)


def path(lake: LakeFile) -> str:
    """Return the path of the table, of all streams."""
    return f"{lake.root}/quarantine"


def keep(spark: SparkSession, lake: LakeFile, stream: str, records: DataFrame) -> dict[str, int]:
    """Keep records (envelope.divided) that are not kept yet; return how many there are by the source of their partition."""
    held = records.withColumns({"stream": F.lit(stream), "quarantined_at": F.current_timestamp()}).persist()
    try:
        groups = held.groupBy("source", "reason").agg(F.count(F.lit(1)), F.min("offset"), F.first("topic")).collect()
        if not groups:
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
    for source, reason, count, offset, topic in groups:
        name = source or "unknown source"
        counts[name] = counts.get(name, 0) + count
        doors.BRONZE.refuse(CorruptInput(reason), name, count)
        _log.warning(
            "stream %s: %d record(s) in the partition of %s are quarantined (%s; the first in topic %s at offset %d)",
            *(stream, count, name, reason, topic, offset),
        )
    return counts
