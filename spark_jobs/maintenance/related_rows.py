"""Keys of rows that name a row of another table in a column, `orders.customer_id`: as they are now, were, or are in bronze.

They are erased by their keys, ahead of the row that they name. Called by `headrace lake erase`.
"""

from collections.abc import Collection, Iterator, Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.

from headrace.configuration.lake import LakeFile
from headrace.errors import ConfigurationError
from headrace.lake import column_names
from spark_jobs.bronze import load as bronze
from spark_jobs.errors import explained
from spark_jobs.maintenance import erase
from spark_jobs.maintenance.erase import EraseReport
from spark_jobs.maintenance.erased_rows import ErasedRows, Keys, choose_rows
from spark_jobs.silver import changes, table_task
from spark_jobs.silver.target_schema import SOURCE
from spark_jobs.state import delta_log
from spark_jobs.storage import name as _q


def erase_all(
    spark: SparkSession,
    lake: LakeFile,
    stream: str,
    named: tuple[str, Sequence[str]],
    related: Sequence[str],
    *,
    sources: Collection[str],
    reason: str,
    dry_run: bool,
) -> tuple[list[EraseReport], list[str]]:
    """Erase rows of a table, and ahead of them those of related tables that name them, each path `schema.table.column`.

    `named` is the table and its keys. Returns a report for each table, the named one last, and the paths by which no row names
    them. Raises as `erase.erase` and `find_keys` do, ahead of all that it erases.
    """
    # What names the row goes first: it could not be found once the keys were forgotten.
    ways = [find_keys(spark, lake, stream, path, named, sources) for path in related]
    steps: list[tuple[str, Keys]] = [*((table, by_source) for table, by_source in ways if by_source), named]
    if len(steps) > 1 and not dry_run:
        for table, keys in steps:
            erase.check(spark, lake, stream, table, keys, sources)
    reports = [
        erase.erase(spark, lake, stream, table, keys, sources=sources, reason=reason, dry_run=dry_run)
        for table, keys in steps
    ]
    return reports, [path for path, (_, by_source) in zip(related, ways, strict=True) if not by_source]


def find_keys(
    spark: SparkSession,
    lake: LakeFile,
    stream: str,
    path: str,
    named: tuple[str, Sequence[str]],
    sources: Collection[str],
) -> tuple[str, dict[str, list[str]]]:
    """Return the table of a path, `schema.table.column`, and, by source, the keys of its rows whose column names a row.

    `named` is the table of the rows that are named and their keys. A row names one of its own source, whose key it has as a
    value of the key's type.

    Raises NeedsOperator for a table that the stream does not have, or without a key; ConfigurationError for no column of it, and
    where a key of the named table has several columns.
    """
    table, _, column = path.rpartition(".")
    by_source: dict[str, list[str]] = {}
    with explained(f"erase from {table}"):
        which = choose_rows(spark, lake, stream, table, [], sources)
        target = choose_rows(spark, lake, stream, *named, sources)
        if len(target.key) > 1:
            raise ConfigurationError(
                f"a row of {target.table} is named by {len(target.key)} columns ({', '.join(target.key)}), not by {path} alone",
                hint=f"Erase the rows of {table} by keys of their own.",
            )
        same = target.same([F.col("named")]) & target.of_source(F.col(SOURCE))
        pairs = set[tuple[str, str]]()
        for rows in _places(spark, lake, stream, which, column):
            hits = rows.join(F.broadcast(target.key_rows.alias("k")), same, "left_semi")
            pairs |= {(row[SOURCE], row["key"]) for row in hits.select(SOURCE, "key").distinct().collect()}
    for source, key in sorted(pairs):
        by_source.setdefault(source, []).append(key)
    return table, by_source


def _places(spark: SparkSession, lake: LakeFile, stream: str, which: ErasedRows, column: str) -> Iterator[DataFrame]:
    """Yield rows with source, key as it is given to an erasure, and what the column names: of silver, history, bronze."""
    is_known = False
    for path in (table_task.path(lake, stream, which.table), table_task.history_path(lake, stream, which.table)):
        if not delta_log.is_table(spark, path):
            continue
        frame = spark.read.format("delta").load(path)
        stored = column_names.find_stored(column, frame.columns)
        if {stored, *which.stored} <= set(frame.columns):
            is_known = True
            parts = [F.col(_q(name)).cast("string") for name in which.stored]
            key = parts[0] if len(parts) == 1 else F.to_json(F.array(*parts))
            yield frame.select(SOURCE, key.alias("key"), F.col(_q(stored)).alias("named"))
    if not is_known:
        raise ConfigurationError(f"{which.table} has no column {column} in the lake", hint="Give SCHEMA.TABLE.COLUMN.")
    path = bronze.table_path(lake, stream)
    if delta_log.is_table(spark, path):
        rows = spark.read.format("delta").load(path).filter(F.col("table") == which.table)
        rows = rows.filter(F.col("op").isin(*changes.ROW_CHANGES) & F.col("key").isNotNull())
        parts = which.parsed(F.col("key"))
        # Records of when the table had another key are counted by an erasure as not reached.
        for part in parts:
            rows = rows.filter(part.isNotNull())
        key = parts[0] if len(parts) == 1 else F.to_json(F.array(*parts))
        # A row that names another one now may have named this one before.
        structure = f"struct<after: struct<{_q(column)}: string>, before: struct<{_q(column)}: string>>"
        value = F.from_json("value", structure)
        images = F.array(value["after"][column], value["before"][column])
        yield rows.select(F.col("source").alias(SOURCE), key.alias("key"), F.explode(images).alias("named"))
