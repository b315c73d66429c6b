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
    first, two = sessions(queue, "a/one", "a/two")
    put(first)
    put(two)
    put(first)
    assert (queue.take(0), queue.take(0), queue.take(0)) == (first, two, None)
    put(first)
    assert queue.take(0) is None
    first.inbox.take()
    two.inbox.take()
    queue.give_back([first, two])
    assert (queue.take(0), queue.take(0)) == (first, None)


def test_isolated_sessions_are_taken_by_the_isolated_lane_only():
    queue = ReadyQueue()
    (suspect,) = sessions(queue, "a/one", isolated=True)
    put(suspect)
    assert queue.take(0) is None
    assert queue.take(0, isolated=True) is suspect


def test_a_closed_session_is_over_wherever_it_is_and_its_end_can_be_waited_for():
    queue = ReadyQueue()
    first, two = sessions(queue, "a/one", "a/two")
    put(first)
    put(two)
    assert queue.take(0) is first
    assert queue.close(two)
    assert not queue.close(two)
    assert queue.take(0) is None
    queue.close(first)
    assert not queue.wait_returned([first], 0.01)
    threading.Timer(0.05, lambda: queue.give_back([first])).start()
    assert queue.wait_returned([first], 20)
    assert len(queue) == 0
