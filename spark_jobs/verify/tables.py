"""Which tables of a source are compared with which silver tables, and by which columns.

A table is compared when it exists on either side, and is captured. A table at the source that has no rows and no silver table is
equal: nothing was ever captured of it. A column that silver does not have counts as null there, which is right for a column that
was added and never filled. Called by verify.py.

How the sources of a verification are reached: by their edges, or by connections of the lake's file. Called by command.py.

Silver's side of a comparison: one source's rows of one table, summed by Spark in one pass.

Only sums, hashes and keys leave Spark's tasks. Called by verify.py.
"""

from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the field's own name for it.
from pyspark.sql import types as T  # noqa: N812 - as above.

from headrace.configuration.lake import LakeFile
from headrace.errors import NeedsOperator
from headrace.lake.table import find_stored
from headrace.verify import canonical, sources
from headrace.verify.canonical import Column, SilverType
from headrace.verify.comparison import DIGITS, Database, Digest, Forms, Grid, Row, SourceTable, Span, hashes
from headrace.verify.sources import RemoteDatabase
from spark_jobs.kafka.requests import RequestTopics
from spark_jobs.silver.target_schema import NAN

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
        spark_rows = hashed.orderBy("k", "hashes").limit(most).collect()
        return [Row(key_hash=row["k"], key=tuple(row["names"]), columns=tuple(row["hashes"])) for row in spark_rows]

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
    condition = " AND ".join((*low, *high)) or "true"
    return f"({condition} OR {place} IS NULL)" if span.open_low and high else f"({condition})"


def _type(kind: T.DataType) -> SilverType:
    if isinstance(kind, T.DecimalType):
        return SilverType(name="decimal", scale=kind.scale)
    return SilverType(name=kind.typeName())


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The columns by which a table is compared, and why some cannot be."""

    columns: list[Column]
    #: Key columns among them; empty when a row is its own key.
    key: list[Column]
    #: What is wrong already, a sentence each.
    reasons: list[str]
    #: Columns that are not compared, because the edge's policy does something to them, and what.
    treated: dict[str, str]


def plan(
    table: SourceTable, silver: dict[str, SilverType], treated: Mapping[str, str], forms: Forms = canonical
) -> Plan:
    """Return how a source's table is compared with a silver table that has the given columns.

    Raises NeedsOperator when silver lacks a column of the key.
    `treated` has what the edge's policy does to columns: those have other values in the lake, and are left out.
    """
    columns: dict[str, Column] = {}
    reasons = []
    for name, kind in table.columns.items():
        if name in treated:
            continue
        stored = find_stored(name, silver)
        if stored not in silver and name in table.key:
            raise NeedsOperator(
                f"the key of {table} is {', '.join(table.key)} at the source, and the lake has no column {name}",
                hint="The column was renamed, or the key changed: copy the table again (docs/edge.md).",
            )
        if stored not in silver:
            columns[name] = forms.absent(name)
            continue
        column = forms.column(name, kind, silver[stored], stored=stored, nan=NAN in silver)
        if column is None:
            reasons.append(f"column {name} is {kind.name} at the source and {silver[stored].name} in the lake")
        else:
            columns[name] = column
    has_key = all(name in columns for name in table.key)
    return Plan(
        columns=list(columns.values()),
        key=[columns[name] for name in table.key] if has_key else [],
        reasons=reasons,
        treated={name: treated[name] for name in table.columns if name in treated} | table.treated,
    )


def to_compare(
    at_source: list[SourceTable], in_silver: Collection[str], chosen_names: Collection[str] = ()
) -> list[str]:
    """Return the names, `schema.table`, of the tables to compare, sorted: of all, or of those that `chosen_names` names.

    Partitions are compared one by one, as PostgreSQL publishes them, unless silver has the table that they are partitions of.
    """
    names = set(in_silver)
    for table in at_source:
        if table.partitioned and str(table) not in in_silver:
            continue
        if str(table) not in in_silver and table.partition_of & set(in_silver):
            continue
        names.add(str(table))
    return sorted(name for name in names if not chosen_names or any(is_named(name, chosen) for chosen in chosen_names))


def is_named(table: str, name: str) -> bool:
    """Whether a table, `schema.table`, is the one that a person names: by both, or by its own name alone."""
    return name in {table, table.partition(".")[2]}


class Sources:
    """The sources of a lake's file.

    An edge's answer to each request may take `seconds`; one that is at another verification is waited for, `busy_seconds` at
    most, and `on_busy` receives the reason.
    """

    def __init__(self, lake: LakeFile, seconds: float, busy_seconds: float, on_busy: Callable[[str], None]) -> None:
        self._lake, self._seconds = lake, seconds
        self._busy_seconds, self._on_busy = busy_seconds, on_busy
        self._topics: RequestTopics | None = None

    def connect(self, source: str, *, placed: bool) -> AbstractContextManager[Database]:
        """Give a source's database in a snapshot that lasts as long as the context; `placed`, at a known place of its log.

        Raises NotConnected, NeedsOperator or Retryable.
        """
        section = self._lake.sources.get(source)
        if section is not None and section.is_direct:
            return sources.connect(source, section, placed=placed)
        if self._topics is None:
            self._topics = RequestTopics(self._lake.kafka, self._lake.requests.topics(self._lake.kafka.prefix))
        return RemoteDatabase.connect(
            source,
            self._topics,
            seconds=self._seconds,
            placed=placed,
            busy_seconds=self._busy_seconds,
            on_busy=self._on_busy,
        )

    def close(self) -> None:
        """Ask no more."""
        if self._topics is not None:
            self._topics.close()
