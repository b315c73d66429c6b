"""Sessions that fail again and again at the same place of the log: pauses grow, and after a while an operator is called."""

import pytest

from edge import agent
from edge.engine import StreamFailed
from edge.postgres.errors import running, statement_failed, stream_failed
from headrace.errors import NeedsOperator, NotConnected
from headrace.position import Position

PLACE = Position(7, 100, 0)
WORDS = 'ERROR:  invalid input syntax for type integer: "ani@example.com"\nCONTEXT:  slot "headrace"'


def failure(state="22012"):
    return stream_failed(state, "ERROR:  division by zero", "db:5432/bank", "headrace")


def test_equal_failures_back_off_and_then_call_an_operator():
    """G5: 87 sessions in five seconds, for ever."""
    failures = agent._Failures()
    pauses = [failures.pause(failure(), PLACE) for _ in range(agent._EQUAL_FAILURES - 1)]
    with pytest.raises(NeedsOperator, match="each time at the same place") as raised:
        failures.pause(failure(), PLACE)
    assert pauses[-1] > 3
    assert "alter publication" in raised.value.hint


def test_another_place_or_another_failure_begins_again():
    """G5."""
    failures = agent._Failures()
    for number in range(30):
        assert failures.pause(failure(), Position(7, number, 0)) <= 1


def test_what_may_pass_by_itself_is_tried_without_end():
    """G5: a full disk where the server spills."""
    failures = agent._Failures()
    pauses = [failures.pause(failure("53100"), PLACE) for _ in range(50)]
    assert max(pauses) <= 60
    assert min(pauses[-5:]) >= 6


@pytest.mark.parametrize("state", ["22P02", "23514", "P0001", "XX000", "HV000", "38000", "54000", "0A000", "99999"])
def test_words_that_may_hold_values_are_not_passed_on(state):
    """G5: they went to the log and, by the heartbeat, out of the region."""
    for error in (
        make(state, WORDS, "db:5432/bank", "headrace") for make in (running, statement_failed, stream_failed)
    ):
        assert "ani@" not in error.message + error.hint
        assert state in error.message


def test_a_lost_connection_is_no_failure_to_decode():
    for state in (None, "57P01", "08006"):
        error = stream_failed(state, "terminating connection", "db:5432/bank", "headrace")
        assert type(error) is NotConnected
    assert isinstance(failure(), StreamFailed)
