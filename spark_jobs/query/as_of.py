"""A stream as it was at a time at its sources, by the commit times of transactions there.

Guarantees that each source is shown up to its last transaction before the first one that committed later: exactly its state at
that moment, as far as its own clock goes forward. Begins at the newest published state before it whose files are kept, else at
nothing, and applies bronze's changes from there. The first one that committed later is looked for behind what was published by
then, as long as that was committed earlier at each source. Called by SQL for `--as-of`.
"""

from datetime import UTC, datetime, timedelta

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.

from headrace.configuration.lake import LakeFile
from spark_jobs.bronze import load as bronze
from spark_jobs.query import snapshot
from spark_jobs.query.snapshot import StreamSnapshot
from spark_jobs.silver import batch_profile
from spark_jobs.state import delta_log, published
from spark_jobs.state.published import Positions, Published


def at(spark: SparkSession, lake: LakeFile, stream: str, when: datetime) -> StreamSnapshot | None:
    """Return the stream at a moment at its sources; None when nothing of it had been captured by then."""
    path = bronze.table_path(lake, stream)
    if not delta_log.is_table(spark, path):
        return None
    upto = high_watermarks(spark, lake, stream, when)
    if not upto:
        return None
    kept_since = datetime.now(UTC) - timedelta(days=lake.lake.keep_days)
    base = published.before(spark, lake, stream, upto, kept_since)
    last = published.latest(spark, lake, stream)
    nothing = Published(stream=stream, dropped=last.dropped, bronze_removed=last.bronze_removed)
    return snapshot.moment(spark, lake, base or nothing, upto)


def high_watermarks(spark: SparkSession, lake: LakeFile, stream: str, when: datetime) -> Positions:
    """Return each source's last position that ends a transaction, before any that committed after the moment."""
    reached = bronze.reach(spark, lake, stream)
    every = spark.read.format("delta").load(bronze.table_path(lake, stream)).filter(F.col("op").isNotNull())
    low = _published_by(spark, lake, stream, every, when)
    changes = every.filter(batch_profile.within(low, reached)) if low or reached is not None else every
    later = changes.filter(F.col("commit_time") > F.lit(when)).groupBy("source").agg(F.min("position").alias("later"))
    # By name, since a source that has nothing later has no row there.
    first_later = {row["source"]: row["later"] for row in later.collect()}
    before = F.lit(True)
    for source, position in sorted(first_later.items()):
        before &= (F.col("source") != source) | (F.col("position") < position)
    ends = changes.filter(F.col("last") & before).groupBy("source").agg(F.max("position").alias("cut"))
    return low | {row["source"]: row["cut"] for row in ends.collect()}


def _published_by(spark: SparkSession, lake: LakeFile, stream: str, changes: DataFrame, when: datetime) -> Positions:
    """Return the positions that were published last before a moment; none unless they were committed before it at the sources."""
    if not delta_log.is_table(spark, published.path(lake)):
        return {}
    states = spark.read.format("delta").load(published.path(lake)).filter(F.col("stream") == stream)
    earlier = states.filter(F.col("table").isNull() & (F.col("finished_at") <= F.lit(when)))
    newest = earlier.select(F.max_by("positions", "load").alias("positions")).first()
    positions: Positions = dict(newest["positions"] or {}) if newest else {}
    # By their places, which bronze's files know the first and the last of: few are opened.
    at = F.lit(False)
    for source, position in sorted(positions.items()):
        at |= (F.col("source") == source) & (F.col("position") == position)
    rows = changes.filter(at & (F.col("commit_time") <= F.lit(when))).select("source").distinct().collect()
    return positions if positions.keys() == {row["source"] for row in rows} else {}
