"""Finding what a range of bronze holds, by source and table, without reading a row's value.

Finds where each source's range ends: at the last change of its last whole transaction; the rest waits for the next load. Where
tables have topics of their own, a transaction counts as whole up to where all topics have been loaded.
"""

import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.

from headrace.errors import CorruptInput
from headrace.schema import COPY_BEGINS, COPY_ENDS, TableSchema, copy_mark
from spark_jobs.silver import source_order
from spark_jobs.silver.profiles import BatchProfile, Beyond, Reached, TableProfile, Truncate
from spark_jobs.silver.schema_versions import SchemaRecord
from spark_jobs.state.published import Positions

#: Sources from which on a range is a table to look them up in: a condition for each is made by thousands of calls of the JVM,
#: and the nested conditions of thousands overflow its stack (X5).
_MANY_SOURCES = 50
#: Schema records from which on repeats are dropped ahead of the driver: each session of an edge announces its tables again (L46).
_MANY_RECORDS = 1_000


def profile(
    bronze: DataFrame,
    low: Mapping[str, str],
    upto: Mapping[str, str] | None = None,
    *,
    committed: Mapping[str, str] | None = None,
    applied: Mapping[str, Mapping[str, str]] | None = None,
    all_read: bool = False,
    held: Collection[str] = (),
) -> BatchProfile:
    """Return what there is to apply: up to the given high watermarks, else up to each source's last whole transaction.

    `committed` is the position up to which all of each source is in bronze, where that is not all that is there. `applied` is
    up to which position each partition of a source was applied. Where `all_read`, rows are there too of partitions that a source
    had before that was noted.

    Of a source whose partitions are not in order, or that is `held`, nothing is shown, unless high watermarks are given.
    """
    groups = _groups(bronze, low, committed, late=applied is not None)
    new = [row for row in groups if row["new"]]
    if all_read:
        applied = source_order.fill_unnoted(applied or {}, groups, low)
    disordered = source_order.find_disordered(bronze, groups, low, applied or {}) if upto is None else set()
    stay = disordered | set(held) if upto is None else set()
    profiles = [_seen(row) for row in _joined(new) if row["changes"]]
    sources, described = _sources(new), sum(row["schemas"] for row in new)
    moving = {name: source for name, source in sources.items() if name not in stay}
    ends = high_watermarks(moving, low) if upto is None else dict(upto)
    seen, waiting = split(bronze, profiles, low, ends)
    # A schema record may be there ahead of its change.
    beyond = {
        name: Beyond(changes=waiting.get(name, 0), upto=source.final)
        for name, source in sources.items()
        if source.final > ends.get(name, "")
    }
    for name in stay:
        # Of some there is nothing but what came too late.
        rest = beyond.get(name, Beyond(changes=0, upto=ends.get(name, "")))
        beyond[name] = replace(rest, problem=source_order.PROBLEM)
    times = {
        name: source.last_ms
        for name, source in sources.items()
        if source.last == ends.get(name) and source.last_ms is not None
    }
    records = schemas(bronze, low, ends, repeated=described > _MANY_RECORDS) if described else []
    partitions = {source: dict(of_source) for source, of_source in (applied or {}).items()} if all_read else {}
    for row in new:
        # A schema record has the position of its change, which may come later.
        if row["final"] and row["source"] not in stay and (end := ends.get(row["source"])):
            of_source = partitions.setdefault(row["source"], {})
            last = min(row["final"], end)
            of_source[str(row["partition"])] = max(last, of_source.get(str(row["partition"]), ""))
    return BatchProfile(high=ends, seen=seen, committed_ms=times, beyond=beyond, records=records, partitions=partitions)


def last_before(bronze: DataFrame, table: str, low: Mapping[str, str], ends: list[tuple[str, str]]) -> list[str | None]:
    """Return a table's last position after its source's low watermark and before each end, a source and a position."""
    changes = bronze.filter(within(low) & (F.col("table") == table) & F.col("op").isNotNull())
    row = changes.agg(
        *(
            F.max(F.when((F.col("source") == source) & (F.col("position") < end), F.col("position"))).alias(f"c{i}")
            for i, (source, end) in enumerate(ends)
        )
    ).first()
    assert row is not None
    return list(row)


def nothing(high: Positions) -> BatchProfile:
    """Return an extent without changes."""
    return BatchProfile(high=high, seen=[], committed_ms={}, beyond={}, records=[])


def within(low: Mapping[str, str], high: Mapping[str, str] | None = None) -> Column:
    """Return the condition of a range: each source's positions after its low watermark, up to its high one if given."""
    source, position = F.col("source"), F.col("position")
    if len(low if high is None else high) > _MANY_SOURCES:
        return _within_many(low, high)
    condition = F.lit(False)
    if high is None:
        condition = ~source.isin(*low) if low else F.lit(True)
        high = dict.fromkeys(low, "")
    for name, cut in sorted(high.items()):
        part = source == name
        if name in low:
            part &= position > low[name]
        if cut:
            part &= position <= cut
        condition |= part
    return condition & position.isNotNull()


def _within_many(low: Mapping[str, str], high: Mapping[str, str] | None) -> Column:
    """Return the same condition by one look at a table of all sources, which Spark takes as one value."""
    source, position = F.col("source"), F.col("position")
    ranges = {name: [low.get(name, ""), cut or None] for name, cut in (high or dict.fromkeys(low, "")).items()}
    # Spark searches a map from its beginning: as many maps as sources, each with those of one checksum.
    maps: list[dict[str, list[str | None]]] = [{} for _ in ranges]
    for name, bounds in ranges.items():
        maps[zlib.crc32(name.encode()) % len(maps)][name] = bounds
    text = msgspec.json.encode(maps).decode()
    listed = F.from_json(F.lit(text), "array<map<string, array<string>>>")
    bounds = listed[(F.crc32(source) % len(maps)).cast("int")][source]
    inside = (position > bounds[0]) & (bounds[1].isNull() | (position <= bounds[1]))
    return F.coalesce(inside, F.lit(high is None) & source.isNotNull()) & position.isNotNull()


def _groups(
    bronze: DataFrame, low: Mapping[str, str], committed: Mapping[str, str] | None, *, late: bool
) -> list[dict[str, Any]]:
    """Return what each source has for each table in each partition after its low watermark, where `late` before it too."""
    change = F.col("op").isNotNull()
    rewrites = F.col("op").isin("u", "d")
    key_less = F.col("key").isNull() & rewrites & F.get_json_object("value", "$.before").isNull()
    # The mark of a table's copy ends a transaction as a change does; a message outside of one is whole by itself.
    alone = (F.col("op") == "m") & F.col("transaction_id").isNull()
    ends = (change | _of_tables()) & (F.col("last") | F.coalesce(alone, F.lit(False)))
    whole = ends & (F.lit(True) if committed is None else within({}, committed))

    def of_changes(name: str) -> Column:
        return F.when(change, F.col(name))

    inside = within(low)
    chosen = bronze.filter(F.col("position").isNotNull()) if late else bronze.filter(inside)
    rows = (
        chosen.groupBy("source", "table", "partition", (inside if late else F.lit(True)).alias("new"))
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
            F.bool_or(rewrites).alias("rewrites"),
            F.min(F.when(key_less, F.col("position"))).alias("keyless"),
        )
        .collect()
    )
    return [row.asDict() for row in rows]


def take_in_order(
    bronze: DataFrame, sources: Collection[str], committed: Mapping[str, str] | None
) -> tuple[Positions, dict[str, dict[str, str]], Positions]:
    """Return of sources, by their positions alone, the last whole transaction, the last record of each partition, and of all."""
    rows = _groups(bronze.filter(F.col("source").isin(*sources)), {}, committed, late=False)
    reached = _sources(rows)
    partitions: dict[str, dict[str, str]] = {}
    for row in rows:
        if row["final"]:
            of_source = partitions.setdefault(row["source"], {})
            of_source[str(row["partition"])] = max(row["final"], of_source.get(str(row["partition"]), ""))
    return high_watermarks(reached, {}), partitions, {name: source.final for name, source in reached.items()}


def _joined(groups: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return what each source has for each table, whatever its partitions."""
    by_table: dict[tuple[str, str], dict[str, Any]] = {}
    for group in groups:
        merged = by_table.setdefault((group["source"], group["table"]), dict(group))
        if merged["partition"] == group["partition"]:
            continue
        for name in ("changes", "keys", "truncates"):
            merged[name] += group[name]
        for name, choose in (("first", min), ("final", max), ("keyless", min)):
            merged[name] = choose((it for it in (merged[name], group[name]) if it is not None), default=None)
        for name in ("deletes", "partial", "rekeyed", "rewrites"):
            merged[name] = merged[name] or group[name]
    return list(by_table.values())


def _sources(rows: Sequence[Mapping[str, Any]]) -> dict[str, Reached]:
    sources: dict[str, Reached] = {}
    for row in rows:
        if row["needed"]:
            own = Reached(last=row["last"], last_ms=row["last_ms"], final=row["needed"])
            other = sources.get(row["source"], own)
            ended = own if (own.last or "") >= (other.last or "") else other
            sources[row["source"]] = replace(ended, final=max(own.final, other.final))
    return sources


def _seen(row: Mapping[str, Any]) -> TableProfile:
    fields: dict[str, Any] = {name: row[name] for name in TableProfile.__dataclass_fields__}
    truncates = sorted(Truncate(source=row["source"], **truncate.asDict()) for truncate in row["truncates"])
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
    seen = [table_profile for table_profile in seen if table_profile.table]
    over = [table_profile for table_profile in seen if table_profile.final > upto.get(table_profile.source, "")]
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
    kept = [
        replace(
            table_profile, changes=table_profile.changes - excess.get((table_profile.source, table_profile.table), 0)
        )
        for table_profile in seen
    ]
    return [table_profile for table_profile in kept if table_profile.changes], waiting


def _of_tables() -> Column:
    """Return the condition that a record is about a table, as messages and the ends of transactions are not."""
    return F.col("table").isNotNull()


def schemas(
    bronze: DataFrame, low: Mapping[str, str], upto: Mapping[str, str], *, repeated: bool = False
) -> list[SchemaRecord]:
    """Return the schema records of a range in position order; one that is none is without a schema.

    Where they are `repeated`, one that describes a table as the record of the same source before it does is left out.
    """
    rows = bronze.filter(within(low, upto) & _of_tables() & F.col("op").isNull() & F.col("value").isNotNull())
    rows = rows.select("topic", "partition", "offset", "source", "table", "position", "value")
    if repeated:
        rows = _without_repeats(rows)
    records = []
    for row in sorted(rows.collect(), key=lambda row: row["position"]):
        try:
            schema = TableSchema.parse(row["value"])
        except CorruptInput:
            schema = None
        records.append(
            SchemaRecord(
                source=row["source"],
                table=row["table"],
                position=row["position"],
                value=row["value"],
                schema=schema,
                place=f"topic {row['topic']}, partition {row['partition']}, offset {row['offset']}",
                mark=copy_mark(row["value"]),
            )
        )
    return records


def _without_repeats(rows: DataFrame) -> DataFrame:
    """Return schema records without those that differ from the one before in place and time alone; marks of copies all stay."""
    deciding = ("tableChanges", "rewritten", "source.schema", "source.table", "source.snapshot")
    content = F.struct(*(F.get_json_object("value", f"$.{name}") for name in deciding))
    before = F.lag(content).over(Window.partitionBy("source", "table").orderBy("position"))
    snapshot = F.get_json_object("value", "$.source.snapshot")
    marked = F.coalesce(snapshot.isin(COPY_BEGINS, COPY_ENDS), F.lit(False))
    return rows.withColumn("_kept", marked | ~content.eqNullSafe(before)).filter("_kept").drop("_kept")
