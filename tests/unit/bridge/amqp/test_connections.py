"""Pending connections are bounded in number and age, and a herd of edges attaches."""

import heapq
import random

import pytest

from bridge.amqp.connections import HANDSHAKE_SECONDS, MOST_KNOWN, MOST_STRANGERS, PENDING_SECONDS, PendingConnections
from headrace.waiting import Backoff


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def test_who_becomes_no_edge_in_time_is_sent_off():
    sent, clock = [], Clock()
    pending = PendingConnections(lambda connection, _reason: sent.append(connection), clock)
    pending.add(1, "one")
    clock.now += PENDING_SECONDS / 2
    pending.add(2, "two")
    pending.add(3, "three")
    pending.remove(3)
    clock.now += PENDING_SECONDS / 2
    pending.expire()
    assert sent == ["one"]
    clock.now += PENDING_SECONDS
    pending.expire()
    assert sent == ["one", "two"]
    assert len(pending) == 0


def test_of_too_many_strangers_the_newest_is_refused_unless_one_had_its_time():
    """K10: the oldest left, which was the one nearest to done."""
    sent, clock = [], Clock()
    pending = PendingConnections(lambda connection, _reason: sent.append(connection), clock)
    assert all(pending.add(number, number) for number in range(MOST_STRANGERS))
    assert not pending.add("late", "late")
    assert (sent, len(pending)) == (["late"], MOST_STRANGERS)
    clock.now += HANDSHAKE_SECONDS
    assert pending.add("later", "later")
    assert (sent, len(pending)) == (["late", 0], MOST_STRANGERS)


def test_who_is_authenticated_takes_no_stranger_s_place():
    sent = []
    pending = PendingConnections(lambda connection, _reason: sent.append(connection), Clock())
    for number in range(MOST_KNOWN + 2):
        pending.add(number, number)
        pending.authenticate(number)
    assert sent == [MOST_KNOWN, MOST_KNOWN + 1]
    assert pending.add("stranger", "stranger")
    pending.authenticate("of a connection that is gone")
    assert len(pending) == MOST_KNOWN + 1


def herd(edges, round_trip, cpu, seconds):
    """Return in how many seconds all of some edges attach that come back in the same one, None where they do not.

    A handshake takes seven round trips (TCP, TLS, SASL, Open, Begin and Attach), of which the last two are after it is known who
    it is, and `cpu` seconds of the bridge's one thread.
    """
    chance = random.Random(1)
    clock, events, attached, gone = Clock(), [], set(), set()
    backoffs = [Backoff(first=0.2, longest=10.0) for _ in range(edges)]

    def refuse(connection, _reason):
        edge, number = connection
        gone.add(number)
        heapq.heappush(events, (clock.now + round_trip / 2 + backoffs[edge].pause(), "connect", edge, 0))

    pending = PendingConnections(refuse, clock)
    began = busy = clock.now
    for edge in range(edges):
        heapq.heappush(events, (began + chance.random(), "connect", edge, 0))
    number = 0
    while events and len(attached) < edges:
        clock.now, kind, edge, ident = heapq.heappop(events)
        if kind == "connect":
            pending.expire()
            number += 1
            heapq.heappush(events, (clock.now + round_trip, "accept", edge, number))
        elif kind == "accept" and pending.add(ident, (edge, ident)):
            busy = max(busy, clock.now) + cpu
            heapq.heappush(events, (max(busy, clock.now + 3 * round_trip), "authenticated", edge, ident))
        elif kind == "authenticated" and ident not in gone:
            pending.authenticate(ident)
            heapq.heappush(events, (clock.now + 2 * round_trip, "attach", edge, ident))
        elif kind == "attach" and ident not in gone:
            pending.remove(ident)
            attached.add(edge)
        if clock.now - began > seconds:
            return None
    return clock.now - began


@pytest.mark.parametrize(("edges", "within"), [(1000, 25), (1500, 30), (5000, 80)])
def test_edges_that_come_back_in_the_same_second_all_attach(edges, within):
    """K10: of 1,500 edges over 200 ms, with 6 ms of the bridge's thread for each, none attached."""
    random.seed(1)
    took = herd(edges, 0.2, 0.006, 300)
    print(f"{edges} edges: {took} s")
    assert took is not None
    assert took < within
