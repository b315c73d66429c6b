"""The sources and leading keys that some rows have, as a condition by which Delta chooses the files that a table is read from."""

import functools
import operator
import re
from dataclasses import dataclass, replace
from decimal import Decimal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.
from pyspark.sql import types as T  # noqa: N812 - PySpark's own idiom.

from spark_jobs.silver.target_schema import SOURCE, TargetSchema
from spark_jobs.storage import name as _q

_USUAL_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_INTEGERS = (T.ShortType, T.IntegerType, T.LongType)
#: Most ranges that keys which are far apart are given.
_RANGES = 64
_ORDERED = (T.ShortType, T.IntegerType, T.LongType, T.DateType, T.DecimalType)


@dataclass(frozen=True)
class KeyRange:
    """What is known of the keys of some rows."""

    rows: int
    sources: list[str]
    #: The leading key column and its type; its least and greatest value as text, None where it is not known.
    lead: str
    kind: T.DataType
    least: str | None
    greatest: str | None
    #: Ranges of the leading key column, apart from each other, that have all of the rows; empty where they are not known.
    ranges: tuple[tuple[int, int], ...] = ()

    def condition(self, alias: str = "") -> Column:
        """Return the condition that a stored row may have one of the keys; `alias` goes ahead of its columns."""
        inside = F.col(f"{alias}{SOURCE}").isin(self.sources)
        lead = F.col(f"{alias}{_q(self.lead)}")
        if (least := _literal(self.least, self.kind)) is not None:
            inside &= lead >= least
        if (greatest := _literal(self.greatest, self.kind)) is not None:
            inside &= lead <= greatest
        if self.ranges:
            inside &= functools.reduce(operator.or_, (lead.between(*bounds) for bounds in self.ranges))
        return inside


def of(rows: DataFrame, target: TargetSchema, *, apart: bool = False) -> KeyRange:
    """Return the range of rows that have the source and the key columns of a table with a key.

    With `apart` the gaps between them are looked for: new rows and a few old ones would else have the range of all.
    """
    lead = target.key[0]
    # As text: Python's dates end at the year 9999, and begin with year 1.
    low, high = (bound(_q(lead)).cast("string") for bound in (F.min, F.max))
    row = rows.agg(F.count(F.lit(1)), F.collect_set(SOURCE), low, high).first()
    assert row is not None
    count, sources, least, greatest = row
    key_range = KeyRange(count, sorted(sources), lead, target.columns[lead], least, greatest)
    if not apart or least is None or greatest is None or not isinstance(key_range.kind, _INTEGERS):
        return key_range
    return replace(key_range, ranges=_ranges(rows, lead, int(least), int(greatest)))


def _ranges(rows: DataFrame, lead: str, least: int, greatest: int) -> tuple[tuple[int, int], ...]:
    """Return the ranges of an integer column that have values, at most _RANGES; none where one range has all."""
    width = (greatest - least) // _RANGES + 1
    if width == 1:
        return ()
    value = F.col(_q(lead)).cast("decimal(20,0)")
    place = F.floor((value - F.lit(Decimal(least))) / F.lit(Decimal(width)))
    places = rows.groupBy(place.alias("_place")).agg(F.min(_q(lead)), F.max(_q(lead))).collect()
    joined: list[tuple[int, int]] = []
    for low, high in sorted((int(row[1]), int(row[2])) for row in places):
        near = joined and low - joined[-1][1] <= width
        joined.append((joined.pop()[0], high) if near else (low, high))
    return tuple(joined) if len(joined) > 1 else ()


def _literal(text: str | None, kind: T.DataType) -> Column | None:
    """Return a bound as a literal, since Delta chooses files by literals alone; None where files are not chosen by it."""
    if text is None or not isinstance(kind, _ORDERED):
        return None
    if isinstance(kind, T.DateType):
        # Spark's conversion of a filter on files overflows at dates such as infinity.
        return F.expr(f"DATE '{text}'") if _USUAL_DATE.fullmatch(text) else None
    return F.lit(Decimal(text) if isinstance(kind, T.DecimalType) else int(text))
