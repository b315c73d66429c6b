"""Truncates, and the rules by which they remove rows of their source, mark them as deleted, or end their versions.

A truncate concerns the rows of its source whose position is lower than its own. Each rule is here once, as an expression of SQL:
loads use it in statements on stored tables, live rows in the query that overlays changes, both in frames. A rule reads the rows'
own columns alone.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from delta import DeltaTable
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.

from spark_jobs.silver.target_schema import COMMIT_TIME, DELETED_AT, POSITION, SOURCE
from spark_jobs.storage import text


@dataclass(frozen=True, kw_only=True, order=True)
class Truncate:
    """A truncate of a table at its source."""

    position: str
    source: str
    #: When it committed, in microseconds since 1970.
    at: int


def first_of_each(cleared: Sequence[Truncate]) -> list[Truncate]:
    """Return each source's first truncate: the one that ended the rows that were there before them all."""
    return list({truncate.source: truncate for truncate in sorted(cleared, reverse=True)}.values())


def last_of_each(cleared: Sequence[Truncate]) -> dict[str, str]:
    """Return the position of each source's last truncate: no row before it is left."""
    return {truncate.source: truncate.position for truncate in sorted(cleared)}


def where_removed(cleared: Sequence[Truncate], row: str = "") -> str:
    """Return the condition that a truncate removed a row; `row` is the prefix of its columns, as `t.`."""
    last = sorted(last_of_each(cleared).items())
    return _any(f"{row}{SOURCE} = {text(source)} AND {row}{POSITION} < {text(position)}" for source, position in last)


def where_ended(cleared: Sequence[Truncate], current: str, began: str, row: str = "") -> str:
    """Return the condition that a truncate ended a row that is `current`, a condition, and began at a position, a column."""
    return _any(
        f"{current} AND {row}{SOURCE} = {text(truncate.source)} AND {row}{began} < {text(truncate.position)}"
        for truncate in first_of_each(cleared)
    )


def ending_position(cleared: Sequence[Truncate], row: str = "") -> str:
    """Return the position at which a row ended, for one that did."""
    return _by_source(row, {truncate.source: text(truncate.position) for truncate in first_of_each(cleared)})


def ending_time(cleared: Sequence[Truncate], row: str = "") -> str:
    """Return the time at which a row ended, for one that did."""
    return _by_source(
        row, {truncate.source: f"timestamp_micros({truncate.at}L)" for truncate in first_of_each(cleared)}
    )


def marks(cleared: Sequence[Truncate], row: str = "") -> dict[str, str]:
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
    table.update(where_ended(cleared, f"{DELETED_AT} IS NULL", POSITION), dict(marks(cleared)))


def to_array(cleared: Sequence[Truncate]) -> Column:
    """Return the truncates in order as one array: an expression for each would overflow the driver where there are thousands."""
    literal = json.dumps([asdict(truncate) for truncate in sorted(cleared)])
    return F.from_json(F.lit(literal), "array<struct<position string, source string, at bigint>>")


def first_after(position: Column, cleared: Sequence[Truncate]) -> Column:
    """Return position and time of the source's first truncate after a position, a column; nulls when there is none."""
    later = F.filter(
        to_array(cleared), lambda truncate: (truncate["source"] == F.col(SOURCE)) & (truncate["position"] > position)
    )
    first = F.get(later, F.lit(0))
    return F.struct(first["position"].alias("position"), F.timestamp_micros(first["at"]).alias("at"))


def mark_deleted(rows: DataFrame, cleared: Sequence[Truncate]) -> DataFrame:
    """Return the rows of a table without a key, those that a truncate followed marked as deleted by it."""
    if not cleared:
        return rows
    with_end = rows.withColumn("_end", first_after(F.col(POSITION), cleared))
    gone = F.col("_end.position").isNotNull()
    values = {DELETED_AT: F.col("_end.at"), COMMIT_TIME: F.col("_end.at"), POSITION: F.col("_end.position")}
    return with_end.withColumns({name: F.when(gone, it).otherwise(F.col(name)) for name, it in values.items()}).drop(
        "_end"
    )
