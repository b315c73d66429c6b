"""Lag in seconds tells the truth: none while idle, growing while stuck, unknown counts as lag."""

import pytest

from edge.observability.clocks import LogClock


class Hand:
    """A clock moved by hand."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def hand():
    return Hand()


@pytest.fixture
def log(hand):
    return LogClock(every=5.0, clock=hand)


def look_every_5_seconds(log, hand, ends, reached=0):
    for end in ends:
        hand.now += 5
        log.look(end, reached)


def test_an_idle_log_that_is_read_lags_by_nothing_however_long_ago_its_last_change_was(log, hand):
    look_every_5_seconds(log, hand, [100] * 1000, reached=100)
    assert log.behind(100) == 0


def test_lag_grows_while_nothing_arrives_at_a_log_that_did_grow(log, hand):
    look_every_5_seconds(log, hand, [100, 200])
    assert log.behind(100) == 0
    look_every_5_seconds(log, hand, [200] * 60)
    assert log.behind(100) == 300
    hand.now += 2
    assert log.behind(100) == 302
    assert log.behind(200) == 0


def test_lag_is_the_age_of_the_oldest_log_that_is_missing(log, hand):
    look_every_5_seconds(log, hand, [100, 200, 300, 400])
    assert [log.behind(place) for place in (0, 100, 150, 299, 300, 400)] == [15, 10, 10, 5, 0, 0]


def test_what_nobody_can_look_at_counts_as_lag(log, hand):
    look_every_5_seconds(log, hand, [100])
    hand.now += 16
    assert log.behind(100) == 0
    hand.now += 1
    assert log.behind(100) == 17
    log.look(100, 100)
    assert log.behind(100) == 0


def test_a_log_that_begins_anew_is_not_compared_with_the_former_one(log, hand):
    look_every_5_seconds(log, hand, [10_000, 20_000])
    look_every_5_seconds(log, hand, [50])
    assert log.behind(10) == 0
    assert log.behind(50) == 0


def test_a_long_outage_takes_bounded_memory_and_keeps_the_oldest_mark(log, hand):
    began = hand.now + 5
    look_every_5_seconds(log, hand, range(1, 10_001))
    assert len(log._looks) <= 512
    assert log.behind(0) == hand.now - began
    assert log.behind(10_000) == 0
    # While it is caught up with, the lag is a little coarser, and never more than it is.
    for place in range(0, 10_000, 100):
        lag = hand.now - began - 5 * place
        assert 0.98 * lag - 200 <= log.behind(place) <= lag
