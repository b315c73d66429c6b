"""Changes of a table without a key: its rows are a bag, in which equal rows are there as often as at the source.

A change puts a row, takes a row, or takes one and puts another; which of equal rows is taken does not matter, so rows and takes
are only counted. That holds in any order: rows of a copy come behind changes that were made since it began, and what a copy does
not have is ahead of the truncate with which it begins. A stored row is identified by the position of the change that put it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.
from pyspark.sql import types as T  # noqa: N812 - PySpark's own idiom.

from spark_jobs.errors import corrupt
from spark_jobs.silver import changes as plain
from spark_jobs.silver import profiles, types
from spark_jobs.silver.changes import OP
from spark_jobs.silver.ordered_apply import Persist
from spark_jobs.silver.profiles import Missing, Truncate
from spark_jobs.silver.target_schema import COMMIT_TIME, DELETED_AT, POSITION, SOURCE, TAKEN, TargetSchema
from spark_jobs.storage import name as _q

#: Columns of an event: whether it puts its row, the row, what identifies equal ones, and the truncate that ended it.
_PUTS, _ROW, _SAME, _LIFE = "_puts", "_row", "_same", "_life"
#: The number of an event among those of equal rows, and the put and the take that have it.
_NUMBER, _PUT, _TAKE = "_number", "_put", "_take"


@dataclass(frozen=True, kw_only=True)
class Taken:
    """What is known of the stored rows that a range takes."""

    #: Whether there are any.
    any: bool
    #: Rows that are not there, by source.
    missing: tuple[Missing, ...] = ()


NOTHING = Taken(any=False)


def apply_changes(
    changes: DataFrame, target: TargetSchema, silver: DataFrame | None, persist: Persist, cleared: Sequence[Truncate]
) -> tuple[DataFrame, Taken]:
    """Return the rows that changes put, and those that they take: in TAKEN is the position of the stored row, null for one put.

    `silver` is the table as it is, without what truncates removed; where deleted rows stay, `cleared` has the range's truncates.
    """
    paired = persist(_pair(_events(changes, target, cleared)))
    put, take = F.col(_PUT), F.col(_TAKE)
    # What was taken before a truncate was ended by it at the latest.
    takes = persist(
        paired.filter(put.isNull() & F.col(f"{_LIFE}.position").isNull())
        .withColumn(_NUMBER, F.row_number().over(Window.partitionBy(SOURCE, _SAME).orderBy(_NUMBER)))
        .select(SOURCE, _SAME, _NUMBER, _TAKE)
    )
    rows = _rows(paired.filter(put.isNotNull() if target.soft else put.isNotNull() & take.isNull()), target)
    if takes.isEmpty():
        return rows, NOTHING
    if silver is None:
        return rows, Taken(any=False, missing=_find_missing(takes))
    stored = _find_stored(silver, takes, target)
    matches = persist(takes.join(stored, on=[SOURCE, _SAME, _NUMBER], how="left"))
    taken = matches.filter(F.col(TAKEN).isNotNull()).select(
        *(_value(target, name, F.col(_SAME)) for name in target.columns),
        *(SOURCE, F.col(f"{_TAKE}.at").alias(POSITION), F.col(f"{_TAKE}.time").alias(COMMIT_TIME)),
        F.lit("d").alias(OP),
        *plain.deleted_at(target, F.lit("d"), F.col(f"{_TAKE}.time")),
        TAKEN,
    )
    missing = _find_missing(matches.filter(F.col(TAKEN).isNull()))
    return rows.unionByName(taken), Taken(any=not taken.isEmpty(), missing=missing)


def _value(target: TargetSchema, name: str, row: Column) -> Column:
    there = row[name] if name in target.compared else F.lit(None).cast(target.columns[name])
    return there.alias(name)


def _find_missing(takes: DataFrame) -> tuple[Missing, ...]:
    groups = takes.groupBy(SOURCE).agg(F.count(F.lit(1)).alias("rows"), F.min(f"{_TAKE}.at").alias("position"))
    return tuple(Missing(source=row[SOURCE], rows=row["rows"], position=row["position"]) for row in groups.collect())


def _events(changes: DataFrame, target: TargetSchema, cleared: Sequence[Truncate]) -> DataFrame:
    """Return what is put and what is taken, each with its row in silver's types."""
    columns = plain.read_columns(target, list(target.columns))
    structure = T.StructType(
        [*(T.StructField(name, columns) for name in ("before", "after")), T.StructField(types.CORRUPT, T.StringType())]
    )
    frame = changes.withColumn("row", plain.from_json("value", structure, target))

    def event(name: str, *, puts: bool) -> Column:
        row = F.struct(
            *(plain.column_value(target, column, F.col("row")[name]).alias(column) for column in target.columns)
        )
        return F.struct(F.lit(puts).alias(_PUTS), row.alias(_ROW))

    both = F.array_compact(
        F.array(
            F.when(F.col("op") != "d", event("after", puts=True)),
            F.when(F.col("op").isin("u", "d"), event("before", puts=False)),
        )
    )
    position = F.when(F.col(f"row.{types.CORRUPT}").isNull(), F.col("position")).otherwise(corrupt("row"))
    events = frame.select(
        F.col("source").alias(SOURCE),
        position.alias(POSITION),
        F.col("commit_time").alias(COMMIT_TIME),
        F.explode(both).alias("_event"),
    )
    life = profiles.first_truncate_after(F.col(POSITION), cleared) if target.soft and cleared else _forever()
    return events.select(
        *(SOURCE, POSITION, COMMIT_TIME, F.col(f"_event.{_PUTS}").alias(_PUTS), F.col(f"_event.{_ROW}").alias(_ROW)),
        F.struct(*(F.col(f"_event.{_ROW}.{_q(name)}").alias(name) for name in target.compared)).alias(_SAME),
        life.alias(_LIFE),
    )


def _forever() -> Column:
    return F.struct(F.lit(None).cast("string").alias("position"), F.lit(None).cast("timestamp").alias("at"))


def _pair(events: DataFrame) -> DataFrame:
    """Return each put with the take that has its number among those of equal rows, and what is left of both."""
    order = Window.partitionBy(SOURCE, _LIFE, _SAME, _PUTS).orderBy(POSITION)
    event = F.struct(F.col(POSITION).alias("at"), F.col(COMMIT_TIME).alias("time"), F.col(_ROW).alias("row"))
    return (
        events.withColumn(_NUMBER, F.row_number().over(order))
        .groupBy(SOURCE, _LIFE, _SAME, _NUMBER)
        .agg(
            F.first(F.when(F.col(_PUTS), event), ignorenulls=True).alias(_PUT),
            F.first(F.when(~F.col(_PUTS), event), ignorenulls=True).alias(_TAKE),
        )
    )


def _rows(puts: DataFrame, target: TargetSchema) -> DataFrame:
    """Return the rows that were put; where deleted rows stay, those that were taken, or ended by a truncate, are marked."""
    values = [F.col(f"{_PUT}.row.{_q(name)}").alias(name) for name in target.columns]
    at, time = F.col(f"{_PUT}.at"), F.col(f"{_PUT}.time")
    if not target.soft:
        own = (SOURCE, at.alias(POSITION), time.alias(COMMIT_TIME), F.lit("c").alias(OP))
        return puts.select(*values, *own, F.lit(None).cast("string").alias(TAKEN))
    end = F.coalesce(F.col(f"{_TAKE}.at"), F.col(f"{_LIFE}.position"))
    end_time = F.when(F.col(_TAKE).isNotNull(), F.col(f"{_TAKE}.time")).otherwise(F.col(f"{_LIFE}.at"))
    return puts.select(
        *values,
        SOURCE,
        F.coalesce(end, at).alias(POSITION),
        F.when(end.isNull(), time).otherwise(end_time).alias(COMMIT_TIME),
        F.when(end.isNull(), "c").otherwise("d").alias(OP),
        F.when(end.isNotNull(), end_time).alias(DELETED_AT),
        F.lit(None).cast("string").alias(TAKEN),
    )


def _find_stored(silver: DataFrame, takes: DataFrame, target: TargetSchema) -> DataFrame:
    """Return the living stored rows that equal some that are taken, numbered among equal ones, by their positions."""
    living = silver.filter(F.col(DELETED_AT).isNull()) if DELETED_AT in silver.columns else silver
    cells = [
        (F.col(_q(name)) if name in silver.columns else F.lit(None)).cast(target.columns[name]).alias(name)
        for name in target.compared
    ]
    rows = living.select(SOURCE, F.struct(*cells).alias(_SAME), F.col(POSITION).alias(TAKEN))
    equal = rows.join(takes.select(SOURCE, _SAME).distinct(), on=[SOURCE, _SAME], how="left_semi")
    order = Window.partitionBy(SOURCE, _SAME).orderBy(TAKEN)
    return equal.withColumn(_NUMBER, F.row_number().over(order))
