"""The values of a timeline: a column that an update did not carry takes its value from what went before the update.

That is an earlier change of the range, or silver's own row; for an update that changed the key, the old key's timeline. What was
never carried anywhere (the row was there before capture began) is null, and nothing is taken from before a delete. Called by
ordered_apply.py, which makes the timelines.
"""

import functools
import operator
from collections.abc import Callable

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.

from spark_jobs.silver.changes import OP
from spark_jobs.silver.target_schema import POSITION, SOURCE
from spark_jobs.storage import name as _q

#: Of a timeline's rows: the key, and whether it is silver's own row rather than a change.
KEY, SEED = "_key", "_seed"
#: The key before an update that changed it, the columns that an update did not carry, and whether it changed the key.
OLD, UNCHANGED, MOVED = "_old_key", "_unchanged", "_moved"
#: How many deletes went before a row of a timeline.
_LIFE = "_life"
#: Each round follows twice as many changes of a row's key, so this is more than there are positions.
_MOST_ROUNDS = 64

#: Persists a frame that is read more than once.
Persist = Callable[[DataFrame], DataFrame]


def ends() -> Column:
    """Return the condition that a change ends its row."""
    return F.col(OP).isin("d", "t")


def carry_value(name: str) -> Column:
    """Return what a change has for a column: its value; not known yet, for one that came from another key; or nothing."""
    absent = F.array_contains(UNCHANGED, name)
    value = F.col(_q(name))
    content = F.when(~absent, cell(value)).when(F.col(MOVED), cell(value, of=F.col(POSITION)))
    return F.when(~ends(), content)


def cell(value: Column, of: Column | None = None) -> Column:
    """Return a value; or, with `of`, the value that the row had under its old key before the change at that position."""
    return F.struct(value.alias("value"), (F.lit(None).cast("string") if of is None else of).alias("of"))


def fill(timeline: DataFrame, names: list[str], persist: Persist, *, partial: bool) -> DataFrame:
    """Return the timelines with every column that was not carried taken from what went before it.

    Without `partial` that is deletes alone, and nothing comes from another key.
    """
    cells = [f"_cell_{i}" for i in range(len(names))]
    if not cells:
        return timeline
    earlier = Window.partitionBy(SOURCE, KEY).orderBy(POSITION, SEED).rowsBetween(Window.unboundedPreceding, -1)
    timeline = timeline.withColumn(_LIFE, F.coalesce(F.sum((F.col(OP) == "d").cast("int")).over(earlier), F.lit(0)))
    order = (
        Window.partitionBy(SOURCE, KEY, _LIFE)
        .orderBy(POSITION, SEED)
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    if partial and not timeline.filter(F.col(MOVED) & _unknown(cells)).isEmpty():
        filled = persist(_carried_on(timeline, cells, order))
        removals = filled.filter((F.col(OP) == "d") & F.col(OLD).isNotNull())
        left = _resolved(removals.select(SOURCE, POSITION, *cells), cells)
        joined = timeline.join(
            left.withColumnsRenamed({cell: f"{cell}_left" for cell in cells}), on=[SOURCE, POSITION], how="left"
        )
        taken = {
            # Where the old key had no row, the value is null, and not that of an earlier row of the new key.
            cell: F.when(F.col(f"{cell}.of").isNotNull(), F.coalesce(f"{cell}_left", cell)).otherwise(F.col(cell))
            for cell in cells
        }
        timeline = joined.withColumns(taken).drop(*(f"{cell}_left" for cell in cells))
    filled = _carried_on(timeline, cells, order)
    values = {name: F.col(f"{cell}.value") for name, cell in zip(names, cells, strict=True)}
    return filled.withColumns(values).drop(*cells, _LIFE)


def _unknown(cells: list[str]) -> Column:
    return functools.reduce(operator.or_, (F.col(f"{cell}.of").isNotNull() for cell in cells))


def _carried_on(timeline: DataFrame, cells: list[str], order: WindowSpec) -> DataFrame:
    return timeline.withColumns({cell: F.last(cell, ignorenulls=True).over(order) for cell in cells})


def _resolved(left: DataFrame, cells: list[str]) -> DataFrame:
    """Return what each key left behind when it was changed, with no value that is only "as it was before another change".

    Each round follows twice as many changes of the key as the one before, so the rounds are few however many changes there are.
    """
    for _ in range(_MOST_ROUNDS):
        if left.filter(_unknown(cells)).isEmpty():
            return left
        for cell in cells:
            earlier = left.select(SOURCE, F.col(POSITION).alias("_of"), F.col(cell).alias("_earlier"))
            followed = left.withColumn("_of", F.col(f"{cell}.of")).join(earlier, on=[SOURCE, "_of"], how="left")
            value = F.when(F.col("_of").isNotNull(), F.col("_earlier")).otherwise(F.col(cell))
            left = followed.withColumn(cell, value).drop("_of", "_earlier")
        left = left.localCheckpoint()
    raise AssertionError("changes of keys that refer to each other")
