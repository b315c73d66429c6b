"""Whether bronze has all that a stream with a topic for each table should have: topics that the lake may not see are not listed.

A source's schema records are in the stream's own topic, each ahead of a change of its table, at the change's position: where
the change is not there, and no topic of the table is known, rows would be missing in silence. Called by the load.
"""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.

from headrace.configuration.bridge import topic_of
from headrace.configuration.lake import LakeFile
from headrace.errors import NeedsOperator
from spark_jobs.bronze import load as bronze
from spark_jobs.silver import batch_profile
from spark_jobs.state import delta_log, offsets
from spark_jobs.state.published import Positions, Published


def check(spark: SparkSession, lake: LakeFile, before: Published, new: DataFrame, reached: Positions) -> None:
    """Raise NeedsOperator for a table whose topic is not read, or a source whose position nobody asked for."""
    stream = before.stream
    # Marks of a copy go ahead of no change, and have a transaction of their own.
    needed = F.col("op").isNotNull() | F.col("transaction_id").isNull()
    rows = new.filter(F.col("source").isNotNull() & needed).groupBy("source", "table")
    within = batch_profile.within(before.positions) & batch_profile.within({}, reached)
    seen = rows.agg(
        F.bool_or(within).alias("new"), F.bool_or(within & F.col("op").isNotNull()).alias("changed")
    ).collect()
    if strangers := sorted({row["source"] for row in seen} - set(lake.stream(stream).sources)):
        raise NeedsOperator(
            f"stream {stream!r} has records of {', '.join(strangers)}, which its 'sources' do not name",
            hint="Add them to the stream's sources in the lake's file: a source is shown up to its committed position.",
        )
    without = {row["table"] for row in seen if row["table"] and row["new"] and not row["changed"]}
    if not without:
        return
    found = delta_log.note(spark, bronze.table_path(lake, stream), offsets.NOTE)
    known = set(offsets.parse(found[1]).topics) if found else set()
    wanted = {name: topic_of(lake.prefix(stream), name) for name in sorted(without)}
    if missing := [f"{topic} (table {name})" for name, topic in wanted.items() if topic not in known]:
        raise NeedsOperator(
            f"stream {stream!r} has changes that are in no topic that the lake sees: {', '.join(missing)}",
            hint="Let the lake's user read all topics that begin with the stream's prefix, and compare 'prefix' in the lake's "
            "file with the bridge's. Then replay bronze: 'headrace lake replay STREAM --layer bronze'.",
        )
