"""A table's history: every version that a row ever had, with the times at its source between which it was so (SCD type 2).

A version is named by its source, its key and the position that it began at, so writing it again changes nothing: any replay is
harmless. It has the table's columns, and `_source`, `__START_AT` and `__END_AT` (commit times at the source; null while it
is current), `_start_position` and `_end_position` (exact, where one transaction changed a row twice). The vocabulary is that of
AUTO CDC. Called for a table at each load, after its current rows.
"""

from collections.abc import Sequence

from delta import DeltaTable
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.

from headrace.configuration.lake import LakeFile
from spark_jobs.silver import merge as write
from spark_jobs.silver import ordered_apply, truncates
from spark_jobs.silver.changes import OP
from spark_jobs.silver.commit import NOTE_SETTING
from spark_jobs.silver.target_schema import COMMIT_TIME, POSITION, SOURCE, TargetSchema
from spark_jobs.silver.timeline_values import KEY, SEED
from spark_jobs.silver.truncates import Truncate
from spark_jobs.state import log_files, published
from spark_jobs.storage import name as _q

NOTE = "history"
START, END, FROM, UPTO = "__START_AT", "__END_AT", "_start_position", "_end_position"
_VERSION, _BEGINS = "_version", "_begins"


def path(lake: LakeFile, stream: str, table: str) -> str:
    """Return the path of a table's history."""
    return f"{lake.root}/history/{stream}/{published.folder(table)}"


def versions(
    timeline: DataFrame,
    target: TargetSchema,
    current: DataFrame | None,
    tracked: Sequence[str],
    cleared: list[Truncate],
) -> DataFrame:
    """Return the versions that a range of changes begins, goes on with or ends.

    `current` holds the history's rows that have not ended; those of keys that the range touches are among the versions.
    """
    events = timeline.filter(~F.col(SEED)).select(*_event_columns(target), F.lit(None).cast("string").alias(FROM))
    if current is not None:
        events = events.unionByName(_open(current, events, target))
    of_key = Window.partitionBy(SOURCE, KEY).orderBy(POSITION)
    here = F.struct(*(F.col(_q(name)) for name in tracked), (F.col(OP) == "d").alias(OP))
    previous = F.lag(here).over(of_key)
    events = events.withColumn("_previous", F.lag(POSITION).over(of_key))
    cut = truncates.first_after(F.col("_previous"), cleared)["position"] < F.col(POSITION)
    begins = previous.isNull() | ~here.eqNullSafe(previous) | F.coalesce(cut, F.lit(False))
    numbered = events.withColumn(_BEGINS, begins.cast("int")).withColumn(_VERSION, F.sum(_BEGINS).over(of_key))
    of_version = Window.partitionBy(SOURCE, KEY, _VERSION)
    first = of_version.orderBy(POSITION).rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    last = numbered.withColumns(
        {
            FROM: F.first(F.coalesce(FROM, POSITION)).over(first),
            START: F.first(COMMIT_TIME).over(first),
            "_rank": F.row_number().over(of_version.orderBy(F.desc(POSITION))),
        }
    ).filter(F.col("_rank") == 1)
    return _ended(last, cleared).select(
        *(F.col(f"{KEY}.{_q(n)}").alias(n) if n in target.key else F.col(_q(n)) for n in target.columns),
        *(SOURCE, START, END, FROM, UPTO),
    )


def _event_columns(target: TargetSchema) -> list[str]:
    own = [_q(name) for name in target.columns if name not in target.key]
    return [*own, SOURCE, KEY, POSITION, COMMIT_TIME, OP]


def _open(current: DataFrame, events: DataFrame, target: TargetSchema) -> DataFrame:
    """Return the rows that have not ended, of keys that the events touch, as the first events of their keys."""
    keyed = current.withColumn(KEY, F.struct(*(F.col(_q(name)).alias(name) for name in target.key)))
    touched = ordered_apply.having(keyed, events.select(SOURCE, KEY).distinct(), target)
    rows = touched.withColumns({POSITION: F.col(FROM), COMMIT_TIME: F.col(START), OP: F.lit("r")})
    return rows.select(*_event_columns(target), FROM)


def _ended(versions: DataFrame, cleared: list[Truncate]) -> DataFrame:
    """Return the versions of rows with their ends: the next change of the key, or a truncate before it."""
    of_key = Window.partitionBy(SOURCE, KEY).orderBy(FROM)
    following = F.struct(F.lead(FROM).over(of_key).alias("position"), F.lead(START).over(of_key).alias("at"))
    truncate = truncates.first_after(F.col(FROM), cleared)
    sooner = truncate["position"].isNotNull() & (
        following["position"].isNull() | (truncate["position"] < following["position"])
    )
    end = F.when(sooner, truncate).otherwise(following)
    return (
        versions.withColumn("_end", end)
        .filter(F.col(OP) != "d")
        .withColumns({END: F.col("_end.at"), UPTO: F.col("_end.position")})
    )


def merge(
    spark: SparkSession, rows: DataFrame, place: str, target: TargetSchema, note: str, cleared: list[Truncate]
) -> None:
    """Write versions: those that are there get their new values and ends; a truncate ends what its source had.

    One commit, since versions are made from those that were open before it. The session is this table's own: the note is a
    setting of the session.
    """
    table = DeltaTable.forPath(spark, place)
    same = write.same_row(rows, target, size=log_files.size(spark, place)) & (F.col(f"t.{FROM}") == F.col(f"s.{FROM}"))
    values = write.quote({name: F.col(f"s.{_q(name)}") for name in rows.columns})
    plan = table.alias("t").merge(rows.alias("s"), same)
    plan = plan.whenMatchedUpdate(set=values).whenNotMatchedInsert(values=values)
    if cleared:
        # Versions of keys that the range touches have their ends already.
        ended = truncates.where_ended(cleared, f"t.{UPTO} IS NULL", FROM, row="t.")
        ends = {END: truncates.ending_time(cleared, "t."), UPTO: truncates.ending_position(cleared, "t.")}
        plan = plan.whenNotMatchedBySourceUpdate(ended, dict(ends))
    spark.conf.set(NOTE_SETTING, note)
    plan.execute()
