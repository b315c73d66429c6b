"""Where two sides differ is found, whatever the number of rows, with an in-memory side that hashes as the engines do."""

import hashlib
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.verify import comparison
from headrace.verify.canonical import Column
from headrace.verify.comparison import DIGITS, Digest, Row, RowHash
from spark_jobs.verify.compare import LISTED, Difference, Range, compare

ID, VALUE = (Column(name=name, stored=name, source="", silver="", free=True) for name in ("id", "value"))
COLUMNS = [ID, VALUE]


class Memory:
    """Rows of two columns, in memory."""

    def __init__(self, rows: Sequence[tuple[int, str]], *, keyed: bool = True) -> None:
        self._rows = [
            (
                key,
                md5(f"{key}|{value}"),
                Row(
                    key_hash=md5(str(key) if keyed else f"{key}|{value}"),
                    key=(str(key),) if keyed else (),
                    columns=(md5(str(key)), md5(value)),
                ),
            )
            for key, value in rows
        ]
        #: How many rows were listed in all, and which were handed out by key.
        self.listed = 0
        self.shown: list[Row] = []

    def digests(self, grid, cells=None):
        sums: dict[int, Digest] = {}
        for key, row_hash, row in self._rows:
            cell = self._cell(grid, key, row)
            if cell is not None and (cells is None or cell in cells):
                parts = int(row_hash[:DIGITS], 16), int(row_hash[DIGITS : 2 * DIGITS], 16)
                sums[cell] = sums.get(cell, Digest()).plus(Digest(1, *parts))
        return sums

    def _in(self, grid, cells):
        return sorted(
            (row for key, _, row in self._rows if self._cell(grid, key, row) in cells),
            key=lambda row: (row.key_hash, row.columns),
        )

    def _listed(self, grid, cells, most):
        result = self._in(grid, cells)[:most]
        self.listed += len(result)
        return result

    def _cell(self, grid, key, row) -> int | None:
        if not all(place(span, key, row) is not None for span in grid.within):
            return None
        result = place(grid.span, key, row)
        return None if result is None else (result - grid.span.low) // grid.width


class MemorySource(Memory):
    def hashes(self, grid, cells, most):
        return [RowHash(row.key_hash, row.hash) for row in self._listed(grid, cells, most)]

    def rows(self, grid, cells, key_hashes):
        found = [row for row in self._in(grid, cells) if row.key_hash in key_hashes]
        self.shown += found
        return found


class MemoryLake(Memory):
    def rows(self, grid, cells, most):
        return self._listed(grid, cells, most)


def place(span, key, row):
    """Return a row's place in a span, None when it is not in it; beyond an open end it is at the end."""
    at = key if span.by == "key" else int(row.key_hash[:DIGITS], 16)
    if at < span.low:
        return span.low if span.open_low else None
    if at >= span.high:
        return span.high - 1 if span.open_high else None
    return at


def md5(text: str) -> str:
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def keyed(source, lake, cells=16, *, by_hash=False):
    numbers = [key for key, _ in source] or [0]
    span = comparison.hashes() if by_hash else comparison.keys(min(numbers), max(numbers))
    return compare(MemorySource(source), MemoryLake(lake), COLUMNS, [ID], comparison.grid(span, cells))


def keyless(source, lake):
    grid = comparison.grid(comparison.hashes(), 16)
    return compare(MemorySource(source, keyed=False), MemoryLake(lake, keyed=False), COLUMNS, [], grid)


def test_the_same_rows_in_another_order_are_equal():
    rows = [(number, f"v{number}") for number in range(100)]

    result = keyed(rows, rows[::-1])

    assert result.equal
    assert result.differences == ()
    assert (result.source.rows, result.compared) == (100, 15)


def test_an_empty_table_equals_an_empty_table_and_no_other():
    assert keyed([], []).equal
    assert not keyed([], [(1, "a")]).equal


@pytest.mark.parametrize("by_hash", [False, True])
@pytest.mark.parametrize("rows", [50, LISTED * 3])
def test_a_row_that_is_missing_extra_or_changed_is_named_by_its_key_in_a_small_table_and_a_large_one(rows, by_hash):
    source = [(number, "v") for number in range(rows)]
    lake = [row for row in source if row[0] != 7]
    lake[20] = (lake[20][0], "w")
    lake.append((-1, "v"))

    result = keyed(source, lake, by_hash=by_hash)

    assert not result.equal
    assert result.complete
    assert sorted(result.differences, key=lambda it: it.what) == [
        Difference(what="differs", key={"id": str(lake[20][0])}, columns=("value",)),
        Difference(what="missing in the lake", key={"id": "7"}),
        Difference(what="only in the lake", key={"id": "-1"}),
    ]


def test_keys_of_rows_alone_that_differ_leave_the_source():
    source = [(number, "v") for number in range(400)]
    here = MemorySource(source)
    there = MemoryLake([(7, "w"), *source[8:]])

    result = compare(here, there, COLUMNS, [ID], comparison.grid(comparison.keys(0, 399), 4))

    assert len(result.differences) == 8
    assert {row.key for row in here.shown} == {(str(number),) for number in range(8)}


def test_neighbouring_ranges_that_differ_are_one_range_of_the_key():
    source = [(number, "v") for number in range(1000)]
    lake = [row for row in source if not 250 <= row[0] < 450]

    result = keyed(source, lake, cells=10)

    assert result.ranges == (Range(column="id", first=200, last=499, rows_source=300, rows_lake=100),)


def test_keys_beyond_those_of_the_source_are_in_ranges_without_an_end():
    source = [(number, "v") for number in range(100)]

    result = keyed(source, [(-500, "v"), *source, (900, "v")], cells=10)

    assert [(it.first, it.last) for it in result.ranges] == [(None, 9), (90, None)]
    assert [it.key for it in result.differences if it.what == "only in the lake"] == [
        {"id": "-500"},
        {"id": "900"},
    ] or {it.key["id"] for it in result.differences} == {"-500", "900"}


def test_a_key_column_that_is_alike_in_most_rows_is_no_obstacle():
    source = [(1, f"v{number}") for number in range(LISTED * 2)]
    here, there = MemorySource(source, keyed=False), MemoryLake(source[1:], keyed=False)

    result = compare(here, there, COLUMNS, [], comparison.grid(comparison.hashes(), 4))

    assert [(it.what, it.rows) for it in result.differences] == [("missing in the lake", 1)]


def test_rows_of_a_single_leading_key_are_cut_by_hash():
    whole = comparison.grid(comparison.keys(5, 5), 8)

    finer = whole.cut(0, 8)

    assert (whole.cells, finer.span.by, finer.cells) == (1, "hash", 8)
    assert [(it.low, it.open_low, it.open_high) for it in finer.within] == [(5, True, True)]


def test_only_the_cells_that_are_asked_for_are_compared():
    source = [(number, "v") for number in range(100)]
    grid = comparison.grid(comparison.keys(0, 99), 10)

    result = compare(MemorySource(source), MemoryLake(source[:95]), COLUMNS, [ID], grid, [0, 3])

    assert (result.equal, result.source.rows, result.compared) == (True, 20, 2)


def test_when_most_rows_differ_some_are_named_and_it_is_said_that_there_are_more():
    source = [(number, "v") for number in range(LISTED * 3)]
    here, there = MemorySource(source), MemoryLake([])

    result = compare(here, there, COLUMNS, [ID], comparison.grid(comparison.keys(0, LISTED * 3), 64))

    assert not result.complete
    assert result.differences
    assert {it.what for it in result.differences} == {"missing in the lake"}
    assert here.listed <= LISTED


def test_rows_without_a_key_are_counted_as_often_as_they_are_there():
    result = keyless([(1, "a"), (1, "a"), (1, "a"), (2, "b")], [(1, "a"), (2, "b"), (2, "b")])

    assert not result.equal
    assert sorted(result.differences, key=lambda it: it.what) == [
        Difference(what="missing in the lake", rows=2),
        Difference(what="only in the lake", rows=1),
    ]


def test_many_equal_rows_without_a_key_end_the_search_without_a_place():
    result = keyless([(1, "a")] * (LISTED + 1), [(1, "a")] * LISTED)

    assert not result.equal
    assert not result.complete


def test_a_key_that_stands_twice_in_the_lake_is_found():
    result = keyed([(1, "a")], [(1, "a"), (1, "a")])

    assert result.differences == (Difference(what="only in the lake", key={"id": "1"}),)


@settings(max_examples=200, deadline=None)
@given(
    st.dictionaries(st.integers(0, 40), st.sampled_from("abc")),
    st.dictionaries(st.integers(0, 40), st.sampled_from("abc")),
    st.integers(1, 12),
)
def test_the_differences_are_exactly_those_of_the_rows(source, lake, cells):
    result = keyed(list(source.items()), list(lake.items()), cells)

    assert result.equal == (source == lake)
    assert Counter((it.what, it.key["id"]) for it in result.differences) == Counter(
        {("missing in the lake", str(key)): 1 for key in source.keys() - lake.keys()}
        | {("only in the lake", str(key)): 1 for key in lake.keys() - source.keys()}
        | {("differs", str(key)): 1 for key in source.keys() & lake.keys() if source[key] != lake[key]}
    )
