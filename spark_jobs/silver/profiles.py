"""What a range of bronze holds, as the load needs it to choose what is done: by source and table, without any row's value (found
by batch_profile.py); and what its truncates do to rows of their source: remove them, mark them as deleted, or end their versions.

A truncate concerns the rows of its source whose position is lower than its own. Each rule is here once, as an expression of SQL:
loads use it in statements on stored tables, live rows in the query that overlays changes, both in frames. A rule reads the rows'
own columns alone.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property

from delta import DeltaTable
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.

from spark_jobs.silver.schema_versions import SchemaRecord
from spark_jobs.silver.target_schema import COMMIT_TIME, DELETED_AT, POSITION, SOURCE
from spark_jobs.state.published import Positions
from spark_jobs.storage import text


@dataclass(frozen=True, kw_only=True, order=True)
class Truncate:
    """A truncate of a table at its source."""

    position: str
    source: str
    #: When it committed, in microseconds since 1970.
    at: int


def first_truncates(cleared: Sequence[Truncate]) -> list[Truncate]:
    """Return each source's first truncate: the one that ended the rows that were there before them all."""
    return list({truncate.source: truncate for truncate in sorted(cleared, reverse=True)}.values())


def last_truncates(cleared: Sequence[Truncate]) -> dict[str, str]:
    """Return the position of each source's last truncate: no row before it is left."""
    return {truncate.source: truncate.position for truncate in sorted(cleared)}


def where_removed(cleared: Sequence[Truncate], row: str = "") -> str:
    """Return the condition that a truncate removed a row; `row` is the prefix of its columns, as `t.`."""
    last = sorted(last_truncates(cleared).items())
    return _any(f"{row}{SOURCE} = {text(source)} AND {row}{POSITION} < {text(position)}" for source, position in last)


def where_ended(cleared: Sequence[Truncate], current: str, began: str, row: str = "") -> str:
    """Return the condition that a truncate ended a row that is `current`, a condition, and began at a position, a column."""
    return _any(
        f"{current} AND {row}{SOURCE} = {text(truncate.source)} AND {row}{began} < {text(truncate.position)}"
        for truncate in first_truncates(cleared)
    )


def ending_position(cleared: Sequence[Truncate], row: str = "") -> str:
    """Return the position at which a row ended, for one that did."""
    return _by_source(row, {truncate.source: text(truncate.position) for truncate in first_truncates(cleared)})


def ending_time(cleared: Sequence[Truncate], row: str = "") -> str:
    """Return the time at which a row ended, for one that did."""
    return _by_source(
        row, {truncate.source: f"timestamp_micros({truncate.at}L)" for truncate in first_truncates(cleared)}
    )


def truncate_marks(cleared: Sequence[Truncate], row: str = "") -> dict[str, str]:
    """Return the values of the columns that mark a row as deleted by a truncate."""
    time = ending_time(cleared, row)
    return {DELETED_AT: time, COMMIT_TIME: time, POSITION: ending_position(cleared, row)}


def _any(conditions: Iterable[str]) -> str:
    return " OR ".join(f"({condition})" for condition in conditions) or "false"


def _by_source(row: str, values: Mapping[str, str]) -> str:
    return f"CASE {row}{SOURCE} {' '.join(f'WHEN {text(source)} THEN {value}' for source, value in values.items())} END"


def drop_removed(rows: DataFrame, cleared: Sequence[Truncate]) -> DataFrame:
    """Return the rows that no truncate of their source removed."""
    return rows.filter(f"NOT ({where_removed(cleared)})")


def remove_rows(table: DeltaTable, cleared: Sequence[Truncate]) -> None:
    """Remove the rows that a truncate of their source ended."""
    table.delete(where_removed(cleared))


def mark_rows(table: DeltaTable, cleared: Sequence[Truncate]) -> None:
    """Mark the living rows that a truncate of their source ended."""
    table.update(where_ended(cleared, f"{DELETED_AT} IS NULL", POSITION), dict(truncate_marks(cleared)))


def truncate_array(cleared: Sequence[Truncate]) -> Column:
    """Return the truncates in order as one array: an expression for each would overflow the driver where there are thousands."""
    literal = json.dumps([asdict(truncate) for truncate in sorted(cleared)])
    return F.from_json(F.lit(literal), "array<struct<position string, source string, at bigint>>")


def first_truncate_after(position: Column, cleared: Sequence[Truncate]) -> Column:
    """Return position and time of the source's first truncate after a position, a column; nulls when there is none."""
    later = F.filter(
        truncate_array(cleared),
        lambda truncate: (truncate["source"] == F.col(SOURCE)) & (truncate["position"] > position),
    )
    first = F.get(later, F.lit(0))
    return F.struct(first["position"].alias("position"), F.timestamp_micros(first["at"]).alias("at"))


def mark_deleted(rows: DataFrame, cleared: Sequence[Truncate]) -> DataFrame:
    """Return the rows of a table without a key, those that a truncate followed marked as deleted by it."""
    if not cleared:
        return rows
    with_end = rows.withColumn("_end", first_truncate_after(F.col(POSITION), cleared))
    gone = F.col("_end.position").isNotNull()
    values = {DELETED_AT: F.col("_end.at"), COMMIT_TIME: F.col("_end.at"), POSITION: F.col("_end.position")}
    return with_end.withColumns({name: F.when(gone, it).otherwise(F.col(name)) for name, it in values.items()}).drop(
        "_end"
    )


@dataclass(frozen=True, kw_only=True)
class TableProfile:
    """What one source has for one table in a range; flags may count changes beyond the high watermark; positions decide."""

    source: str
    table: str
    #: Changes in the range, and roughly of how many keys.
    changes: int
    keys: int
    #: Position of the first change.
    first: str
    #: Position of the last change.
    final: str
    truncates: tuple[Truncate, ...]
    #: Whether rows are deleted.
    deletes: bool
    #: Whether an update lacks columns that the log did not carry.
    partial: bool
    #: Whether an update may have changed a key.
    rekeyed: bool
    #: Whether rows are updated or deleted.
    rewrites: bool
    #: Position of the first update or delete that has neither a key nor the whole old row; None when there is none.
    keyless: str | None

    @property
    def only_truncates(self) -> bool:
        """Whether no change is of a row."""
        return self.changes <= len(self.truncates)


@dataclass(frozen=True, kw_only=True)
class Missing:
    """Rows of a table without a key that a source took, and that silver does not have."""

    source: str
    rows: int
    #: Position of the first change that took one.
    position: str


@dataclass(frozen=True, kw_only=True)
class Reached:
    """How far a range goes of one source."""

    #: Position of the last record that ends a transaction; None when none does.
    last: str | None
    #: When that one was committed, in milliseconds; None when none does.
    last_ms: int | None
    #: Position of the last record.
    final: str


@dataclass(frozen=True, kw_only=True)
class Beyond:
    """What a source has beyond its high watermark, and the next load needs."""

    #: Changes of tables.
    changes: int
    #: Position of the last record.
    upto: str
    #: Why none of it is shown until somebody acts; None where it waits for the end of a transaction.
    problem: str | None = None


@dataclass(frozen=True, kw_only=True)
class BatchProfile:
    """What bronze holds of a stream after its low watermarks, up to its high watermarks."""

    high: Positions
    #: Profiles by source and table, up to the high watermarks alone.
    seen: list[TableProfile]
    #: When the last change up to a source's high watermark was committed, in milliseconds, of sources that state it.
    committed_ms: dict[str, int]
    #: What is beyond the high watermark of a source, by source.
    beyond: dict[str, Beyond]
    #: In position order.
    records: list[SchemaRecord]
    #: Position of the last record up to the high watermark, by source and partition of its records.
    partitions: dict[str, dict[str, str]] = field(default_factory=dict)

    def tables(self) -> set[str]:
        """Return the tables for which there is something to do: the mark of a copy counts."""
        return {profile.table for profile in self.seen} | {
            record.table for record in self.records if record.mark is not None
        }

    def holding(self, problems: Mapping[str, str]) -> "BatchProfile":
        """Return what is there with why sources that it ends ahead of something go no further."""
        held = {
            source: replace(own, problem=why if own.problem is None else f"{own.problem}. Also, {why}")
            for source, why in problems.items()
            if (own := self.beyond.get(source)) is not None
        }
        return replace(self, beyond=self.beyond | held)

    def without(self, names: Collection[str]) -> "BatchProfile":
        """Return what is there for other tables than some."""
        if not names:
            return self
        seen = [profile for profile in self.seen if profile.table not in names]
        return replace(self, seen=seen, records=[record for record in self.records if record.table not in names])

    def of_table(self, table: str) -> tuple[list[TableProfile], list[SchemaRecord]]:
        """Return what is there for one table, and its schema records."""
        return self._by_table.get(table, ([], []))

    @cached_property
    def _by_table(self) -> dict[str, tuple[list[TableProfile], list[SchemaRecord]]]:
        by_table: dict[str, tuple[list[TableProfile], list[SchemaRecord]]] = {}
        for profile in self.seen:
            by_table.setdefault(profile.table, ([], []))[0].append(profile)
        for record in self.records:
            by_table.setdefault(record.table, ([], []))[1].append(record)
        return by_table
