"""Handling messages one after the other: what is accepted, what is released with those that wait, what is known already."""

import threading

import pytest

from headrace.amqp.links import Accept, Reject, Release
from headrace.receive.message import Inbox, Received, Waiting
from headrace.receive.receiver import Rules, _handle_all


class Connection:
    def __init__(self):
        self.outcomes = {}

    def settle(self, ticket, outcome):
        self.outcomes[ticket] = outcome


def message(number):
    return Received(f"alerts/0/{number}", "alerts/jakarta", "jakarta/1", 0, {}, b"", tombstone=False)


@pytest.fixture
def arrived():
    """Return an inbox with the messages 0 to 3, each with its ticket, and their connection."""
    inbox, connection = Inbox(), Connection()
    for number in range(4):
        inbox.put(Waiting(connection, number, message(number)))
    return inbox, connection


def run(inbox, handle, rules):
    worked = threading.Event()
    worked.set()
    return _handle_all(inbox, handle, rules, threading.Event(), worked)


def test_each_is_accepted_after_it_was_handled(arrived):
    inbox, connection = arrived
    seen = []

    def handle(each):
        assert len(connection.outcomes) == len(seen)
        seen.append(each.id)
        return True

    assert run(inbox, handle, Rules(messages=3))
    assert seen == [f"alerts/0/{number}" for number in range(3)]
    assert connection.outcomes == {0: Accept(), 1: Accept(), 2: Accept()}


def test_what_waits_is_released_with_one_that_was_not_handled_so_that_order_is_kept(arrived):
    inbox, connection = arrived
    seen = []

    def handle(each):
        seen.append(each.id)
        return each.id != "alerts/0/1"

    assert run(inbox, handle, Rules(timeout=0))
    assert seen == ["alerts/0/0", "alerts/0/1"]
    assert connection.outcomes == {0: Accept(), 1: Release(), 2: Release(), 3: Release()}


def test_a_message_that_was_accepted_is_not_handled_again(arrived):
    inbox, connection = arrived
    inbox.put(Waiting(connection, 9, message(0)))
    seen = []
    assert run(inbox, lambda each: seen.append(each.id) or True, Rules(timeout=0))
    assert (len(seen), connection.outcomes[9]) == (4, Accept())


def test_failures_stop_it_or_make_dead_letters_as_it_is_told(arrived):
    inbox, connection = arrived
    assert not run(inbox, lambda _each: False, Rules(on_failure="stop"))
    # Those that wait are released too, by its caller or here.
    assert connection.outcomes[0] == Release()
    inbox.put(Waiting(connection, 5, message(5)))
    assert run(inbox, lambda _each: False, Rules(on_failure="reject", timeout=0))
    assert isinstance(connection.outcomes[5], Reject)


def test_fewer_than_were_wanted_is_no_success():
    assert not run(Inbox(), lambda _each: True, Rules(messages=1, timeout=0))
