"""Which rows an erasure erases: keys that were given as text, in the forms that silver and bronze's records have them."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import and_, or_
from typing import TypeAlias

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.

from headrace.configuration.lake import LakeFile
from headrace.errors import ConfigurationError, NeedsOperator
from headrace.lake.table import find_stored
from headrace.schema import TableSchema
from spark_jobs.bronze import erasures
from spark_jobs.bronze import load as bronze
from spark_jobs.silver import changes, table_task
from spark_jobs.silver.target_schema import SOURCE
from spark_jobs.state import delta_log, published
from spark_jobs.state.published import Table
from spark_jobs.storage import name as _q

#: Keys at all sources that are meant, or by source.
Keys: TypeAlias = Sequence[str] | Mapping[str, Sequence[str]]


@dataclass(frozen=True, kw_only=True)
class ErasedRows:
    """Which rows are erased."""

    table: str
    #: Key columns by the source's names, and by silver's.
    key: list[str]
    stored: list[str]
    #: Types in silver.
    kinds: list[str]
    #: A row for each key, its columns as text, and the source that it is of, null for each of `sources`.
    key_rows: DataFrame
    sources: tuple[str, ...]

    def of_source(self, name: Column) -> Column:
        """Return the condition that a column names one of the sources; true where none is given."""
        return name.isin(*self.sources) if self.sources else F.lit(True)

    def same(self, columns: Sequence[Column], source: Column | None = None) -> Column:
        """Return the condition that columns are a key of `key_rows`, and, where it is given, that a source is the key's."""
        pairs = zip(columns, self.kinds, range(len(self.key)), strict=True)
        own = F.lit(True) if source is None else F.coalesce(F.col("k.source") == source, F.lit(True))
        return own & reduce(and_, (c.try_cast(k) == F.col(f"k.k{n}").try_cast(k) for c, k, n in pairs))

    def parsed(self, text: Column) -> list[Column]:
        """Return the key columns of a key in JSON, as text."""
        structure = ", ".join(f"{_q(name)} string" for name in self.key)
        return [F.from_json(text, structure)[name] for name in self.key]

    def of_silver(self, alias: str) -> Column:
        """Return the condition that a row of silver, history or former rows, under an alias, is one of these."""
        source = F.col(f"{alias}.{SOURCE}")
        return self.of_source(source) & self.same([F.col(f"{alias}.{_q(n)}") for n in self.stored], source)


def count_keys(keys: Keys) -> int:
    """Return how many keys are given."""
    return sum(map(len, keys.values())) if isinstance(keys, Mapping) else len(keys)


def key_columns(table: Table) -> list[str]:
    """Return the key columns of a table by their names at its sources; none for a table without a key."""
    return next((key for text in table.schemas.values() if (key := TableSchema.parse(text).key)), [])


def choose_rows(
    spark: SparkSession,
    lake: LakeFile,
    stream: str,
    table: str,
    keys: Keys,
    sources: Collection[str],
    *,
    is_other_name: bool = False,
) -> ErasedRows:
    """Return the rows that keys mean, each its column's text or a JSON array of several.

    Raises NeedsOperator for a table that the stream does not have, or without a key; ConfigurationError for what is no key, but
    where the table `is_other_name` of the one that they were given for: it has no such rows then.
    """
    state = published.latest(spark, lake, stream)
    entry = state.tables.get(table) or (state.dropped[table].table if table in state.dropped else None)
    if entry is None:
        listed = ", ".join(sorted(state.tables)) or "none"
        raise NeedsOperator(f"stream {stream!r} has no table {table}", hint=f"Tables that are published: {listed}.")
    columns = key_columns(entry)
    if not columns:
        raise NeedsOperator(
            f"{table} has no key, and rows are found by their key alone",
            hint="Give the table a key at its source, or drop it from the lake: 'headrace lake drop'.",
        )
    kinds: dict[str, str] = {}
    if entry.version is not None and delta_log.is_table(spark, path := table_task.path(lake, stream, table)):
        frame = spark.read.format("delta").load(path)
        kinds = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
    stored = [find_stored(name, kinds) for name in columns]
    names, by_source = [f"k{n}" for n in range(len(columns))], keys if isinstance(keys, Mapping) else {None: keys}
    rows = [
        {"source": source} | dict(zip(names, parse_key(key, columns), strict=True))
        for source, own in by_source.items()
        for key in own
    ]
    structure = ", ".join(f"{name}: string" for name in ("source", *names))
    key_rows = spark.range(1).select(F.inline(F.from_json(F.lit(json.dumps(rows)), f"array<struct<{structure}>>")))
    which = ErasedRows(
        table=table,
        key=columns,
        stored=stored,
        kinds=[kinds.get(name, "string") for name in stored],
        key_rows=key_rows,
        sources=tuple(keys if isinstance(keys, Mapping) else sources),
    )
    is_wrong = reduce(or_, (F.col(f"k{n}").try_cast(k).isNull() for n, k in enumerate(which.kinds)))
    if is_other_name:
        return replace(which, key_rows=key_rows.filter(~is_wrong))
    wrong = key_rows.filter(is_wrong)
    if number := wrong.count():
        raise ConfigurationError(
            f"{number} of the keys given are none of {table}: its key is {', '.join(columns)} ({', '.join(which.kinds)})",
            hint="Give each as text, and a key of several columns as a JSON array, in the order of the columns.",
        )
    return which


def parse_key(key: str, columns: list[str]) -> list[str]:
    """Return the values of a key that was given, as text; raise ConfigurationError where they are not of these columns."""
    if len(columns) == 1:
        return [key]
    try:
        values = json.loads(key)
    except ValueError:
        values = None
    if not isinstance(values, list) or len(values) != len(columns):
        raise ConfigurationError(
            f"a key given is no JSON array of {len(columns)} values: {', '.join(columns)}",
            hint='Write each key of several columns as ["a", 1].',
        )
    return [value if isinstance(value, str) else json.dumps(value) for value in values]


def find_in_bronze(
    spark: SparkSession, lake: LakeFile, stream: str, which: ErasedRows
) -> tuple[list[tuple[str, str, str]], list[str], list[str], dict[str, int]]:
    """Return the keys as records have them, each with its source and last position; those of tombstones; and other keys of rows.

    Also counts.
    """
    path = bronze.table_path(lake, stream)
    if not delta_log.is_table(spark, path):
        return [], [], [], {"bronze": 0}
    rows = spark.read.format("delta").load(path)
    own = rows.filter(
        (F.col("table") == which.table) & F.col("key").isNotNull() & which.of_source(F.col("source"))
    ).filter(F.col("op").isin(*changes.ROW_CHANGES))
    key_rows = F.broadcast(which.key_rows.alias("k"))
    hits = own.join(key_rows, which.same(which.parsed(F.col("key")), own["source"]), "left_semi")
    groups = (
        hits.groupBy("source", "key").agg(F.max("position").alias("position"), F.count(F.lit(1)).alias("n")).collect()
    )
    # A change of key has the former one in the old row.
    old = F.coalesce(F.get_json_object("value", "$.before"), F.get_json_object("value", "$.former_key"))
    moved = own.filter(F.col("rekeyed") | F.get_json_object("value", "$.former_key").isNotNull())
    ends = [which.parsed(F.col("key")), which.parsed(old)]
    pairs = moved.select(
        F.col("source").alias("of"),
        *(F.to_json(F.array(*end)).alias(name) for name, end in zip(("new", "old"), ends, strict=True)),
    )
    pairs = pairs.filter("new <> old AND NOT exists(from_json(old, 'array<string>'), one -> one IS NULL)")
    flags = pairs
    for name in ("new", "old"):
        parts = [F.get_json_object(name, f"$[{n}]") for n in range(len(which.key))]
        marked = which.key_rows.alias("k").withColumn(f"{name}_given", F.lit(True))
        flags = flags.join(F.broadcast(marked.alias("k")), which.same(parts, F.col("of")), "left").select(
            *(c for c in flags.columns), f"{name}_given"
        )
    linked = flags.filter("coalesce(new_given, false) <> coalesce(old_given, false)")
    others = linked.select(F.expr("CASE WHEN new_given THEN old ELSE new END AS other")).distinct().collect()
    # Of an erasure that was killed the records may be empty already.
    alone = rows.alias("t").filter(erasures.is_tombstone("t") & F.col("key").isNotNull()).select("key").distinct()
    tombstones = alone.join(key_rows, which.same(which.parsed(F.col("key"))), "left_semi").collect()
    return (
        [(row["source"], row["key"], row["position"]) for row in groups],
        [row["key"] for row in tombstones],
        sorted(row["other"] for row in others),
        {"bronze": sum(int(row["n"]) for row in groups)},
    )


def count_under_other_keys(spark: SparkSession, lake: LakeFile, stream: str, which: ErasedRows) -> int:
    """Return how many changes bronze has whose key is not of the present columns: rows are not found by them."""
    path = bronze.table_path(lake, stream)
    if not delta_log.is_table(spark, path):
        return 0
    rows = spark.read.format("delta").load(path).filter(F.col("table") == which.table)
    rows = rows.filter(which.of_source(F.col("source")) & F.col("op").isin(*changes.ROW_CHANGES))
    return int(rows.filter(reduce(or_, (part.isNull() for part in which.parsed(F.col("key"))))).count())
