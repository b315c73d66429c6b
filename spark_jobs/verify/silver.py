"""Silver's side of a comparison: one source's rows of one silver table, summed by Spark.

Reads what the last load published. Only sums, hashes and keys leave Spark's tasks. Called by compare.py.
"""

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the field's own name for it.
from pyspark.sql import types as T  # noqa: N812 - as above.

from spark_jobs.verify import canonical
from spark_jobs.verify.canonical import Column, SilverType
from spark_jobs.verify.digest import DIGITS, Digest, Row

_SUMS = [
    "count(1) AS rows",
    *(
        f"coalesce(sum(cast(conv(substr(h, {start}, {DIGITS}), 16, 10) as decimal(19, 0))), 0) AS {name}"
        for name, start in (("first", 1), ("second", 1 + DIGITS))
    ),
]


def columns(frame: DataFrame) -> dict[str, SilverType]:
    """Return the table's own columns and their types; those that the load adds start with an underscore and are left out."""
    return {field.name: _type(field.dataType) for field in frame.schema.fields}


class SilverSide:
    """One source's rows of a silver table as a side of a comparison."""

    def __init__(self, frame: DataFrame, compared: list[Column], key: list[Column]) -> None:
        self._compared = compared
        self._key = key
        self._frame = frame
        self._row = canonical.silver_row(compared)
        self._key_text = canonical.silver_row(key or compared)

    def whole(self) -> Digest:
        """Return the digest of all rows."""
        (found,) = self._frame.selectExpr(f"{_md5(self._row)} AS h").selectExpr(*_SUMS).collect()
        return Digest(found["rows"], int(found["first"]), int(found["second"]))

    def ranges(self, digits: int, within: Sequence[str]) -> dict[str, Digest]:
        """Return the digest of each hash range inside the given prefixes."""
        hashed = self._frame.selectExpr(f"{_md5(self._key_text)} AS k", f"{_md5(self._row)} AS h")
        found = (
            _inside(hashed, within)
            .groupBy(F.substring("k", 1, digits).alias("prefix"))
            .agg(*(F.expr(expression) for expression in _SUMS))
            .collect()
        )
        return {row["prefix"]: Digest(row["rows"], int(row["first"]), int(row["second"])) for row in found}

    def rows(self, within: Sequence[str], most: int) -> list[Row]:
        """Return the rows in the given prefixes, by key hash, `most` at most."""
        names = (f"cast({canonical.silver_name(column.name)} as string)" for column in self._key)
        hashes = (_md5(canonical.silver_row([column])) for column in self._compared)
        hashed = self._frame.selectExpr(
            f"{_md5(self._key_text)} AS k",
            f"cast(array({', '.join(names)}) as array<string>) AS names",
            f"cast(array({', '.join(hashes)}) as array<string>) AS hashes",
        )
        found = _inside(hashed, within).orderBy("k", "hashes").limit(most).collect()
        return [Row(key_hash=row["k"], key=tuple(row["names"]), columns=tuple(row["hashes"])) for row in found]


def _md5(text: str) -> str:
    return f"md5(cast({text} as binary))"


def _inside(hashed: DataFrame, within: Sequence[str]) -> DataFrame:
    if not within or list(within) == [""]:
        return hashed
    return hashed.where(F.substring("k", 1, len(within[0])).isin(list(within)))


def _type(kind: T.DataType) -> SilverType:
    if isinstance(kind, T.DecimalType):
        return SilverType(name="decimal", scale=kind.scale)
    return SilverType(name=kind.typeName())
