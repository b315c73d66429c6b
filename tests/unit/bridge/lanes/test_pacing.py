"""When a lane begins its next transaction: with several sources it gathers, the longer the slower Kafka is."""

import pytest

from bridge.lanes.transaction import ENDING_SECONDS, Pacing

ONE, TWO = "a/one", "a/two"


@pytest.fixture
def pacing():
    made = Pacing(0.04, clock=lambda: made.now)
    made.now = 100.0
    return made


def test_the_first_transaction_waits_for_nothing(pacing):
    assert (pacing.until_collecting, pacing.until_beginning) == (0.0, 0.0)


def test_a_transaction_begins_only_once_kafka_has_ended_the_one_before(pacing):
    pacing.note_end([ONE], 0.005)
    assert pacing.until_beginning == pytest.approx(ENDING_SECONDS)
    pacing.now += ENDING_SECONDS + 0.001
    assert pacing.until_beginning == 0.0


def test_with_several_sources_a_lane_gathers_for_twice_the_time_of_its_last_transaction(pacing):
    pacing.note_end([ONE, TWO], 0.006)
    assert pacing.until_collecting == pytest.approx(0.012)
    # however slow Kafka is, no longer than transactions may collect
    pacing.note_end([ONE, TWO], 3.0)
    assert pacing.until_collecting == pytest.approx(0.04)
    # time that has passed in the meantime counts: what comes to an idle lane is committed at once
    pacing.now += 0.05
    assert pacing.until_collecting == 0.0


def test_sources_that_take_turns_are_several_and_one_that_is_alone_does_not_wait(pacing):
    for source in (ONE, TWO, ONE):
        pacing.note_end([source], 0.006)
        assert pacing.until_collecting == pytest.approx(0.012)
    pacing.note_end([ONE], 0.006)
    assert pacing.until_collecting == 0.0


def test_a_full_transaction_is_followed_at_once_and_so_is_an_aborted_one(pacing):
    pacing.note_end([ONE, TWO], 0.1, is_full=True)
    assert pacing.until_collecting == 0.0
    pacing.note_end()
    assert pacing.until_collecting == 0.0
    assert pacing.until_beginning == pytest.approx(ENDING_SECONDS)
