"""Waiting for sockets, however many descriptors there are."""

import os
import resource
import socket
import time
from types import SimpleNamespace

import pytest

from headrace.amqp.polling import NEWCOMERS, Polling


class Watched:
    def __init__(self, file, *, reading=True, writing=False, deadline=None):
        self.file, self.reading, self.writing, self.deadline = file, reading, writing, deadline

    def fileno(self):
        return self.file.fileno()


@pytest.fixture
def pair():
    near, far = socket.socketpair()
    with near, far:
        yield near, far


def test_what_can_be_read_or_written_is_told_and_nothing_else(pair):
    polling = Polling()
    near, far = Watched(pair[0], writing=True), Watched(pair[1])
    polling.add(near)
    polling.add(far)
    assert polling.select(0) == ([], [near], [])
    near.writing = False
    polling.update(near)
    pair[0].send(b"x")
    assert polling.select(5) == ([far], [], [])
    polling.remove(far)
    assert polling.select(0) == ([], [], [])


def test_the_next_deadline_ends_the_wait():
    polling = Polling()
    late = Watched(SimpleNamespace(fileno=lambda: -1))
    polling.add(late)
    # Proton's timer has no descriptor, and its deadline moves without an update.
    late.deadline = time.time() + 0.01
    while not (found := polling.select(60)[2]):
        pass
    assert found == [late]


def test_a_descriptor_that_is_used_again_belongs_to_the_new_one(pair):
    polling = Polling()
    former = Watched(pair[0])
    polling.add(former)
    polling.remove(former)
    latter = Watched(SimpleNamespace(fileno=pair[0].fileno))
    polling.add(latter)
    polling.remove(former)
    pair[1].send(b"x")
    assert polling.select(5)[0] == [latter]


def test_descriptors_that_select_does_not_know_are_watched(pair):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 2100)), hard))
    high = os.fdopen(_moved(pair[0]), "rb", buffering=0)
    with high:
        polling = Polling()
        watched = Watched(high)
        polling.add(watched)
        pair[1].send(b"x")
        assert polling.select(5)[0] == [watched]


def test_of_those_in_their_handshakes_a_few_have_their_turn_and_the_others_do_not_wait_for_them():
    pairs = [socket.socketpair() for _ in range(7)]
    polling = Polling()
    *newcomers, known, late = [Watched(near) for near, _ in pairs]
    for watched in (*newcomers, known, late):
        polling.expect(watched)
        polling.add(watched)
    polling.know(known)
    for _, far in pairs:
        far.send(b"x")
    polling.remove(late)
    turns = [polling.select(5)[0] for _ in range(5)]
    assert all(turn[0] is known and len(turn) == 1 + NEWCOMERS for turn in turns)
    # Each in turn.
    found = [newcomers.index(each) for turn in turns for each in turn[1:]]
    assert found == [0, 1, 2, 3, 4] * NEWCOMERS
    # When theirs are over, they are as all.
    for watched in newcomers:
        polling.know(watched)
    assert len(polling.select(5)[0]) == 6
    for near, far in pairs:
        near.close()
        far.close()


def _moved(end):
    os.dup2(end.fileno(), 2048)
    return 2048
