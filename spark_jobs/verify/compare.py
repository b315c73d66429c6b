"""The comparison of one table: digests of both sides by range of the key, and, where they differ, the keys that differ.

A range whose digests differ is cut again until its rows are few enough to list. The two sides work at the same time, and
neither hands out more than sums and a bounded list of hashes; keys leave the source for rows alone that differ. Needs that
neither side changes meanwhile. Called by verify.py.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Literal

from headrace.verify.canonical import Column
from headrace.verify.comparison import Digest, Grid, LakeSide, Row, SourceSide, Span

#: Rows of one side that are listed at most, all in all.
LISTED = 8192
#: Rows up to which a range is listed; and most ranges into which a larger one is cut again.
_FEW, _PARTS = 512, 256
#: Most differing ranges that are followed at each step, and most steps.
FOLLOWED, _STEPS = 16, 24

What = Literal["missing in the lake", "only in the lake", "differs"]


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A row that is not the same on both sides."""

    what: What
    #: The key's columns as text; empty for a table without a key.
    key: dict[str, str | None] = field(default_factory=dict)
    #: The columns that differ, where the key is on both sides.
    columns: tuple[str, ...] = ()
    #: How many such rows there are; more than one only without a key, or where a key occurs twice.
    rows: int = 1


@dataclass(frozen=True, kw_only=True)
class Range:
    """Neighbouring ranges that differ, as one."""

    #: The key column; None for ranges of hashes.
    column: str | None
    #: First and last place; None where the range has no end.
    first: int | None
    last: int | None
    rows_source: int
    rows_lake: int


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What comparing two sides showed."""

    source: Digest
    lake: Digest
    #: How many ranges were compared, and which differ.
    compared: int = 1
    ranges: tuple[Range, ...] = ()
    differences: tuple[Difference, ...] = ()
    #: Whether these are all differences, or only those in the ranges that were followed.
    complete: bool = True

    @property
    def equal(self) -> bool:
        """Whether both sides have the same rows."""
        return not self.ranges


def compare(
    source: SourceSide,
    lake: LakeSide,
    columns: Sequence[Column],
    key: Sequence[Column],
    grid: Grid,
    cells: Collection[int] | None = None,
) -> Comparison:
    """Return the comparison of two sides of a table, in all cells of a grid or in some, with the keys that differ."""
    with ThreadPoolExecutor(1, thread_name_prefix="source") as executor:
        search = _Search(source, lake, executor)
        here, there = search.digests(grid, cells)
        differing = _differing(here, there)
        if differing:
            search.follow(grid, differing)
    return Comparison(
        source=_total(here),
        lake=_total(there),
        compared=grid.cells if cells is None else len(cells),
        ranges=tuple(_ranges(grid, sorted(differing), here, there, key)),
        differences=tuple(_differences(search.source_rows, search.lake_rows, columns, key)),
        complete=search.complete,
    )


class _Search:
    """Gathers the rows of ranges that differ, within bounds."""

    def __init__(self, source: SourceSide, lake: LakeSide, executor: ThreadPoolExecutor) -> None:
        self.source_rows: list[Row] = []
        self.lake_rows: list[Row] = []
        self.complete = True
        self._source, self._lake, self._executor = source, lake, executor
        #: Rows that were listed, of the side that has more.
        self._listed = 0
        self._steps = 0

    def digests(self, grid: Grid, cells: Collection[int] | None = None) -> tuple[dict[int, Digest], dict[int, Digest]]:
        there = self._executor.submit(self._source.digests, grid, cells)
        in_lake = self._lake.digests(grid, cells)
        return there.result(), in_lake

    def follow(self, grid: Grid, differing: dict[int, int]) -> None:
        """Gather the rows of the cells that differ, given with how many rows they have."""
        self.complete = self.complete and len(differing) <= FOLLOWED
        few: list[int] = []
        for cell, rows in sorted(differing.items())[:FOLLOWED]:
            finer = grid.cut(cell, min(_PARTS, -(-rows // _FEW) * 2)) if rows > _FEW else None
            if finer is None:
                few.append(cell)
            elif self._step():
                self.follow(finer, _differing(*self.digests(finer)))
        if few and self._step():
            self._list(grid, few)

    def _step(self) -> bool:
        self._steps += 1
        if self._listed >= LISTED or self._steps > _STEPS:
            self.complete = False
            return False
        return True

    def _list(self, grid: Grid, cells: Sequence[int]) -> None:
        most = LISTED - self._listed
        listed = self._executor.submit(self._source.hashes, grid, cells, most)
        in_lake = self._lake.rows(grid, cells, most)
        at_source = listed.result()
        self._listed += max(len(at_source), len(in_lake))
        if max(len(at_source), len(in_lake)) >= most:
            # Both end before the key at which the shorter reach ends, so that no row seems to be missing.
            ends = [side[-1].key_hash for side in (at_source, in_lake) if len(side) >= most]
            at_source = [row for row in at_source if row.key_hash < min(ends)]
            in_lake = [row for row in in_lake if row.key_hash < min(ends)]
            self.complete = False
        here = Counter((row.key_hash, row.hash) for row in at_source)
        there = Counter((row.key_hash, row.hash) for row in in_lake)
        differing = {key_hash for key_hash, _ in (here - there) + (there - here)}
        key_hashes = differing & {row.key_hash for row in at_source}
        if key_hashes:
            self.source_rows += self._executor.submit(self._source.rows, grid, cells, key_hashes).result()
        self.lake_rows += [row for row in in_lake if row.key_hash in differing]


def _differing(here: dict[int, Digest], there: dict[int, Digest]) -> dict[int, int]:
    """Return the cells that differ, with the rows of the side that has more."""
    none = Digest()
    return {
        cell: max(here.get(cell, none).rows, there.get(cell, none).rows)
        for cell in here.keys() | there.keys()
        if here.get(cell, none) != there.get(cell, none)
    }


def _total(digests: dict[int, Digest]) -> Digest:
    total = Digest()
    for digest in digests.values():
        total = total.plus(digest)
    return total


def _ranges(
    grid: Grid, cells: Sequence[int], here: dict[int, Digest], there: dict[int, Digest], key: Sequence[Column]
) -> list[Range]:
    """Return the cells that differ, neighbours put together."""
    runs: list[list[int]] = []
    for cell in cells:
        if runs and runs[-1][-1] == cell - 1:
            runs[-1].append(cell)
        else:
            runs.append([cell])
    ranges = []
    for run in runs:
        first, last = grid.cell(run[0]), grid.cell(run[-1])
        ranges.append(
            Range(
                column=key[0].name if first.by == "key" else None,
                first=_end(first, low=True),
                last=_end(last, low=False),
                rows_source=sum(here.get(cell, Digest()).rows for cell in run),
                rows_lake=sum(there.get(cell, Digest()).rows for cell in run),
            )
        )
    return ranges


def _end(span: Span, *, low: bool) -> int | None:
    if low:
        return None if span.open_low else span.low
    return None if span.open_high else span.high - 1


def _differences(
    source: list[Row], lake: list[Row], columns: Sequence[Column], key: Sequence[Column]
) -> list[Difference]:
    names = [column.name for column in columns]
    differences = []
    at_source, in_lake = _by_key(source), _by_key(lake)
    for key_hash in sorted(at_source.keys() | in_lake.keys()):
        here, there = at_source.get(key_hash, []), in_lake.get(key_hash, [])
        shown = dict(zip((column.name for column in key), (here or there)[0].key, strict=True))
        missing = Counter(row.columns for row in here) - Counter(row.columns for row in there)
        extra = Counter(row.columns for row in there) - Counter(row.columns for row in here)
        if len(here) == len(there) == 1 and missing:
            (left,), (right,) = missing, extra
            differing = tuple(name for name, a, b in zip(names, left, right, strict=True) if a != b)
            differences.append(Difference(what="differs", key=shown, columns=differing))
            continue
        if missing:
            differences.append(Difference(what="missing in the lake", key=shown, rows=missing.total()))
        if extra:
            differences.append(Difference(what="only in the lake", key=shown, rows=extra.total()))
    return differences


def _by_key(rows: list[Row]) -> dict[str, list[Row]]:
    grouped = defaultdict(list)
    for row in rows:
        grouped[row.key_hash].append(row)
    return dict(grouped)
