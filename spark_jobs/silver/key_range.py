"""The sources and leading keys that some rows have, as a condition by which Delta chooses the files that a table is read from."""

import re
from dataclasses import dataclass
from decimal import Decimal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.
from pyspark.sql import types as T  # noqa: N812 - PySpark's own idiom.

from spark_jobs.quoting import name as _q
from spark_jobs.silver.target_schema import SOURCE, TargetSchema

_USUAL_DATE = re.compile(r"\d{4}-\d\d-\d\d")
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

    def condition(self, alias: str = "") -> Column:
        """Return the condition that a stored row may have one of the keys; `alias` goes ahead of its columns."""
        inside = F.col(f"{alias}{SOURCE}").isin(self.sources)
        lead = F.col(f"{alias}{_q(self.lead)}")
        if (least := _literal(self.least, self.kind)) is not None:
            inside &= lead >= least
        if (greatest := _literal(self.greatest, self.kind)) is not None:
            inside &= lead <= greatest
        return inside


def of(rows: DataFrame, target: TargetSchema) -> KeyRange:
    """Return the range of rows that have the source and the key columns of a table with a key."""
    lead = target.key[0]
    # As text: Python's dates end at the year 9999, and begin with year 1.
    low, high = (bound(_q(lead)).cast("string") for bound in (F.min, F.max))
    found = rows.agg(F.count(F.lit(1)), F.collect_set(SOURCE), low, high).first()
    assert found is not None
    count, sources, least, greatest = found
    return KeyRange(count, sorted(sources), lead, target.columns[lead], least, greatest)


def _literal(text: str | None, kind: T.DataType) -> Column | None:
    """Return a bound as a literal, since Delta chooses files by literals alone; None where files are not chosen by it."""
    if text is None or not isinstance(kind, _ORDERED):
        return None
    if isinstance(kind, T.DateType):
        # Spark's conversion of a filter on files overflows at dates such as infinity.
        return F.expr(f"DATE '{text}'") if _USUAL_DATE.fullmatch(text) else None
    return F.lit(Decimal(text) if isinstance(kind, T.DecimalType) else int(text))
