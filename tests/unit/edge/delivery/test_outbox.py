"""The outbox: each side wakes the other, and a problem of any thread reaches the capturing one."""

import pytest

from edge.delivery.outbox import Outbox
from headrace.errors import NeedsOperator
from headrace.position import Position
from tests.unit.edge.delivery.test_window import batch


@pytest.fixture
def rung():
    return []


@pytest.fixture
def outbox(rung):
    made = Outbox(limit_bytes=25, tail=Position.start(7), confirmed=0)
    made.wake_sender = lambda: rung.append("sender")
    made.wake_capture = lambda: rung.append("capture")
    return made


def test_putting_wakes_the_sender_and_acknowledging_wakes_capture(outbox, rung):
    outbox.put([batch(1), batch(2)])
    (first, _), (second, _) = outbox.take(), outbox.take()
    assert rung == ["sender"]

    outbox.accepted(second)
    assert rung == ["sender"]
    outbox.accepted(first)
    assert rung == ["sender", "capture"]


def test_full_from_its_limit_on_until_something_is_acknowledged(outbox):
    outbox.put([batch(1), batch(2)])
    assert not outbox.full
    outbox.put([batch(3)])
    assert outbox.full

    delivery, _ = outbox.take()
    outbox.accepted(delivery)

    assert not outbox.full
    assert (outbox.batches, outbox.bytes) == (2, 20)


def test_first_problem_is_raised_for_the_capturing_thread(outbox, rung):
    outbox.check()
    outbox.fail(NeedsOperator("first"))
    outbox.fail(NeedsOperator("second"))

    with pytest.raises(NeedsOperator, match="first"):
        outbox.check()
    assert rung == ["capture", "capture"]


def test_the_next_batch_is_left_open_for_a_part_of_what_the_last_one_took(outbox, monkeypatch):
    now = 1000.0
    monkeypatch.setattr("time.time", lambda: now)
    outbox.put([batch(1)])
    for number, took, linger in ((1, 0.004, 0.004), (2, 0.1, 0.025), (3, 60.0, 0.05)):
        delivery, _ = outbox.take()
        now += took
        outbox.accepted(delivery)
        # With nothing on the way there is nothing to wait for.
        assert outbox.linger == 0.0
        outbox.put([batch(number + 1)])
        assert outbox.linger == pytest.approx(linger)
