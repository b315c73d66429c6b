"""Folding changes in order, for ranges in which updates lack columns (unchanged TOAST) or change keys.

A row's timeline is what happened at its key, by position. An update that changed the key is in two timelines: at the old
key it removes the row, at the new key it puts it. A column that an update did not carry takes its value from what went before
it: an earlier change of the range, or silver's own row; for an update that changed the key, the old key's timeline. What was
never carried anywhere (the row was there before capture began) is null, and nothing is taken from before a delete. Where deleted
rows stay, a delete has the values that the row had, and a truncate is a delete in every timeline.
"""

import functools
import operator
from collections.abc import Callable, Sequence

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.
from pyspark.sql import types as T  # noqa: N812 - PySpark's own idiom.

from spark_jobs.errors import corrupt
from spark_jobs.silver import changes as plain
from spark_jobs.silver import profiles, types
from spark_jobs.silver.changes import OP
from spark_jobs.silver.profiles import Truncate
from spark_jobs.silver.target_schema import COMMIT_TIME, DELETED_AT, POSITION, SOURCE, TargetSchema
from spark_jobs.storage import name as _q

#: Columns of a timeline's rows: the key, and whether it is silver's own row rather than a change.
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


#: Keys up to which every task that reads stored rows is given them all, so that stored rows are not shuffled.
_FEW_KEYS = 200_000


def latest_rows(
    changes: DataFrame,
    target: TargetSchema,
    silver: DataFrame | None,
    persist: Persist,
    cleared: Sequence[Truncate],
    *,
    partial: bool,
) -> DataFrame:
    """Return the newest state of each key, as `changes.parsed` does.

    `silver` is the table as it is, None when new; `persist` persists a frame that is read more than once; `cleared` has the
    range's truncates, which matter where deleted rows stay.
    """
    timeline = row_versions(changes, target, silver, persist, cleared, partial=partial)
    order = Window.partitionBy(SOURCE, KEY).orderBy(F.desc(POSITION), F.desc(SEED))
    rows = timeline.withColumn("_rank", F.row_number().over(order)).filter((F.col("_rank") == 1) & ~F.col(SEED))
    return rows.select(
        *(F.col(f"{KEY}.{_q(n)}").alias(n) if n in target.key else F.col(_q(n)) for n in target.columns),
        *(SOURCE, POSITION, COMMIT_TIME, OP),
        *plain.deleted_at(target, F.col(OP), F.col(COMMIT_TIME)),
    )


def row_versions(
    changes: DataFrame,
    target: TargetSchema,
    silver: DataFrame | None,
    persist: Persist,
    cleared: Sequence[Truncate] = (),
    *,
    partial: bool,
) -> DataFrame:
    """Return every key's timeline, each change with all of its row's columns; silver's own rows in it are seeds."""
    events = persist(_events(changes, target))
    timeline = _timeline(events)
    if target.soft:
        names = [name for name in target.columns if name not in target.key]
        seeded = _seeded(_truncated(timeline, cleared), target, silver, names)
        return fill(_ended_once(seeded), names, persist, partial=partial)
    if not partial:
        return timeline
    missing = [row[0] for row in events.select(F.explode(UNCHANGED)).distinct().collect()]
    names = [name for name in target.columns if name in missing and name not in target.key]
    return fill(_seeded(timeline, target, silver, names), names, persist, partial=True)


def _events(changes: DataFrame, target: TargetSchema) -> DataFrame:
    """Return the changes parsed, with the key, the old key of an update that changed it, and the columns not carried."""
    keys = plain.read_columns(target, target.key)
    structure = T.StructType(
        [
            T.StructField("after", plain.read_columns(target, list(target.columns))),
            T.StructField("before", keys),
            T.StructField("former_key", keys),
            T.StructField("unchanged", T.ArrayType(T.StringType())),
            T.StructField(types.CORRUPT, T.StringType()),
        ]
    )
    frame = changes.withColumn("row", plain.from_json("value", structure, target))
    frame = frame.withColumn("named", plain.from_json("key", keys, target))
    before = F.col("row.before")
    whole = F.lit(True)
    for name in target.key:
        whole &= before[name].isNotNull()
    key = _key(target, [F.col("named"), F.col("row.after"), before])
    former = F.col("row.former_key")
    # Where an edge writes a change of a key as a delete and a create, both have the position of the change, and the create names
    # the old key: the delete is what an update leaves at it.
    old = F.when((F.col("op") == "u") & whole, _key(target, [before])).when(F.col("op") == "d", key)
    old = old.when((F.col("op") == "c") & former.isNotNull(), _key(target, [former]))
    return frame.select(
        *(_value(target, name).alias(name) for name in target.columns if name not in target.key),
        F.col("source").alias(SOURCE),
        F.when(F.col(f"row.{types.CORRUPT}").isNull(), F.col("position")).otherwise(corrupt("row")).alias(POSITION),
        F.col("commit_time").alias(COMMIT_TIME),
        F.col("op").alias(OP),
        # The record's own key; under a former key, the row's columns.
        key.alias(KEY),
        old.alias(OLD),
        plain.find_unchanged(target, F.col("row.unchanged")).alias(UNCHANGED),
        F.lit(False).alias(SEED),
    ).withColumn(MOVED, F.coalesce(F.col(OLD) != F.col(KEY), F.lit(False)))


def _value(target: TargetSchema, name: str) -> Column:
    # A column that the log does not carry may have a text in its place that is none of its values.
    absent = F.array_contains(F.coalesce("row.unchanged", F.array().cast("array<string>")), target.at_source(name))
    return F.when(~absent, plain.column_value(target, name, F.col("row")["after"]))


def _key(target: TargetSchema, places: list[Column]) -> Column:
    """Return the key from the first place that has each of its columns; fail where none has one."""
    cells = {
        name: plain.apply_declaration(
            target,
            name,
            types.value(
                plain.to_ordinary(target, name, F.coalesce(*(place[name] for place in places))),
                target.columns[name],
                target.at_source(name),
            ),
        )
        for name in target.key
    }
    unknown = {name: corrupt(target.at_source(name)).cast(target.columns[name]) for name in target.key}
    return F.struct(*(F.coalesce(cell, unknown[name]).alias(name) for name, cell in cells.items()))


def _timeline(events: DataFrame) -> DataFrame:
    """Return every key's changes: an update that changed the key is also a removal at the old one.

    A create under a changed key has its removal: the delete ahead of it.
    """
    is_update = F.col(MOVED) & (F.col(OP) == "u")
    removals = events.filter(is_update).withColumns({KEY: F.col(OLD), OP: F.lit("d"), MOVED: F.lit(False)})
    return events.unionByName(removals)


def _truncated(timeline: DataFrame, cleared: Sequence[Truncate]) -> DataFrame:
    """Return the timelines with the truncates of their source in each."""
    if not cleared:
        return timeline
    of_source = F.filter(profiles.truncate_array(cleared), lambda truncate: truncate["source"] == F.col(SOURCE))
    keys = timeline.select(SOURCE, KEY).distinct().withColumn("_truncate", F.explode(of_source))
    added = keys.select(
        *(SOURCE, KEY, F.col("_truncate.position").alias(POSITION)),
        F.timestamp_micros("_truncate.at").alias(COMMIT_TIME),
        *(F.lit("t").alias(OP), F.array().cast("array<string>").alias(UNCHANGED)),
        *(F.lit(False).alias(SEED), F.lit(False).alias(MOVED)),
    )
    return timeline.unionByName(added, allowMissingColumns=True)


def _ended_once(timeline: DataFrame) -> DataFrame:
    """Return the timelines in which truncates are deletes, of rows that lived: what is deleted already stays as it is."""
    previous = F.lag(OP).over(Window.partitionBy(SOURCE, KEY).orderBy(POSITION, SEED))
    again = timeline.withColumn("_again", ends() & (previous.isin("d", "t") | ((F.col(OP) == "t") & previous.isNull())))
    kept = again.filter(F.col(SEED) | ~F.coalesce("_again", F.lit(False))).drop("_again")
    return kept.withColumn(OP, F.when(ends(), "d").otherwise(F.col(OP)))


def _seeded(timeline: DataFrame, target: TargetSchema, silver: DataFrame | None, names: list[str]) -> DataFrame:
    """Return the timelines begun with silver's own rows, for keys where a column was not carried."""
    cells = {f"_cell_{i}": carry_value(name) for i, name in enumerate(names)}
    timeline = timeline.withColumns(cells)
    if silver is None:
        return timeline
    needed = F.size(UNCHANGED) > 0
    keys = timeline.filter(needed | ends() if target.soft else needed).select(SOURCE, KEY)
    # The delete ahead of a create under a changed key names no column that was not carried.
    left = timeline.filter(needed & F.col(MOVED)).select(SOURCE, F.col(OLD).alias(KEY))
    keys = keys.unionByName(left).distinct()
    stored_rows = silver.withColumn(KEY, F.struct(*(_stored(silver, target, name).alias(name) for name in target.key)))
    seeds = having(stored_rows, keys, target).drop(*(_q(name) for name in target.key))
    seeds = seeds.withColumns({f"_cell_{i}": cell(_stored(silver, target, name)) for i, name in enumerate(names)})
    gone = F.col(DELETED_AT).isNotNull() if DELETED_AT in silver.columns else F.lit(False)
    seeds = seeds.withColumns({OP: F.when(gone, "d").otherwise("r"), SEED: F.lit(True), MOVED: F.lit(False)})
    return timeline.unionByName(
        seeds.select(*(c for c in timeline.columns if c in seeds.columns)), allowMissingColumns=True
    )


def having(stored: DataFrame, keys: DataFrame, target: TargetSchema) -> DataFrame:
    """Return the stored rows, which have a column KEY, of some sources and keys; files without such keys are not read."""
    columns = [F.col(f"{KEY}.{_q(name)}").alias(name) for name in target.key]
    bounds = plain.key_range_of(keys.select(SOURCE, *columns), target)
    few = F.broadcast(keys) if bounds.rows <= _FEW_KEYS else keys
    return stored.filter(bounds.condition()).join(few, on=[SOURCE, KEY], how="left_semi")


def _stored(silver: DataFrame, target: TargetSchema, name: str) -> Column:
    """Return a column of silver's own rows, in the type that the range's schemas give it; null where it is new."""
    there = F.col(_q(name)) if name in silver.columns else F.lit(None)
    return there.cast(target.columns[name])
