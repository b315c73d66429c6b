"""Silver's side of a comparison: one source's rows of one table, summed by Spark in one pass.

Only sums, hashes and keys leave Spark's tasks. Called by verify.py.
"""

from collections.abc import Collection

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the field's own name for it.
from pyspark.sql import types as T  # noqa: N812 - as above.

from headrace.verify import canonical
from headrace.verify.canonical import Column, SilverType
from headrace.verify.digest import DIGITS, Digest, Grid, Row, Span, hashes
from headrace.verify.engine import Forms

_SUMS = [
    "count(1) AS rows",
    *(
        f"coalesce(sum(cast(conv(substr(h, {start}, {DIGITS}), 16, 10) as decimal(19, 0))), 0) AS {name}"
        for name, start in (("first", 1), ("second", 1 + DIGITS))
    ),
]


def columns(frame: DataFrame) -> dict[str, SilverType]:
    """Return the table's own columns and their types."""
    return {field.name: _type(field.dataType) for field in frame.schema.fields}


class SilverSide:
    """One source's rows of a silver table as a side of a comparison."""

    def __init__(self, frame: DataFrame, compared: list[Column], key: list[Column], forms: Forms = canonical) -> None:
        self._hash = forms.silver_hash
        self._compared = compared
        self._key = key
        self._frame = frame
        self._row = canonical.silver_row(compared)
        self._key_hash = self._hash(canonical.silver_row(key or compared))
        #: A row's place, by what it is reckoned.
        self._places = {"hash": f"cast(conv(substr({self._key_hash}, 1, {DIGITS}), 16, 10) as bigint)"}
        if key:
            self._places["key"] = f"cast({canonical.silver_name(key[0].stored)} as bigint)"

    def digests(self, grid: Grid, cells: Collection[int] | None = None) -> dict[int, Digest]:
        """Return the digest of each cell of a grid, or of those named; an empty cell is not there."""
        sums = (
            self._placed(grid, cells)
            .select("_cell", F.expr(f"{self._hash(self._row)} AS h"))
            .groupBy("_cell")
            .agg(*(F.expr(expression) for expression in _SUMS))
        )
        return {row["_cell"]: Digest(row["rows"], int(row["first"]), int(row["second"])) for row in sums.collect()}

    def rows(self, grid: Grid, cells: Collection[int], most: int) -> list[Row]:
        """Return the rows in some cells of a grid, by key hash, `most` at most."""
        names = (f"cast({canonical.silver_name(column.stored)} as string)" for column in self._key)
        hashes = (self._hash(canonical.silver_row([column])) for column in self._compared)
        hashed = self._placed(grid, cells).selectExpr(
            f"{self._key_hash} AS k",
            f"cast(array({', '.join(names)}) as array<string>) AS names",
            f"cast(array({', '.join(hashes)}) as array<string>) AS hashes",
        )
        found = hashed.orderBy("k", "hashes").limit(most).collect()
        return [Row(key_hash=row["k"], key=tuple(row["names"]), columns=tuple(row["hashes"])) for row in found]

    def _placed(self, grid: Grid, cells: Collection[int] | None) -> DataFrame:
        """Return the rows in some cells of a grid, or in all, each with its cell."""
        place = self._places[grid.span.by]
        rows = self._frame
        for span in grid.within:
            rows = rows.where(_inside(self._places[span.by], span))
        if cells is not None and grid.span.by == "key":
            # A condition on the column itself, so that files without such keys are not read.
            rows = rows.where(" OR ".join(_inside(place, grid.cell(cell)) for cell in cells))
        elif grid.span != hashes():
            rows = rows.where(_inside(place, grid.span))
        placed = rows.withColumn("_cell", F.expr(_cell(place, grid)))
        return placed if cells is None else placed.where(F.col("_cell").isin(sorted(cells)))


def _cell(place: str, grid: Grid) -> str:
    """Return the number of the cell in which a place is, the nearest for one beyond an open end."""
    span = grid.span
    inside = f"least(greatest(coalesce({place}, {span.low}L), {span.low}L), {span.high - 1}L)"
    return f"cast(({inside} - {span.low}L) div {grid.width}L as int)"


def _inside(place: str, span: Span) -> str:
    """Return the condition that a number is in a span; null is below all others."""
    low = [] if span.open_low else [f"{place} >= {span.low}L"]
    high = [] if span.open_high else [f"{place} < {span.high}L"]
    found = " AND ".join((*low, *high)) or "true"
    return f"({found} OR {place} IS NULL)" if span.open_low and high else f"({found})"


def _type(kind: T.DataType) -> SilverType:
    if isinstance(kind, T.DecimalType):
        return SilverType(name="decimal", scale=kind.scale)
    return SilverType(name=kind.typeName())
