"""Keys of rows that name a row of another table in a column, `orders.customer_id`: as they are now, were, or are in bronze.

They are erased by their keys, ahead of the row that they name. Called by `headrace lake erase`.
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.

from headrace.configuration.lake import LakeFile
from headrace.errors import ConfigurationError
from headrace.lake.table import find_stored
from spark_jobs.bronze import load as bronze
from spark_jobs.bronze import quarantine
from spark_jobs.errors import explained
from spark_jobs.maintenance import erase
from spark_jobs.maintenance.erase import EraseReport
from spark_jobs.maintenance.erased_rows import ErasedRows, Keys, choose_rows, key_columns, parse_key
from spark_jobs.silver import changes, table_task
from spark_jobs.silver.target_schema import SOURCE
from spark_jobs.state import delta_log, published
from spark_jobs.state.published import Published, Table
from spark_jobs.storage import name as _q

#: Types of which a value may equal one of another of them.
_NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal")


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

    `named` is the table and its keys. Rows of tables that were renamed are found and erased by all their names. Returns a report
    for each name, the named one last, and the paths by which no row names them. Raises as `erase.erase` and `find_keys` do, ahead
    of all that it erases.
    """
    # What names the row goes first: it could not be found once the keys were forgotten.
    state = published.latest(spark, lake, stream)
    chosen, none = list[tuple[str, Keys]](), list[str]()
    if related:
        with explained(f"erase from {named[0]}"):
            target = choose_rows(spark, lake, stream, *named, sources)
        for path in related:
            tables = _find_by_all_names(spark, lake, state, path, target)
            chosen += tables
            none += [] if tables else [path]
    steps, unlike = list[tuple[str, Keys, bool]](), list[str]()
    for table, keys in [*chosen, named]:
        for name, others in _for_other_names(state, table, keys):
            if others is None:
                unlike.append(
                    f"{name}, another name of {table}: its key has other columns; give its own keys, or drop it"
                )
            else:
                steps.append((name, others, True))
        # Of what was found in a table of several names another one may have keys that this one cannot have.
        steps.append((table, keys, keys is not named[1] and bool(state.other_names(table))))
    if len(steps) > 1 and not dry_run:
        for table, keys, is_other in steps:
            erase.check(spark, lake, stream, table, keys, sources, is_other_name=is_other)
    reports = [
        erase.erase(
            spark, lake, stream, table, keys, sources=sources, reason=reason, dry_run=dry_run, is_other_name=is_other
        )
        for table, keys, is_other in steps
    ]
    reports[-1].not_reached.extend(unlike)
    return reports, none


def _find_by_all_names(
    spark: SparkSession, lake: LakeFile, state: Published, path: str, target: ErasedRows
) -> list[tuple[str, Keys]]:
    """Return the rows that a path names, by the name of the table under which they are found; each key once.

    There it goes last, so an erasure that is killed finds it again.
    """
    table, _, column = path.rpartition(".")
    ways = [find_keys(spark, lake, state.stream, path, target)]
    for name in state.other_names(table):
        # Another name may lack the column, or have it in a type of which no value is such a key.
        with suppress(ConfigurationError):
            ways.append(find_keys(spark, lake, state.stream, f"{name}.{column}", target))
    known, chosen = set[tuple[str, ...]](), list[tuple[str, Keys]]()
    for name, by_source in ways:
        columns = key_columns(_entry(state, name))
        new = {s: left for s, keys in by_source.items() if (left := [k for k in keys if (*columns, s, k) not in known])}
        known |= {(*columns, source, key) for source, keys in new.items() for key in keys}
        chosen += [(name, new)] if new else []
    return chosen


def _for_other_names(state: Published, table: str, keys: Keys) -> Iterator[tuple[str, Keys | None]]:
    """Yield the other names of a table with the keys in the order of their columns; None for keys of other columns."""
    for name in state.other_names(table):
        own, others = ([column.casefold() for column in key_columns(_entry(state, each))] for each in (table, name))
        if sorted(own) != sorted(others):
            yield name, None
        elif own == others:
            yield name, keys
        elif isinstance(keys, Mapping):
            yield (
                name,
                {source: [_in_order(key, own, others) for key in of_source] for source, of_source in keys.items()},
            )
        else:
            yield name, [_in_order(key, own, others) for key in keys]


def _in_order(key: str, own: list[str], others: list[str]) -> str:
    """Return a key of several columns, a JSON array, with its values in the order of other columns."""
    values = dict(zip(own, parse_key(key, own), strict=True))
    return json.dumps([values[column] for column in others], ensure_ascii=False)


def _entry(state: Published, name: str) -> Table:
    return state.kept(name) or state.dropped[name].table


def find_keys(
    spark: SparkSession, lake: LakeFile, stream: str, path: str, target: ErasedRows
) -> tuple[str, dict[str, list[str]]]:
    """Return the table of a path, `schema.table.column`, and, by source, the keys of its rows whose column names a row.

    A row names one of its own source, whose key it has as a value that equals it. Rows that an erasure has left in former rows or
    in quarantine as it was killed are found there.

    Raises NeedsOperator for a table that the stream does not have, or without a key; ConfigurationError for no column of it, one
    that cannot equal the key, and where a key of the named table has several columns.
    """
    table, _, column = path.rpartition(".")
    by_source: dict[str, list[str]] = {}
    with explained(f"erase from {table}"):
        which = choose_rows(spark, lake, stream, table, [], target.sources)
        if len(target.key) > 1:
            raise ConfigurationError(
                f"a row of {target.table} is named by {len(target.key)} columns ({', '.join(target.key)}), not by {path} alone",
                hint=f"Erase the rows of {table} by keys of their own.",
            )
        same = target.same([F.col("named")]) & target.of_source(F.col(SOURCE))
        pairs = set[tuple[str, str]]()
        for rows in _places(spark, lake, stream, which, column, target.kinds[0]):
            hits = rows.join(F.broadcast(target.key_rows.alias("k")), same, "left_semi")
            pairs |= {(row[SOURCE], row["key"]) for row in hits.select(SOURCE, "key").distinct().collect()}
    for source, key in sorted(pairs):
        by_source.setdefault(source, []).append(key)
    return table, by_source


def _places(
    spark: SparkSession, lake: LakeFile, stream: str, which: ErasedRows, column: str, kind: str
) -> Iterator[DataFrame]:
    """Yield rows with source, key as it is given to an erasure, and what the column names, of a kind: from all of the lake."""
    own_kind = ""
    tables = (table_task.path(lake, stream, which.table), table_task.history_path(lake, stream, which.table))
    for path in (*tables, *erase.find_former(spark, lake, stream, which.table)):
        if not delta_log.is_table(spark, path):
            continue
        frame = spark.read.format("delta").load(path)
        stored = find_stored(column, frame.columns)
        if {stored, SOURCE, *which.stored} <= set(frame.columns):
            own_kind = own_kind or frame.schema[stored].dataType.simpleString()
            if not _may_equal(own_kind, kind):
                raise ConfigurationError(
                    f"{which.table}: column {column} is {own_kind}, which is never equal to a key that is {kind}",
                    hint="Give the column that names the row.",
                )
            key = _key([F.col(_q(name)).cast("string") for name in which.stored])
            yield frame.select(SOURCE, key.alias("key"), _as_key(F.col(_q(stored)), own_kind, kind).alias("named"))
    if not own_kind:
        raise ConfigurationError(f"{which.table} has no column {column} in the lake", hint="Give SCHEMA.TABLE.COLUMN.")
    records = []
    if delta_log.is_table(spark, path := bronze.table_path(lake, stream)):
        rows = spark.read.format("delta").load(path).filter(F.col("table") == which.table)
        rows = rows.filter(F.col("op").isin(*changes.ROW_CHANGES))
        records.append(rows.select(F.col("source").alias(SOURCE), "key", "value"))
    if delta_log.is_table(spark, path := quarantine.path(lake)):
        rows = spark.read.format("delta").load(path).filter(F.col("stream") == stream)
        key, value = (F.col(name).cast("string").alias(name) for name in ("key", "value"))
        schema, table = (F.get_json_object(value, f"$.source.{name}") for name in ("schema", "table"))
        rows = rows.filter(F.concat(schema, F.lit("."), table) == which.table)
        records.append(rows.select(F.coalesce("source", "named_source").alias(SOURCE), key, value))
    for rows in records:
        parts = which.parsed(F.col("key"))
        # Records of when the table had another key are counted by an erasure as not reached.
        is_whole = reduce(and_, (part.isNotNull() for part in (F.col(SOURCE), *parts)))
        # A row that names another one now may have named this one before.
        structure = f"struct<after: struct<{_q(column)}: string>, before: struct<{_q(column)}: string>>"
        value = F.from_json("value", structure)
        images = F.explode(F.array(value["after"][column], value["before"][column]))
        named = rows.filter(is_whole).select(SOURCE, _key(parts).alias("key"), images.alias("named"))
        yield named.withColumn("named", _as_key(F.col("named").try_cast(own_kind), own_kind, kind))


def _key(parts: Sequence[Column]) -> Column:
    return parts[0] if len(parts) == 1 else F.to_json(F.array(*parts))


def _may_equal(one: str, other: str) -> bool:
    return one == other or "string" in {one, other} or all(each.startswith(_NUMBERS) for each in (one, other))


def _as_key(value: Column, own_kind: str, kind: str) -> Column:
    """Return a value in the kind of a key, null where that is another value: 7.5 names no row 7."""
    cast = value.try_cast(kind)
    return cast if own_kind == "string" else F.when(cast.try_cast(own_kind) == value, cast)
