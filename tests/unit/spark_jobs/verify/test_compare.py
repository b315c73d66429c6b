"""Where two sides differ is found, whatever the number of rows, with an in-memory side that hashes as the engines do."""

import hashlib
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.verify.canonical import Column
from spark_jobs.verify.compare import LISTED, Difference, compare
from spark_jobs.verify.digest import DIGITS, Digest, Row

ID, VALUE = (Column(name=name, source="", silver="", free=True) for name in ("id", "value"))
COLUMNS = [ID, VALUE]


class MemorySide:
    """Rows of two columns, in memory."""

    def __init__(self, rows: Sequence[tuple[int, str]], *, keyed: bool = True) -> None:
        self._rows = [
            (
                md5(str(key) if keyed else f"{key}|{value}"),
                md5(f"{key}|{value}"),
                Row(
                    key_hash=md5(str(key) if keyed else f"{key}|{value}"),
                    key=(str(key),) if keyed else (),
                    columns=(md5(str(key)), md5(value)),
                ),
            )
            for key, value in rows
        ]
        #: How many rows were listed in all.
        self.listed = 0

    def whole(self) -> Digest:
        return self.ranges(0, [""]).get("", Digest())

    def ranges(self, digits: int, within: Sequence[str]) -> dict[str, Digest]:
        sums: dict[str, Digest] = {}
        for key_hash, row_hash, _ in self._rows:
            if key_hash.startswith(tuple(within)):
                was = sums.get(key_hash[:digits], Digest())
                parts = int(row_hash[:DIGITS], 16), int(row_hash[DIGITS : 2 * DIGITS], 16)
                sums[key_hash[:digits]] = Digest(was.rows + 1, was.first + parts[0], was.second + parts[1])
        return sums

    def rows(self, within: Sequence[str], most: int) -> list[Row]:
        found = sorted(
            (row for key_hash, _, row in self._rows if key_hash.startswith(tuple(within))),
            key=lambda row: (row.key_hash, row.columns),
        )[:most]
        self.listed += len(found)
        return found


def md5(text: str) -> str:
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def keyed(source, lake):
    return compare(MemorySide(source), MemorySide(lake), COLUMNS, [ID])


def keyless(source, lake):
    return compare(MemorySide(source, keyed=False), MemorySide(lake, keyed=False), COLUMNS, [])


def test_the_same_rows_in_another_order_are_equal():
    rows = [(number, f"v{number}") for number in range(100)]

    found = keyed(rows, rows[::-1])

    assert found.equal
    assert found.differences == ()
    assert found.source.rows == 100


def test_an_empty_table_equals_an_empty_table_and_no_other():
    assert keyed([], []).equal
    assert not keyed([], [(1, "a")]).equal


@pytest.mark.parametrize("rows", [50, LISTED * 3])
def test_a_row_that_is_missing_extra_or_changed_is_named_by_its_key_in_a_small_table_and_a_large_one(rows):
    source = [(number, "v") for number in range(rows)]
    lake = [row for row in source if row[0] != 7]
    lake[20] = (lake[20][0], "w")
    lake.append((-1, "v"))

    found = keyed(source, lake)

    assert not found.equal
    assert found.complete
    assert sorted(found.differences, key=lambda it: it.what) == [
        Difference(what="differs", key={"id": str(lake[20][0])}, columns=("value",)),
        Difference(what="missing in the lake", key={"id": "7"}),
        Difference(what="only in the lake", key={"id": "-1"}),
    ]


def test_when_most_rows_differ_some_are_named_and_it_is_said_that_there_are_more():
    source = [(number, "v") for number in range(LISTED * 3)]
    here, there = MemorySide(source), MemorySide([])

    found = compare(here, there, COLUMNS, [ID])

    assert not found.complete
    assert found.differences
    assert {it.what for it in found.differences} == {"missing in the lake"}
    assert here.listed <= LISTED * 2


def test_rows_without_a_key_are_counted_as_often_as_they_are_there():
    found = keyless([(1, "a"), (1, "a"), (1, "a"), (2, "b")], [(1, "a"), (2, "b"), (2, "b")])

    assert not found.equal
    assert sorted(found.differences, key=lambda it: it.what) == [
        Difference(what="missing in the lake", rows=2),
        Difference(what="only in the lake", rows=1),
    ]


def test_many_equal_rows_without_a_key_end_the_search_without_a_place():
    found = keyless([(1, "a")] * (LISTED * 2 + 1), [(1, "a")] * (LISTED * 2))

    assert not found.equal
    assert not found.complete


def test_a_key_that_stands_twice_in_the_lake_is_found():
    found = keyed([(1, "a")], [(1, "a"), (1, "a")])

    assert found.differences == (Difference(what="only in the lake", key={"id": "1"}),)


@settings(max_examples=200, deadline=None)
@given(
    st.dictionaries(st.integers(0, 40), st.sampled_from("abc")),
    st.dictionaries(st.integers(0, 40), st.sampled_from("abc")),
)
def test_the_differences_are_exactly_those_of_the_rows(source, lake):
    found = keyed(list(source.items()), list(lake.items()))

    assert found.equal == (source == lake)
    assert Counter((it.what, it.key["id"]) for it in found.differences) == Counter(
        {("missing in the lake", str(key)): 1 for key in source.keys() - lake.keys()}
        | {("only in the lake", str(key)): 1 for key in lake.keys() - source.keys()}
        | {("differs", str(key)): 1 for key in source.keys() & lake.keys() if source[key] != lake[key]}
    )
