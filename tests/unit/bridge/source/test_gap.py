"""A gap: said once, slowed down while it stays, forgotten when it is closed."""

import logging

import pytest

from bridge.model.chain import Gap
from bridge.source.state import GapWatch
from headrace.position import Position

TAIL = Position(1_700_000_000, 10, 0)
MISSING = Position(1_700_000_000, 11, 0)
BEHIND = Position(1_700_000_000, 12, 0)


def test_an_overtaken_batch_costs_no_pause_and_no_alarm(caplog):
    with caplog.at_level(logging.INFO):
        watch = GapWatch("jakarta/bank")
        pauses = [watch.note_gap(Gap(MISSING, TAIL)), watch.note_gap(Gap(BEHIND, TAIL))]
        watch.note_closed(TAIL)
    assert pauses == [0.0, 0.0]
    assert [record.levelname for record in caplog.records] == ["INFO"]


def test_a_gap_that_stays_is_slowed_down_each_time_the_edge_comes_back_to_it():
    watch = GapWatch("jakarta/bank")
    pauses = []
    for _ in range(12):
        pauses.append(watch.note_gap(Gap(MISSING, TAIL)))
        watch.note_gap(Gap(BEHIND, TAIL))
    assert pauses[0] == 0.0
    assert all(pause > 0 for pause in pauses[1:])
    assert 0.5 <= max(pauses) <= 5.0


def test_a_gap_that_stays_is_said_once_with_both_positions(caplog, monkeypatch):
    clock = iter(range(0, 1000, 4))
    monkeypatch.setattr("bridge.source.state.time.monotonic", lambda: next(clock))
    watch = GapWatch("jakarta/bank")
    for _ in range(20):
        watch.note_gap(Gap(MISSING, TAIL))
    (said,) = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert "jakarta/bank" in said
    assert str(MISSING) in said
    assert str(TAIL) in said
    assert "headrace edge init --adopt" in said


def test_a_source_of_which_nothing_is_known_is_said_at_once(caplog):
    watch = GapWatch("jakarta/bank")
    watch.note_gap(Gap(MISSING, None))
    watch.note_gap(Gap(MISSING, None))
    (said,) = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert str(MISSING) in said
    assert "new epoch" in said


@pytest.mark.parametrize("tail", [TAIL, None])
def test_a_closed_gap_starts_over(tail):
    watch = GapWatch("jakarta/bank")
    for _ in range(5):
        watch.note_gap(Gap(MISSING, tail))
    watch.note_closed(MISSING)
    assert watch.note_gap(Gap(BEHIND, TAIL)) == 0.0
