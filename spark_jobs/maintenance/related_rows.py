"""Keys of rows that name a row of another table in a column, `orders.customer_id`: as they are now, were, or are in bronze.

Called by `headrace lake erase`, which erases these rows by their keys, ahead of the row that they name.
"""

from collections.abc import Collection, Iterator, Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.

from headrace.configuration.lake import LakeFile
from headrace.errors import ConfigurationError
from headrace.lake import column_names
from spark_jobs.bronze import load as bronze
from spark_jobs.errors import explained
from spark_jobs.maintenance.erased_rows import ErasedRows, choose_rows
from spark_jobs.silver import changes, table_task
from spark_jobs.silver.target_schema import SOURCE
from spark_jobs.state import delta_log
from spark_jobs.storage import name as _q


def find_keys(
    spark: SparkSession, lake: LakeFile, stream: str, path: str, values: Sequence[str], sources: Collection[str]
) -> tuple[str, list[str]]:
    """Return the table of a path, `schema.table.column`, and the keys of its rows whose column has one of the values.

    Raises NeedsOperator for a table that the stream does not have, or without a key; ConfigurationError for no column of it.
    """
    table, _, column = path.rpartition(".")
    with explained(f"erase from {table}"):
        which = choose_rows(spark, lake, stream, table, [], sources)
        wanted = F.array(*map(F.lit, values))
        found = set[str]()
        for rows in _places(spark, lake, stream, which, column):
            named = rows.filter(F.array_contains(wanted, F.col("named")) & which.of_source(F.col(SOURCE)))
            found |= {row["key"] for row in named.select("key").distinct().collect()}
    return table, sorted(found)


def _places(spark: SparkSession, lake: LakeFile, stream: str, which: ErasedRows, column: str) -> Iterator[DataFrame]:
    """Yield rows with source, key as it is given to an erasure, and what the column has as text: of silver, history, bronze."""
    known = False
    for path in (table_task.path(lake, stream, which.table), table_task.history_path(lake, stream, which.table)):
        if not delta_log.is_table(spark, path):
            continue
        frame = spark.read.format("delta").load(path)
        stored = column_names.find_stored(column, frame.columns)
        if stored in frame.columns:
            known = True
            parts = [F.col(_q(name)).cast("string") for name in which.stored]
            key = parts[0] if len(parts) == 1 else F.to_json(F.array(*parts))
            yield frame.select(SOURCE, key.alias("key"), F.col(_q(stored)).cast("string").alias("named"))
    if not known:
        raise ConfigurationError(f"{which.table} has no column {column} in the lake", hint="Give SCHEMA.TABLE.COLUMN.")
    path = bronze.table_path(lake, stream)
    if delta_log.is_table(spark, path):
        rows = spark.read.format("delta").load(path).filter(F.col("table") == which.table)
        rows = rows.filter(F.col("op").isin(*changes.ROW_CHANGES) & F.col("key").isNotNull())
        parts = which.parsed(F.col("key"))
        key = parts[0] if len(parts) == 1 else F.to_json(F.array(*parts))
        # A row that names another one now may have named this one before.
        structure = f"struct<after: struct<{_q(column)}: string>, before: struct<{_q(column)}: string>>"
        value = F.from_json("value", structure)
        images = F.array(value["after"][column], value["before"][column])
        yield rows.select(F.col("source").alias(SOURCE), key.alias("key"), F.explode(images).alias("named"))
