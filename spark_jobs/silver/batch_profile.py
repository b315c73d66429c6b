"""Finding what a range of bronze holds, by source and table, without reading a row's value.

Finds where each source's range ends: at the last change of its last whole transaction; the rest waits for the next load. Where
tables have topics of their own, a transaction counts as whole up to where all topics have been loaded.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.

from headrace.errors import CorruptInput, NeedsOperator
from headrace.schema import TableSchema, copy_mark
from spark_jobs.silver.profiles import BatchProfile, Beyond, Reached, TableProfile
from spark_jobs.silver.schema_versions import SchemaRecord
from spark_jobs.silver.truncates import Truncate
from spark_jobs.state.published import Positions


def profile(
    bronze: DataFrame,
    low: Mapping[str, str],
    upto: Mapping[str, str] | None = None,
    *,
    committed: Mapping[str, str] | None = None,
) -> BatchProfile:
    """Return what there is to apply: up to the given high watermarks, else up to each source's last whole transaction.

    `committed` is the position up to which all of each source is in bronze, where that is not all that is there.
    """
    found, sources, described = by_source_and_table(bronze, low, committed)
    ends = high_watermarks(sources, low) if upto is None else dict(upto)
    seen, waiting = split(bronze, found, low, ends)
    # A schema record may be there ahead of its change.
    beyond = {
        name: Beyond(changes=waiting.get(name, 0), upto=source.final)
        for name, source in sources.items()
        if source.final > ends.get(name, "")
    }
    times = {
        name: source.last_ms
        for name, source in sources.items()
        if source.last == ends.get(name) and source.last_ms is not None
    }
    records = schemas(bronze, low, ends) if described else []
    return BatchProfile(high=ends, seen=seen, committed_ms=times, beyond=beyond, records=records)


def last_before(bronze: DataFrame, table: str, low: Mapping[str, str], ends: list[tuple[str, str]]) -> list[str | None]:
    """Return a table's last position after its source's low watermark and before each end, a source and a position."""
    changes = bronze.filter(within(low) & (F.col("table") == table) & F.col("op").isNotNull())
    found = changes.agg(
        *(
            F.max(F.when((F.col("source") == source) & (F.col("position") < end), F.col("position"))).alias(f"c{i}")
            for i, (source, end) in enumerate(ends)
        )
    ).first()
    assert found is not None
    return list(found)


def nothing(high: Positions) -> BatchProfile:
    """Return an extent without changes."""
    return BatchProfile(high=high, seen=[], committed_ms={}, beyond={}, records=[])


def within(low: Mapping[str, str], high: Mapping[str, str] | None = None) -> Column:
    """Return the condition of a range: each source's positions after its low watermark, up to its high one if given."""
    source, position = F.col("source"), F.col("position")
    wanted = F.lit(False)
    if high is None:
        wanted = ~source.isin(*low) if low else F.lit(True)
        high = dict.fromkeys(low, "")
    for name, cut in sorted(high.items()):
        part = source == name
        if name in low:
            part &= position > low[name]
        if cut:
            part &= position <= cut
        wanted |= part
    return wanted & position.isNotNull()


def by_source_and_table(
    bronze: DataFrame, low: Mapping[str, str], committed: Mapping[str, str] | None
) -> tuple[list[TableProfile], dict[str, Reached], bool]:
    """Return what each source has for each table after its low watermark, how far it goes, and whether schema records are there.

    Raises NeedsOperator for a source in several partitions.
    """
    change = F.col("op").isNotNull()
    key_less = F.col("key").isNull() & F.col("op").isin("u", "d")
    # The mark of a table's copy ends a transaction as a change does.
    whole = (change | _of_tables()) & F.col("last") & (F.lit(True) if committed is None else within({}, committed))

    def of_changes(name: str) -> Column:
        return F.when(change, F.col(name))

    rows = (
        bronze.filter(within(low))
        .groupBy("source", "table")
        .agg(
            F.count("op").alias("changes"),
            F.approx_count_distinct("key").alias("keys"),
            F.count_if(~change & _of_tables()).alias("schemas"),
            F.max(F.when(whole, F.col("position"))).alias("last"),
            F.max_by(F.unix_millis("commit_time"), F.when(whole, F.col("position"))).alias("last_ms"),
            F.min(of_changes("position")).alias("first"),
            F.max(of_changes("position")).alias("final"),
            F.max(F.when(change | _of_tables(), F.col("position"))).alias("needed"),
            F.collect_set(
                F.when(F.col("op") == "t", F.struct("position", F.unix_micros("commit_time").alias("at")))
            ).alias("truncates"),
            F.bool_or(F.col("op") == "d").alias("deletes"),
            F.bool_or(of_changes("partial")).alias("partial"),
            F.bool_or(of_changes("rekeyed")).alias("rekeyed"),
            F.min(F.when(key_less, F.col("position"))).alias("keyless"),
            F.min(of_changes("partition")).alias("lowest"),
            F.max(of_changes("partition")).alias("highest"),
        )
        .collect()
    )
    found = [row for row in rows if row["changes"]]
    several = {row["source"] for row in found if row["lowest"] != row["highest"]}
    if several:
        raise NeedsOperator(
            f"{', '.join(sorted(several))}: the source's records are in several partitions, so their order is not known",
            hint="Let each source own one partition of its stream in the bridge's file.",
        )
    return [_seen(row) for row in found], _sources(rows), any(row["schemas"] for row in rows)


def _sources(rows: list[Row]) -> dict[str, Reached]:
    sources: dict[str, Reached] = {}
    for row in rows:
        if row["needed"]:
            own = Reached(last=row["last"], last_ms=row["last_ms"], final=row["needed"])
            other = sources.get(row["source"], own)
            ended = own if (own.last or "") >= (other.last or "") else other
            sources[row["source"]] = replace(ended, final=max(own.final, other.final))
    return sources


def _seen(row: Row) -> TableProfile:
    fields: dict[str, Any] = {name: row[name] for name in TableProfile.__dataclass_fields__}
    truncates = sorted(Truncate(source=row["source"], **one.asDict()) for one in row["truncates"])
    return TableProfile(**fields | {"truncates": tuple(truncates)})


def high_watermarks(sources: Mapping[str, Reached], low: Mapping[str, str]) -> Positions:
    """Return up to where each source can be shown: its last whole transaction, or where it is already."""
    committed = dict(low)
    for name, source in sources.items():
        if source.last is not None:
            committed[name] = max(source.last, committed.get(name, ""))
    return committed


def split(
    bronze: DataFrame, seen: list[TableProfile], low: Mapping[str, str], upto: Mapping[str, str]
) -> tuple[list[TableProfile], dict[str, int]]:
    """Return the profiles up to the high watermarks, and how many changes of each source wait for their transaction's end."""
    # Logical messages end transactions as changes do, and belong to no table.
    seen = [one for one in seen if one.table]
    over = [one for one in seen if one.final > upto.get(one.source, "")]
    if not over:
        return seen, {}
    beyond = (
        bronze.filter(within(low) & _of_tables() & F.col("op").isNotNull() & ~within({}, upto))
        .groupBy("source", "table")
        .count()
    )
    excess = {(row["source"], row["table"]): int(row["count"]) for row in beyond.collect()}
    waiting: dict[str, int] = {}
    for (source, _), count in excess.items():
        waiting[source] = waiting.get(source, 0) + count
    kept = [replace(one, changes=one.changes - excess.get((one.source, one.table), 0)) for one in seen]
    return [one for one in kept if one.changes], waiting


def _of_tables() -> Column:
    """Return the condition that a record is about a table, as messages and the ends of transactions are not."""
    return F.col("table").isNotNull()


def schemas(bronze: DataFrame, low: Mapping[str, str], upto: Mapping[str, str]) -> list[SchemaRecord]:
    """Return the schema records of a range in position order; raise CorruptInput for one that is none."""
    rows = (
        bronze.filter(within(low, upto) & _of_tables() & F.col("op").isNull() & F.col("value").isNotNull())
        .select("topic", "partition", "offset", "source", "table", "position", "value")
        .collect()
    )
    records = []
    for row in sorted(rows, key=lambda row: row["position"]):
        try:
            schema = TableSchema.parse(row["value"])
        except CorruptInput as error:
            raise CorruptInput(
                f"topic {row['topic']}, partition {row['partition']}, offset {row['offset']}: a record without 'op' that is no "
                "schema record",
                hint="Nothing of this load was published. See what wrote that record.",
            ) from error
        records.append(
            SchemaRecord(
                source=row["source"],
                table=row["table"],
                position=row["position"],
                value=row["value"],
                schema=schema,
                mark=copy_mark(row["value"]),
            )
        )
    return records
