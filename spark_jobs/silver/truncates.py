"""Truncates: moments at which all rows of a source ended, and what they do to rows that stay behind, marked.

Called where changes are folded, by the merge and by history.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.

from spark_jobs.silver.target_schema import COMMIT_TIME, DELETED_AT, POSITION, SOURCE


@dataclass(frozen=True, kw_only=True, order=True)
class Truncate:
    """A moment at which all rows of a source ended."""

    position: str
    source: str
    #: Microseconds since 1970.
    at: int

    @property
    def time(self) -> Column:
        """Return when it committed."""
        return F.timestamp_micros(F.lit(self.at))


def first_of_each(cleared: Sequence[Truncate]) -> list[Truncate]:
    """Return each source's first truncate: the one that ended the rows that were there before them all."""
    return list({one.source: one for one in sorted(cleared, reverse=True)}.values())


def last_of_each(cleared: Sequence[Truncate]) -> dict[str, str]:
    """Return the position of each source's last truncate: no row before it is left."""
    return {one.source: one.position for one in sorted(cleared)}


def first_after(position: Column, cleared: Sequence[Truncate]) -> Column:
    """Return position and time of the source's first truncate after a position, a column; nulls when there is none."""
    later = F.filter(listed(cleared), lambda one: (one["source"] == F.col(SOURCE)) & (one["position"] > position))
    first = F.get(later, F.lit(0))
    return F.struct(first["position"].alias("position"), F.timestamp_micros(first["at"]).alias("at"))


def listed(cleared: Sequence[Truncate]) -> Column:
    """Return the truncates in order as one array: an expression for each would overflow the driver where there are thousands."""
    text = json.dumps([asdict(one) for one in sorted(cleared)])
    return F.from_json(F.lit(text), "array<struct<position string, source string, at bigint>>")


def surviving(rows: DataFrame, cleared: Sequence[Truncate]) -> DataFrame:
    """Return the rows that no truncate of their source removed."""
    for source, position in sorted(last_of_each(cleared).items()):
        rows = rows.filter((F.col(SOURCE) != source) | (F.col(POSITION) > position))
    return rows


def marked(rows: DataFrame, cleared: Sequence[Truncate]) -> DataFrame:
    """Return the rows of a table without a key, those that a truncate followed marked as deleted by it."""
    if not cleared:
        return rows
    ended = rows.withColumn("_end", first_after(F.col(POSITION), cleared))
    gone = F.col("_end.position").isNotNull()
    told = {DELETED_AT: F.col("_end.at"), COMMIT_TIME: F.col("_end.at"), POSITION: F.col("_end.position")}
    return ended.withColumns({name: F.when(gone, it).otherwise(F.col(name)) for name, it in told.items()}).drop("_end")
