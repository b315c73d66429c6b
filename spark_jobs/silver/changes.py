"""The newest change of each key in a range of bronze, with the row's values in silver's types.

The reduction is done on the records' text, before any row is parsed, so that only rows that last are parsed. Ranges with updates
that lack columns or change keys are folded in order instead (ordered_apply.py).

The sources and leading keys that some rows have are a condition by which Delta chooses the files that a table is read from.
Called by the load of a table.
"""

import functools
import operator
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.
from pyspark.sql import types as T  # noqa: N812 - PySpark's own idiom.

from spark_jobs.errors import corrupt
from spark_jobs.silver import schema_versions, types
from spark_jobs.silver.target_schema import COMMIT_TIME, DELETED_AT, NAN, POSITION, SOURCE, TargetSchema
from spark_jobs.storage import name as _q

#: The change's kind, next to the row: `d` removes it, anything else is the row as it is now.
OP = "_op"
#: Insert, update, delete and snapshot read.
ROW_CHANGES = ("c", "u", "d", "r")


def of_range(bronze: DataFrame, table: str, within: Column) -> DataFrame:
    """Return a table's changes of rows in a range."""
    return bronze.filter(within & (F.col("table") == table) & F.col("op").isin(*ROW_CHANGES))


def without_truncated(changes: DataFrame, truncated: Mapping[str, str]) -> DataFrame:
    """Return changes without those that the given truncates of their source removed."""
    for source, position in truncated.items():
        changes = changes.filter((F.col("source") != source) | (F.col("position") > position))
    return changes


def newest(changes: DataFrame, *, hot: bool) -> DataFrame:
    """Return the newest change of each source and key, by the key's text; `hot` when keys have many changes each."""
    order = Window.partitionBy("source", "key").orderBy(F.desc("position"))
    # Spark applies a rank ahead of the shuffle too, which costs a sort and pays where it leaves little to shuffle.
    first = F.row_number().over(order) == 1 if hot else F.lag("position").over(order).isNull()
    return changes.withColumn("_newest", first).filter("_newest").drop("_newest")


def parse(changes: DataFrame, target: TargetSchema) -> DataFrame:
    """Return changes as rows of silver, with the change's kind; fail at a value that is not of its column's type."""
    row = "row"
    frame = changes.withColumn(row, from_json("value", _structure(target), target))
    return frame.select(
        *(_row_value(row, target, name).alias(name) for name in target.columns),
        F.col("source").alias(SOURCE),
        F.when(F.col(f"{row}.{types.CORRUPT}").isNull(), F.col("position")).otherwise(corrupt("row")).alias(POSITION),
        F.col("commit_time").alias(COMMIT_TIME),
        F.col("op").alias(OP),
        *deleted_at(target, F.col("op"), F.col("commit_time")),
    )


def deleted_at(target: TargetSchema, op: Column, commit_time: Column) -> list[Column]:
    """Return the column with the time at which a row was deleted, where the table has one."""
    return [F.when(op == "d", commit_time).alias(DELETED_AT)] if target.soft else []


def column_value(target: TargetSchema, name: str, after: Column) -> Column:
    """Return the value of a column in a parsed new row, in its stored type."""
    if name == NAN:
        return _not_numbers(target, after)
    of_key, known_as = name in target.key, target.at_source(name)
    given = to_ordinary(target, name, after[name])
    unsupported = target.nulls_unsupported and not of_key
    return apply_declaration(
        target, name, types.value(given, target.columns[name], known_as, nan=not of_key, unsupported=unsupported)
    )


def to_ordinary(target: TargetSchema, name: str, parsed: Column) -> Column:
    """Return a column's parsed value as the edge writes it ordinarily; one in a form that it does not fit fails."""
    value = parsed
    for span, form in target.forms.get(target.at_source(name), ()):
        text = F.coalesce(schema_versions.form_text(parsed, form), corrupt(target.at_source(name)))
        value = F.when(span.condition() & parsed.isNotNull(), text).otherwise(value)
    return value


def apply_declaration(target: TargetSchema, name: str, value: Column) -> Column:
    """Return a column's value as the schema in force at the change's position declares it."""
    spans = target.single_precision.get(target.at_source(name), ())
    if not spans or not isinstance(target.columns[name], T.DoubleType):
        return value
    inside = functools.reduce(operator.or_, (span.condition() for span in spans))
    return F.when(inside, types.widened_from_single(value, target.columns[name])).otherwise(value)


def find_unchanged(target: TargetSchema, named: Column) -> Column:
    """Return the columns that a change did not carry, none for null."""
    names = F.coalesce(named, F.array().cast("array<string>"))
    if target.source_names:
        names = F.transform(names, lambda name: _stored_name(target, name))
    if NAN not in target.columns:
        return names
    without = F.arrays_overlap(names, F.array(*map(F.lit, _decimals(target))))
    return F.when(without, F.array_append(names, NAN)).otherwise(names)


def _decimals(target: TargetSchema) -> list[str]:
    return [name for name, kind in target.columns.items() if isinstance(kind, T.DecimalType) and name not in target.key]


def _not_numbers(target: TargetSchema, after: Column) -> Column:
    """Return the names of a row's decimal columns that are NaN; null when none is."""
    names = F.array_compact(F.array(*(F.when(after[name] == types.NOT_A_NUMBER, name) for name in _decimals(target))))
    return F.when(F.size(names) > 0, names).cast(target.columns[NAN])


def _stored_name(target: TargetSchema, name: Column) -> Column:
    """Return silver's name of a column that a record names."""
    stored_names = F.create_map(*(F.lit(text) for pair in target.source_names.items() for text in reversed(pair)))
    return F.coalesce(stored_names[name], name)


def from_json(text: str, structure: T.StructType, target: TargetSchema) -> Column:
    """Return a JSON text's values by silver's names: the source's may be names that SQL does not distinguish."""
    if not target.source_names:
        return F.from_json(text, structure, types.JSON_OPTIONS)
    return F.from_json(text, _at_source(structure, target), types.JSON_OPTIONS).cast(structure)


def _at_source(structure: T.StructType, target: TargetSchema) -> T.StructType:
    """Return a structure with the source's names of columns."""
    kinds = {
        field.name: _at_source(field.dataType, target) if isinstance(field.dataType, T.StructType) else field.dataType
        for field in structure.fields
    }
    return T.StructType([T.StructField(target.at_source(name), kind) for name, kind in kinds.items()])


def read_columns(target: TargetSchema, names: Iterable[str]) -> T.StructType:
    """Return the structure by which some of the columns are parsed."""
    return T.StructType([T.StructField(name, types.read_as(target.columns[name])) for name in names if name != NAN])


def _structure(target: TargetSchema) -> T.StructType:
    """Return the structure of a value: the new row, the old row's key, and where a failure to parse shows."""
    fields = [T.StructField("after", read_columns(target, list(target.columns)))]
    if target.key:
        fields.append(T.StructField("before", read_columns(target, target.key)))
    return T.StructType([*fields, T.StructField(types.CORRUPT, T.StringType())])


def _row_value(row: str, target: TargetSchema, name: str) -> Column:
    if name not in target.key:
        return column_value(target, name, F.col(row)["after"])
    either = F.coalesce(F.col(row)["after"][name], F.col(row)["before"][name])
    return apply_declaration(
        target, name, types.value(to_ordinary(target, name, either), target.columns[name], target.at_source(name))
    )


_USUAL_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_INTEGERS = (T.ShortType, T.IntegerType, T.LongType)
#: Most ranges that keys which are far apart are given.
_RANGES = 64
_ORDERED = (T.ShortType, T.IntegerType, T.LongType, T.DateType, T.DecimalType)


@dataclass(frozen=True)
class KeyRange:
    """What is known of the keys of some rows."""

    rows: int
    sources: list[str]
    #: The leading key column and its type; its least and greatest value as text, None where it is not known.
    lead: str
    kind: T.DataType
    least: str | None
    greatest: str | None
    #: Ranges of the leading key column, apart from each other, that have all of the rows; empty where they are not known.
    ranges: tuple[tuple[int, int], ...] = ()

    def condition(self, alias: str = "") -> Column:
        """Return the condition that a stored row may have one of the keys; `alias` goes ahead of its columns."""
        inside = F.col(f"{alias}{SOURCE}").isin(self.sources)
        lead = F.col(f"{alias}{_q(self.lead)}")
        if (least := _literal(self.least, self.kind)) is not None:
            inside &= lead >= least
        if (greatest := _literal(self.greatest, self.kind)) is not None:
            inside &= lead <= greatest
        if self.ranges:
            inside &= functools.reduce(operator.or_, (lead.between(*bounds) for bounds in self.ranges))
        return inside


def key_range_of(rows: DataFrame, target: TargetSchema, *, apart: bool = False) -> KeyRange:
    """Return the range of rows that have the source and the key columns of a table with a key.

    With `apart` the gaps between them are searched: otherwise new rows and a few old ones would have the range of all.
    """
    lead = target.key[0]
    # As text: Python's dates end at the year 9999, and begin with year 1.
    low, high = (bound(_q(lead)).cast("string") for bound in (F.min, F.max))
    row = rows.agg(F.count(F.lit(1)), F.collect_set(SOURCE), low, high).first()
    assert row is not None
    count, sources, least, greatest = row
    key_range = KeyRange(count, sorted(sources), lead, target.columns[lead], least, greatest)
    if not apart or least is None or greatest is None or not isinstance(key_range.kind, _INTEGERS):
        return key_range
    return replace(key_range, ranges=_ranges(rows, lead, int(least), int(greatest)))


def _ranges(rows: DataFrame, lead: str, least: int, greatest: int) -> tuple[tuple[int, int], ...]:
    """Return the ranges of an integer column that have values, at most _RANGES; none where one range has all."""
    width = (greatest - least) // _RANGES + 1
    if width == 1:
        return ()
    value = F.col(_q(lead)).cast("decimal(20,0)")
    place = F.floor((value - F.lit(Decimal(least))) / F.lit(Decimal(width)))
    places = rows.groupBy(place.alias("_place")).agg(F.min(_q(lead)), F.max(_q(lead))).collect()
    joined: list[tuple[int, int]] = []
    for low, high in sorted((int(row[1]), int(row[2])) for row in places):
        near = joined and low - joined[-1][1] <= width
        joined.append((joined.pop()[0], high) if near else (low, high))
    return tuple(joined) if len(joined) > 1 else ()


def _literal(text: str | None, kind: T.DataType) -> Column | None:
    """Return a bound as a literal, since Delta chooses files by literals alone; None where files are not chosen by it."""
    if text is None or not isinstance(kind, _ORDERED):
        return None
    if isinstance(kind, T.DateType):
        # Spark's conversion of a filter on files overflows at dates such as infinity.
        return F.expr(f"DATE '{text}'") if _USUAL_DATE.fullmatch(text) else None
    return F.lit(Decimal(text) if isinstance(kind, T.DecimalType) else int(text))
