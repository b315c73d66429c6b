"""The ready queue: one lane at a time for a session, in the order in which they got work; isolated ones wait separately."""

import threading

from bridge.model.delivery import Delivery
from bridge.model.ports import Committed
from bridge.source.session import ReadyQueue, Session


def sessions(queue, *names, isolated=False):
    made = [Session(name, 1, Committed(None, "", "", {}), queue.notify, isolated=isolated) for name in names]
    for each in made:
        each.dirty = False
    return made


def put(session):
    session.inbox.put(Delivery(1, 1, None, "", b""))


def test_a_session_is_held_by_one_lane_and_waits_again_when_more_came_meanwhile():
    queue = ReadyQueue()
    one, two = sessions(queue, "a/one", "a/two")
    put(one)
    put(two)
    put(one)
    assert (queue.take(0), queue.take(0), queue.take(0)) == (one, two, None)
    put(one)
    assert queue.take(0) is None
    one.inbox.take()
    two.inbox.take()
    queue.give_back([one, two])
    assert (queue.take(0), queue.take(0)) == (one, None)


def test_isolated_sessions_are_taken_by_the_isolated_lane_only():
    queue = ReadyQueue()
    (suspect,) = sessions(queue, "a/one", isolated=True)
    put(suspect)
    assert queue.take(0) is None
    assert queue.take(0, isolated=True) is suspect


def test_a_closed_session_is_over_wherever_it_is_and_its_end_can_be_waited_for():
    queue = ReadyQueue()
    one, two = sessions(queue, "a/one", "a/two")
    put(one)
    put(two)
    assert queue.take(0) is one
    assert queue.close(two)
    assert not queue.close(two)
    assert queue.take(0) is None
    queue.close(one)
    assert not queue.wait_returned([one], 0.01)
    threading.Timer(0.05, lambda: queue.give_back([one])).start()
    assert queue.wait_returned([one], 20)
    assert len(queue) == 0
