"""Stalls: a source with something to commit that does not move is reported within 30 s, once, until it moves."""

import pytest

from bridge.model.phases import SourcePhase
from bridge.model.ports import Committed
from bridge.model.route import SourceRoute
from bridge.service import STALLED_SECONDS, Stalls
from bridge.source.session import Session
from bridge.source.state import SourceState

SOURCE = "jakarta/bank"


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def looked():
    state, clock = SourceState(SourceRoute(SOURCE, "bank", (0,))), Clock()
    state.begin(1)
    return state, clock, Stalls(lambda: {SOURCE: state}, clock)


def pass_by(stalls, clock, seconds):
    for _ in range(int(seconds)):
        clock.now += 1
        stalls.look()


def test_a_batch_that_is_not_committed_is_a_stall_until_the_position_moves(looked, caplog):
    state, clock, stalls = looked
    state.figures.hear({}, 10)
    pass_by(stalls, clock, STALLED_SECONDS - 1)
    assert state.figures.stalled_seconds is None
    pass_by(stalls, clock, 9)
    assert STALLED_SECONDS <= state.figures.stalled_seconds < 30
    assert [record.levelname for record in caplog.records if SOURCE in record.getMessage()] == ["WARNING"]
    state.figures.position = "692010c0/0000000001a00000/00000000"
    pass_by(stalls, clock, 1)
    assert state.figures.stalled_seconds is None


def test_a_source_whose_position_is_never_read_is_a_stall(looked, caplog):
    state, clock, stalls = looked
    pass_by(stalls, clock, 29)
    assert STALLED_SECONDS <= state.figures.stalled_seconds < 30
    assert "starting" in caplog.text


def test_an_idle_source_and_one_of_another_bridge_are_none(looked):
    state, clock, stalls = looked
    state.serve(Session(SOURCE, 1, Committed(None, "", "", {}), lambda _session: None))
    pass_by(stalls, clock, 60)
    assert state.figures.stalled_seconds is None
    state.figures.hear({}, 10)
    state.end(SourcePhase.ELSEWHERE)
    pass_by(stalls, clock, 60)
    assert state.figures.stalled_seconds is None


def test_an_edge_with_batches_that_sends_none_is_a_stall(looked):
    state, clock, stalls = looked
    state.figures.hear({"unacknowledged_batches": 3}, 10)
    state.figures.settle(None)
    # Heard a minute ago, and not since.
    state.figures.heard_at -= 60
    pass_by(stalls, clock, STALLED_SECONDS + 2)
    assert state.figures.stalled_seconds is not None
