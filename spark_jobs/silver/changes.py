"""The newest change of each key in a range of bronze, with the row's values in silver's types.

The reduction is done on the records' text, before any row is parsed, so that only rows that last are parsed. Ranges with
updates that lack columns or change keys are folded in order instead (ordered_apply.py). Called by the load of a table.
"""

import functools
import operator
from collections.abc import Iterable, Mapping

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.
from pyspark.sql import types as T  # noqa: N812 - PySpark's own idiom.

from spark_jobs.errors import corrupt
from spark_jobs.silver import debezium_forms, types
from spark_jobs.silver.target_schema import COMMIT_TIME, DELETED_AT, NAN, POSITION, SOURCE, TargetSchema

#: The change's kind, next to the row: `d` removes it, anything else is the row as it is now.
OP = "_op"
#: Insert, update, delete and snapshot read.
ROW_CHANGES = ("c", "u", "d", "r")


def of_range(bronze: DataFrame, table: str, within: Column, truncated: Mapping[str, str]) -> DataFrame:
    """Return a table's changes of rows in a range, without those that the given truncates of their source removed."""
    changes = bronze.filter(within & (F.col("table") == table) & F.col("op").isin(*ROW_CHANGES))
    for source, position in truncated.items():
        changes = changes.filter((F.col("source") != source) | (F.col("position") > position))
    return changes


def newest(changes: DataFrame, *, hot: bool) -> DataFrame:
    """Return the newest change of each source and key, by the key's text; `hot` when keys have many changes each."""
    order = Window.partitionBy("source", "key").orderBy(F.desc("position"))
    # By a rank Spark chooses twice: ahead of the shuffle too, which costs a sort and pays where it leaves little to shuffle.
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
        text = F.coalesce(debezium_forms.text(parsed, form), corrupt(target.at_source(name)))
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
