"""The comparison of one table: digests of both sides, and, where they differ, the keys that differ.

Differing rows are sought by hash ranges of the key: ranges whose digests differ are cut 256 ways again until what is left
can be listed. The two sides work at the same time. Needs that neither side changes meanwhile. Called by command.py.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Literal

from spark_jobs.verify.canonical import Column
from spark_jobs.verify.digest import Digest, Row, Side

#: Rows of one side that are listed at most; beyond it, ranges are cut again.
LISTED = 4096
#: Differing ranges that are followed at most.
FOLLOWED = 16
#: Hexadecimal digits by which a range is cut.
_STEP = 2
_MD5_DIGITS = 32

What = Literal["missing in the lake", "only in the lake", "differs"]


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A row that is not the same on both sides."""

    what: What
    #: The key's columns as text; empty for a table without a key.
    key: dict[str, str | None] = field(default_factory=dict)
    #: The columns that differ, where the key is on both sides.
    columns: tuple[str, ...] = ()
    #: How many such rows there are; more than one only without a key, or where a key stands twice.
    rows: int = 1


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What comparing two sides showed."""

    source: Digest
    lake: Digest
    differences: tuple[Difference, ...] = ()
    #: Whether these are all differences, or only those in the ranges that were followed.
    complete: bool = True

    @property
    def equal(self) -> bool:
        """Whether both sides have the same rows."""
        return self.source == self.lake


def compare(source: Side, lake: Side, columns: Sequence[Column], key: Sequence[Column]) -> Comparison:
    """Return the comparison of two sides of a table, with the keys that differ where they are few enough to find."""
    with ThreadPoolExecutor(1) as beside:
        there = beside.submit(source.whole)
        in_lake = lake.whole()
        at_source = there.result()
        if at_source == in_lake:
            return Comparison(source=at_source, lake=in_lake)
        within, followed_all = _narrow(source, lake, max(at_source.rows, in_lake.rows), beside)
        listed = beside.submit(source.rows, within, LISTED * 2)
        lake_rows = lake.rows(within, LISTED * 2)
        source_rows = listed.result()
    bounded = max(len(source_rows), len(lake_rows)) >= LISTED * 2
    if bounded:
        source_rows, lake_rows = _to_same_end(source_rows, lake_rows)
    return Comparison(
        source=at_source,
        lake=in_lake,
        differences=tuple(_differences(source_rows, lake_rows, columns, key)),
        complete=followed_all and not bounded,
    )


def _narrow(source: Side, lake: Side, rows: int, beside: ThreadPoolExecutor) -> tuple[list[str], bool]:
    """Return prefixes that hold differing rows and few enough to list, and whether they hold all of the differing rows."""
    within, complete = [""], True
    digits = 0
    while rows > LISTED and digits < _MD5_DIGITS:
        digits += _STEP
        there = beside.submit(source.ranges, digits, within)
        in_lake = lake.ranges(digits, within)
        at_source = there.result()
        differing = sorted(
            prefix for prefix in at_source.keys() | in_lake.keys() if at_source.get(prefix) != in_lake.get(prefix)
        )
        complete = complete and len(differing) <= FOLLOWED
        within = differing[:FOLLOWED]
        rows = sum(max(side.get(prefix, Digest()).rows for side in (at_source, in_lake)) for prefix in within)
    return within, complete


def _to_same_end(source: list[Row], lake: list[Row]) -> tuple[list[Row], list[Row]]:
    """Return two bounded lists cut before the key at which the shorter reach ends, so that no row seems to be missing."""
    end = min(side[-1].key_hash for side in (source, lake) if len(side) >= LISTED * 2)
    cut = [[row for row in side if row.key_hash < end] for side in (source, lake)]
    return cut[0], cut[1]


def _differences(
    source: list[Row], lake: list[Row], columns: Sequence[Column], key: Sequence[Column]
) -> list[Difference]:
    names = [column.name for column in columns]
    found = []
    at_source, in_lake = _by_key(source), _by_key(lake)
    for key_hash in sorted(at_source.keys() | in_lake.keys()):
        here, there = at_source.get(key_hash, []), in_lake.get(key_hash, [])
        shown = dict(zip((column.name for column in key), (here or there)[0].key, strict=True))
        missing = Counter(row.columns for row in here) - Counter(row.columns for row in there)
        extra = Counter(row.columns for row in there) - Counter(row.columns for row in here)
        if len(here) == len(there) == 1 and missing:
            (left,), (right,) = missing, extra
            differing = tuple(name for name, a, b in zip(names, left, right, strict=True) if a != b)
            found.append(Difference(what="differs", key=shown, columns=differing))
            continue
        if missing:
            found.append(Difference(what="missing in the lake", key=shown, rows=missing.total()))
        if extra:
            found.append(Difference(what="only in the lake", key=shown, rows=extra.total()))
    return found


def _by_key(rows: list[Row]) -> dict[str, list[Row]]:
    grouped = defaultdict(list)
    for row in rows:
        grouped[row.key_hash].append(row)
    return dict(grouped)
