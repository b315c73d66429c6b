"""What has to hold before silver is written: checks of a load, of a table's range, and of the rows that the table has.

Whether all of a stream's topics are read: topics that the lake may not see are not listed. A source's schema records are in the
stream's own topic, each ahead of a change of its table, at the change's position: where the change is not there, and no topic of
the table is known, rows would be missing in silence. Kafka's own prechecks are in kafka/requests.py.
"""

import functools
import operator
from collections.abc import Collection, Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.

from headrace.configuration.bridge import topic_of
from headrace.configuration.lake import LakeFile
from headrace.errors import NeedsOperator
from headrace.schema import TableSchema
from spark_jobs.bronze import load as bronze
from spark_jobs.silver import batch_profile, target_schema, truncates
from spark_jobs.silver.profiles import TableProfile
from spark_jobs.silver.table_task import TableTask, between
from spark_jobs.silver.target_schema import TargetSchema
from spark_jobs.silver.truncates import Truncate
from spark_jobs.silver.types import rekeyed
from spark_jobs.state import offsets
from spark_jobs.state.offsets import Progress
from spark_jobs.state.published import Positions, Published
from spark_jobs.storage import name as _q


def check_topics(spark: SparkSession, lake: LakeFile, before: Published, new: DataFrame, committed: Positions) -> None:
    """Raise NeedsOperator for a table whose topic is not read, or a source whose position is not read."""
    stream = before.stream
    # Marks of a copy go ahead of no change, and have a transaction of their own.
    needed = F.col("op").isNotNull() | F.col("transaction_id").isNull()
    rows = new.filter(F.col("source").isNotNull() & needed).groupBy("source", "table")
    within = batch_profile.within(before.positions) & batch_profile.within({}, committed)
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
    refuse_unread(lake, stream, without, offsets.read(spark, bronze.table_path(lake, stream)))


def refuse_unread(lake: LakeFile, stream: str, without: Collection[str], held: Progress | None) -> None:
    """Raise NeedsOperator for tables without a change whose topics are not read; not where it is unknown which ones are."""
    if held is None:
        return
    topics = {name: topic_of(lake.prefix(stream), name) for name in sorted(without)}
    if missing := [f"{topic} (table {name})" for name, topic in topics.items() if topic not in held.topics]:
        raise NeedsOperator(
            f"stream {stream!r} has changes that are in no topic that the lake sees: {', '.join(missing)}",
            hint="Let the lake's user read all topics that begin with the stream's prefix, and compare 'prefix' in the lake's "
            "file with the bridge's. Then replay bronze: 'headrace lake replay STREAM --layer bronze'.",
        )


def refuse_keyless(target: TargetSchema, ahead: Sequence[TableProfile], low: Positions, task: TableTask) -> None:
    """Raise NeedsOperator for an update or delete of a table without a key that does not have the whole old row."""
    for profile in ahead:
        if not target.key and profile.keyless and between(low, profile.keyless, profile.source, task.high):
            raise NeedsOperator(
                f"{task.table} has no key, and {profile.source} updates or deletes rows of it without their old values (from "
                f"position {profile.keyless} on)",
                hint="So silver cannot know which row is meant; other tables go on. Let the source log whole rows (alter table … "
                "replica identity full; binlog_row_image = FULL) and copy the table again, or give it a primary key of columns "
                "that it has, in every source: once a change has followed, the load goes on where the table is.",
            )


def refuse_rows_without_key(
    spark: SparkSession, task: TableTask, target: TargetSchema, cleared: Sequence[Truncate]
) -> None:
    """Raise Incompatible when the table's key changed, and rows of the table have no value of it: none would be found again."""
    former = {tuple(TableSchema.parse(text).key) for text in task.former_schemas.values()} - {target.key}
    if not former or not target.key:
        return
    stored = truncates.drop_removed(spark.read.format("delta").load(task.path), cleared)
    key = target_schema.as_stored(target, stored.columns).key
    missing = [name for name in key if name not in stored.columns]
    lacking = functools.reduce(
        operator.or_, (F.col(_q(name)).isNull() for name in key if name not in missing), F.lit(bool(missing))
    )
    if not stored.filter(lacking).isEmpty():
        old = " and ".join(map(target_schema.format_key, sorted(former)))
        raise rekeyed(task.table, old, target_schema.format_key(target.key), ", ".join(missing or target.key))
