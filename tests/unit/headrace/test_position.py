"""Positions sort alike as tuples and as text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import CorruptInput
from headrace.position import Position, new_epoch

positions = st.builds(
    Position,
    st.integers(0, 2**32 - 1),
    # One of SQL Server's has 80 bits, one of Db2's 128.
    st.integers(0, 2**64 - 1) | st.integers(0, 2**80 - 1) | st.integers(0, 2**128 - 1),
    st.integers(0, 2**32 - 1),
)


@given(positions, positions)
def test_text_sorts_as_the_position_does(one, other):
    assert (one < other) == (str(one) < str(other))
    assert (one == other) == (str(one) == str(other))


@given(positions)
def test_text_is_read_back(position):
    assert Position.parse(str(position)) == position


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1/2/3",
        "692010c0/0000000001a2b3c8",
        "692010C0/0000000001a2b3c8/00000000",
        "x" * 34,
        "692010c0/0000000001a2b3c8/00000000 ",
        "692010c0/x0000000001a2b3c8/00000000",
        "692010c0/x" + "0" * 16 + "ff" * 8 + "/00000000",
    ],
)
def test_what_is_no_position_is_refused(text):
    with pytest.raises(CorruptInput, match="is no position"):
        Position.parse(text)


@pytest.mark.parametrize(
    "position", [Position(2**32, 0, 0), Position(0, 2**128, 0), Position(0, 0, 2**32), Position(0, -1, 0)]
)
def test_parts_out_of_range_are_refused(position):
    with pytest.raises(CorruptInput, match="out of range"):
        position.check()


def test_commit_numbers_of_64_bits_have_the_text_that_they_had():
    assert str(Position(0x692010C0, 2**64 - 1, 0)) == "692010c0/ffffffffffffffff/00000000"
    assert str(Position(0x692010C0, 2**64, 1)) == "692010c0/x00000000000000010000000000000000/00000001"


def test_a_new_epoch_is_greater_than_the_last_even_if_the_clock_went_back():
    assert new_epoch(after=4_000_000_000) == 4_000_000_001
    assert new_epoch() > 1_700_000_000
