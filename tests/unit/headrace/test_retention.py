"""How long Kafka keeps what the lake lacks, computed from offsets, retention and times alone."""

import pytest

from headrace.retention import Partition, StoredRange, StreamRetention, compute_retention, find_first_missing

A, B = Partition("bank", 0), Partition("bank", 1)


def test_only_what_bronze_lacks_and_age_removes_counts():
    held = {A: StoredRange(0, 10, 100.0), B: StoredRange(0, 10, None), Partition("bank", 2): StoredRange(0, 10, 100.0)}
    lacking = find_first_missing({A: 4, B: 4, Partition("bank", 2): 10}, held)
    assert lacking == {A: 4}
    # A partition that no load has read is needed from its first offset.
    assert find_first_missing({}, {A: StoredRange(0, 10, 1.0), B: StoredRange(0, 0, 1.0)}) == {A: 0}


@pytest.mark.parametrize(
    ("held", "lacking", "written", "headroom"),
    [
        pytest.param({A: StoredRange(0, 10, 100.0)}, {}, {}, 100.0, id="nothing lacks"),
        pytest.param({A: StoredRange(0, 10, 100.0)}, {A: 4}, {A: 950.0}, 50.0, id="some time is left"),
        pytest.param({A: StoredRange(0, 10, 100.0)}, {A: 4}, {A: 800.0}, 0.0, id="it may be gone at any moment"),
        pytest.param({A: StoredRange(5, 10, 100.0)}, {A: 4}, {A: None}, 0.0, id="it is gone"),
        pytest.param({A: StoredRange(0, 10, None)}, {}, {}, None, id="age removes nothing"),
        pytest.param(
            {A: StoredRange(0, 10, 100.0)}, {A: 9}, {A: None}, 100.0, id="only the end of a transaction lacks"
        ),
        pytest.param(
            {A: StoredRange(0, 10, 100.0), B: StoredRange(0, 10, 20.0)},
            {A: 4, B: 1},
            {A: 999.0, B: 995.0},
            15.0,
            id="the first counts",
        ),
    ],
)
def test_headroom_is_the_time_until_the_oldest_record_that_lacks_may_be_removed(held, lacking, written, headroom):
    assert compute_retention(held, lacking, written).headroom(1000.0) == headroom


def test_a_stream_without_a_limit_has_no_headroom():
    assert StreamRetention(retention=None, removal_at=None).headroom(0.0) is None
