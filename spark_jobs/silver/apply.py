"""Writing the newest changes of a range into a silver table, in one Delta commit that carries the positions it reaches.

The commit's note is the table's own progress: a load that is done again starts after it, so nothing is applied twice. The
guard by position in the MERGE and the number of the commit (commit.py) hold even where a note is missing or two loads meet.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from delta import DeltaTable
from delta.tables import DeltaMergeBuilder
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, DataFrameWriter, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.
from pyspark.sql import types as T  # noqa: N812 - PySpark's own idiom.

from headrace.errors import NeedsOperator, Retryable
from spark_jobs.silver import quoting, sifting, truncates, types
from spark_jobs.silver.changes import OP
from spark_jobs.silver.commit import NOTE_SETTING
from spark_jobs.silver.shape import COMMIT_TIME, DELETED_AT, POSITION, SOURCE, Shape, retyped
from spark_jobs.silver.truncates import Truncate

#: Lets columns have names that Parquet does not: with spaces, commas, brackets.
_MAPPING = "delta.columnMapping.mode"
_ORDERED = (T.ShortType, T.IntegerType, T.LongType, T.DateType, T.DecimalType)


def create(rows: DataFrame, path: str, note: str, own: Mapping[str, str]) -> None:
    """Make the table with these rows; raise Retryable when it was made meanwhile. Deleted ones are left out unless marked."""
    gone = OP in rows.columns and DELETED_AT not in rows.columns
    kept = (rows.filter(F.col(OP) != "d") if gone else rows).drop(OP)
    writer = _writer(kept, note, own).mode("error")
    try:
        (writer.option(_MAPPING, "name") if _special(kept.columns) else writer).save(path)
    except AnalysisException as error:
        if error.getCondition() != "DELTA_PATH_EXISTS":
            raise
        raise Retryable(f"{path} was made by another load meanwhile", hint="Run this load again.") from error


def replace(rows: DataFrame, path: str, note: str, own: Mapping[str, str]) -> None:
    """Put these rows in the place of all that the table has, and their columns in the place of its own, in one commit."""
    writer = _writer(rows, note, own).mode("overwrite").option("overwriteSchema", "true")
    (writer.option(_MAPPING, "name") if _special(rows.columns) else writer).save(path)


def append(rows: DataFrame, path: str, note: str, own: Mapping[str, str]) -> None:
    """Add rows of a table without a key."""
    _writer(rows.drop(OP), note, own).mode("append").save(path)


def _writer(rows: DataFrame, note: str, own: Mapping[str, str]) -> DataFrameWriter:
    return rows.write.format("delta").option("userMetadata", note).options(**own)


def merge(
    spark: SparkSession, rows: DataFrame, path: str, shape: Shape, note: str, cleared: Sequence[Truncate]
) -> None:
    """Put, replace and remove rows by source and key, and remove, or mark, what a truncate of their source left behind.

    The session is this table's own: the note is a setting of the session.
    """
    spark.conf.set(NOTE_SETTING, note)
    table = DeltaTable.forPath(spark, path)
    same = same_row(rows, shape, pruned=not cleared)
    # A truncate has all rows of the table looked at.
    if cleared or not sifting.pays(table):
        _planned(table, rows, same, shape, cleared).execute()
    else:
        with sifting.by(spark, rows) as chosen:
            _planned(table, chosen, same, shape, cleared).execute()


def _planned(
    table: DeltaTable, rows: DataFrame, same: Column, shape: Shape, cleared: Sequence[Truncate]
) -> DeltaMergeBuilder:
    columns = {name: F.col(f"s.{_q(name)}") for name in rows.columns if name != OP}
    dropped = {name: F.lit(None) for name in table.toDF().columns if name not in columns}
    newer = F.col(f"s.{POSITION}") > F.col(f"t.{POSITION}")
    gone = F.col(f"s.{OP}") == "d"
    plan = table.alias("t").merge(rows.alias("s"), same)
    if shape.key and not shape.soft:
        plan = plan.whenMatchedDelete(gone & newer)
    if shape.key:
        plan = plan.whenMatchedUpdate(newer, set=quoted(columns | dropped))
    plan = plan.whenNotMatchedInsert(F.lit(True) if shape.soft else ~gone, values=quoted(columns))
    if shape.soft:
        for one in truncates.first_of_each(cleared):
            living = F.col(f"t.{DELETED_AT}").isNull() & (F.col(f"t.{POSITION}") < one.position)
            ended = {DELETED_AT: one.time, COMMIT_TIME: one.time, POSITION: F.lit(one.position)}
            plan = plan.whenNotMatchedBySourceUpdate((F.col(f"t.{SOURCE}") == one.source) & living, set=ended)
    elif cleared:
        old = F.lit(False)
        for source, position in sorted(truncates.last_of_each(cleared).items()):
            old |= (F.col(f"t.{SOURCE}") == source) & (F.col(f"t.{POSITION}") < position)
        plan = plan.whenNotMatchedBySourceDelete(old)
    return plan


def same_row(rows: DataFrame, shape: Shape, *, pruned: bool) -> Column:
    """Return the condition that a row is the same, with the bounds of this load's keys, which choose the files to look at."""
    if not shape.key:
        return F.lit(False)
    same = F.col(f"t.{SOURCE}") == F.col(f"s.{SOURCE}")
    for name in shape.key:
        same &= F.col(f"t.{_q(name)}") == F.col(f"s.{_q(name)}")
    if not pruned:
        return same
    lead = shape.key[0]
    bounds = rows.agg(F.collect_set(SOURCE), F.min(_q(lead)), F.max(_q(lead))).first()
    sources, low, high = bounds if bounds is not None else ([], None, None)
    same &= F.col(f"t.{SOURCE}").isin(sorted(sources))
    if isinstance(shape.columns[lead], _ORDERED) and low is not None:
        same &= F.col(f"t.{_q(lead)}").between(F.lit(low), F.lit(high))
    return same


def fit(spark: SparkSession, path: str, shape: Shape) -> Shape:
    """Add columns that are new and widen those that became wider; return the shape with the table's own types.

    Raises NeedsOperator when a column's new type cannot hold its old values, and when deleted rows stand where none shall stay.
    Each step is harmless to repeat.
    """
    table = quoting.table(path)
    fields = {field.name: field.dataType for field in DeltaTable.forPath(spark, path).toDF().schema.fields}
    if DELETED_AT in fields and not shape.soft:
        raise NeedsOperator(
            f'{shape.table}: its deleted rows are in silver, marked, and the lake\'s file says deletes = "hard" now',
            hint="To remove them, run 'headrace lake replay STREAM'; to go on as before, say deletes = \"soft\" again.",
        )
    columns = dict(shape.columns)
    marks: dict[str, T.DataType] = {DELETED_AT: T.TimestampType()} if shape.soft else {}
    new = {name: kind for name, kind in (columns | marks).items() if name not in fields}
    if new:
        if _special(new):
            spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('{_MAPPING}' = 'name')")
        listed = ", ".join(f"{_q(name)} {kind.simpleString()}" for name, kind in new.items())
        spark.sql(f"ALTER TABLE {table} ADD COLUMNS ({listed})")
    for name, kind in shape.columns.items():
        stored = fields.get(name, kind)
        common = types.wider(stored, kind)
        if common is None:
            raise retyped(shape.table, name, stored.simpleString(), kind.simpleString())
        if common != stored:
            spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')")
            spark.sql(f"ALTER TABLE {table} ALTER COLUMN {_q(name)} TYPE {common.simpleString()}")
        columns[name] = common
    return dataclasses.replace(shape, columns=columns)


def quoted(values: dict[str, Column]) -> dict[str, Column]:
    """Return the values by their columns' quoted names, as a MERGE wants them."""
    return {_q(name): value for name, value in values.items()}


def _q(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _special(names: Iterable[str]) -> bool:
    return any(set(name) & set(" ,;{}()\n\t=") for name in names)
