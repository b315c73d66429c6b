"""Progress: written before it is confirmed, often enough and not more."""

import pytest

from edge.delivery.outbox import Outbox
from edge.postgres.checkpoint import Commits, PostgresCheckpoint
from edge.progress.checkpoint import Progress, State
from headrace.errors import NeedsOperator, NoSpace
from headrace.position import Position
from tests.unit.edge.delivery.test_window import batch
from tests.unit.edge.progress.test_checkpoint import LSN, checkpoint

SOURCE = "jakarta/bank"


@pytest.fixture
def state(tmp_path):
    made = State(tmp_path, PostgresCheckpoint)
    made.write(start())
    return made


def start():
    return checkpoint(Position.start(7), 50)


@pytest.fixture
def outbox():
    return Outbox(limit_bytes=1000, tail=Position.start(7), confirmed=50)


@pytest.fixture
def progress(state, outbox):
    return Progress(state, start(), outbox, Commits().advanced)


def acknowledge(outbox, number):
    outbox.put([batch(number)])
    delivery, _ = outbox.take()
    outbox.accepted(delivery)


def test_what_may_be_told_is_on_disk_before(state, outbox, progress):
    acknowledge(outbox, 1)
    assert progress.confirmed == 50

    progress.save(1000.0)

    assert progress.confirmed == 100
    assert state.read(SOURCE).confirmed == 100
    assert state.read(SOURCE).position == Position(7, 1, 0)


def test_writes_are_spread_and_the_caller_is_told_when_the_next_is_due(state, outbox, progress):
    acknowledge(outbox, 1)
    assert progress.save(1e9) is None
    acknowledge(outbox, 2)

    soon = progress.save(progress._written_at + 0.01)

    assert 0 < soon <= 0.2 + 20 * progress._took
    assert state.read(SOURCE).confirmed == 100
    assert progress.save(progress._written_at + soon + 0.02) is None
    assert state.read(SOURCE).confirmed == 200


def test_a_write_that_took_long_puts_the_next_off_by_seconds_and_no_more(state, outbox, progress):
    acknowledge(outbox, 1)
    progress.save(1e9)
    acknowledge(outbox, 2)
    # As beside a burst of others' writes.
    progress._took = 4.0

    assert progress.save(progress._written_at + 1.0) == pytest.approx(4.0)
    assert progress.save(progress._written_at + 5.1) is None
    assert state.read(SOURCE).confirmed == 200


def test_nothing_new_writes_nothing(state, progress):
    state.path.unlink()

    assert progress.save(1e9) is None
    progress.save_now()

    assert state.read(SOURCE) is None


def test_restart_writes_what_is_acknowledged_and_chains_to_it(state, outbox, progress):
    acknowledge(outbox, 1)

    assert progress.restart() == Position(7, 1, 0)
    assert state.read(SOURCE).position == Position(7, 1, 0)


def test_disk_that_refuses_calls_an_operator_and_tells_nothing(state, outbox, progress):
    acknowledge(outbox, 1)
    state.path.with_suffix(".new").mkdir()

    with pytest.raises(NeedsOperator, match="cannot be written"):
        progress.save_now()

    assert progress.confirmed == 50


def test_full_disk_tells_nothing_and_is_tried_again(state, outbox, progress, monkeypatch, caplog):
    acknowledge(outbox, 1)

    def full(_checkpoint):
        raise NoSpace("no space")

    with monkeypatch.context() as patched:
        patched.setattr(state, "write", full)
        progress.save_now()
        progress.save_now()
        with pytest.raises(NoSpace):
            progress.restart()
    assert progress.confirmed == 50
    assert caplog.text.count("no space") == 1

    progress.save_now()

    assert progress.confirmed == state.read(SOURCE).confirmed == 100


def test_log_of_another_server_goes_on_from_a_lower_place(state, outbox, progress):
    outbox.note(500)
    progress.save_now()

    progress.replace(checkpoint(Position.start(7), 400, timeline=2), until=450)
    progress.save_now()

    assert progress.confirmed == state.read(SOURCE).confirmed == 400
    assert state.read(SOURCE).timeline == 2


def test_log_of_another_server_is_refused_when_more_was_sent_than_it_has(state, outbox, progress):
    outbox.put([batch(1), batch(2)])
    outbox.take()
    outbox.take()

    with pytest.raises(NeedsOperator, match=f"left at {2:016x}, and batches up to {Position(7, 2, 0)} were sent"):
        progress.replace(checkpoint(Position.start(7), 1, timeline=2), until=2)

    assert state.read(SOURCE).timeline == 1


def test_large_lsns_pass(outbox, state):
    progress = Progress(state, checkpoint(Position.start(7), LSN), outbox, Commits().advanced)
    outbox.note(LSN + 9)

    progress.save_now()

    assert progress.confirmed == LSN + 9
