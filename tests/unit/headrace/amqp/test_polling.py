"""Waiting for sockets, however many descriptors and connections there are."""

import os
import resource
import socket
import time

import pytest

from headrace.amqp.polling import NEWCOMERS, READ, WRITE, Polling


@pytest.fixture
def pair():
    near, far = socket.socketpair()
    with near, far:
        yield near, far


@pytest.fixture
def polling():
    polling = Polling()
    yield polling
    polling.close()


def ready(polling, calls):
    """Wait once, without waiting for long, and return what was called."""
    polling.at(0, lambda: None)
    calls.clear()
    polling.wait()
    return calls


def test_what_can_be_read_or_written_is_called_and_nothing_else(polling, pair):
    calls = []
    near, far = (each.fileno() for each in pair)
    polling.watch(near, READ | WRITE, lambda *can: calls.append(("near", *can)))
    polling.watch(far, READ, lambda *can: calls.append(("far", *can)))
    assert ready(polling, calls) == [("near", False, True)]
    polling.watch(near, READ, lambda *can: calls.append(("near", *can)))
    assert ready(polling, calls) == []
    pair[0].send(b"x")
    assert ready(polling, calls) == [("far", True, False)]
    polling.forget(far)
    assert ready(polling, calls) == []


def test_one_that_has_failed_can_be_read_or_written_as_it_waits_for(polling, pair):
    calls = []
    polling.watch(pair[0].fileno(), WRITE, lambda *can: calls.append(can))
    pair[1].close()
    assert ready(polling, calls) == [(False, True)]
    polling.watch(pair[0].fileno(), READ, lambda *can: calls.append(can))
    assert ready(polling, calls)[0][0]


def test_steps_are_taken_when_they_are_due_in_order(polling):
    steps, now = [], time.monotonic()
    polling.at(now + 0.02, lambda: steps.append("second"))
    polling.at(now + 0.01, lambda: steps.append("first"))
    polling.at(now + 60, lambda: steps.append("later"))
    while len(steps) < 2:
        polling.wait()
    assert steps == ["first", "second"]
    assert time.monotonic() >= now + 0.02


def test_a_step_that_plans_another_does_not_hold_up_what_is_ready(polling, pair):
    calls = []
    polling.watch(pair[0].fileno(), READ, lambda *_: calls.append("read"))
    polling.at(0, lambda: polling.at(time.monotonic() + 60, lambda: calls.append("late")))
    pair[1].send(b"x")
    polling.wait()
    assert calls == ["read"]


def test_one_that_is_forgotten_by_the_first_of_a_turn_is_not_called(polling, pair):
    calls = []

    def call(number, other):
        calls.append(number)
        polling.forget(pair[other].fileno())

    for number, other in ((0, 1), (1, 0)):
        polling.watch(pair[number].fileno(), WRITE, lambda *_, number=number, other=other: call(number, other))
    polling.wait()
    assert len(calls) == 1


def test_a_descriptor_that_is_used_again_belongs_to_the_new_one(polling, pair):
    calls = []
    descriptor = pair[0].fileno()
    polling.watch(descriptor, READ, lambda *_: calls.append("former"))
    polling.forget(descriptor)
    polling.forget(descriptor)
    polling.watch(descriptor, READ, lambda *_: calls.append("latter"))
    pair[1].send(b"x")
    assert ready(polling, calls) == ["latter"]


def test_descriptors_that_select_does_not_know_are_watched(polling, pair):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 2100)), hard))
    calls = []
    os.dup2(pair[0].fileno(), 2048)
    with os.fdopen(2048, "rb", buffering=0):
        polling.watch(2048, READ, lambda *can: calls.append(can))
        pair[1].send(b"x")
        assert ready(polling, calls) == [(True, False)]
        polling.forget(2048)


def test_of_those_in_their_handshakes_a_few_have_their_turn_and_the_others_do_not_wait_for_them(polling):
    pairs = [socket.socketpair() for _ in range(7)]
    calls = []
    for number, (near, far) in enumerate(pairs):
        polling.expect(near.fileno())
        polling.watch(near.fileno(), READ, lambda *_, number=number: calls.append(number))
        far.send(b"x")
    *newcomers, known, late = [near.fileno() for near, _ in pairs]
    polling.know(known)
    polling.know(late)
    polling.forget(late)
    turns = [list(ready(polling, calls)) for _ in range(5)]
    assert all(turn[0] == 5 and len(turn) == 1 + NEWCOMERS for turn in turns)
    # Each in turn.
    assert [number for turn in turns for number in turn[1:]] == [0, 1, 2, 3, 4] * NEWCOMERS
    # When theirs are over, they are as all.
    for newcomer in newcomers:
        polling.know(newcomer)
    assert sorted(ready(polling, calls)) == [0, 1, 2, 3, 4, 5]
    for near, far in pairs:
        polling.forget(near.fileno())
        near.close()
        far.close()


@pytest.mark.parametrize("connections", [10, 1000])
def test_x4_a_turn_looks_at_what_is_ready_alone(polling, connections):
    """The cost of a turn was that of all connections: 74 µs at 500, 835 at 5,000."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 2100)), hard))
    looks, pipes = [], [os.pipe() for _ in range(connections // 2)]
    try:
        for read_end, _ in pipes:
            polling.watch(read_end, READ, lambda *can: looks.append(can))
            polling.at(time.monotonic() + 600, lambda: looks.append("due"))
        os.write(pipes[0][1], b"x")
        polling.wait()
        assert looks == [(True, False)]
    finally:
        for pipe in pipes:
            polling.forget(pipe[0])
            for end in pipe:
                os.close(end)
