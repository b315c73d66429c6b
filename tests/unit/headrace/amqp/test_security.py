"""The other side of a connection."""

from types import SimpleNamespace

import pytest

from headrace.amqp.security import close_silent, is_answered, is_open, peer_of
from headrace.amqp.transport import Endpoint


@pytest.mark.parametrize(
    ("description", "closed"), [("local-idle-timeout expired", True), ("connection refused", False), (None, False)]
)
def test_only_a_transport_whose_other_side_was_silent_is_closed_at_once(description, closed):
    """Proton waits as long again before it gives such a connection up (R10)."""
    calls = []
    condition = SimpleNamespace(description=description)

    close_silent(SimpleNamespace(condition=condition, close_head=lambda: calls.append(1)))
    close_silent(SimpleNamespace(condition=None, close_head=lambda: calls.append(1)))

    assert bool(calls) == closed


def test_what_was_answered_may_have_ended_since_and_what_is_open_has_not():
    states = Endpoint.REMOTE_UNINIT, Endpoint.REMOTE_ACTIVE, Endpoint.REMOTE_CLOSED
    endpoints = [None, *(SimpleNamespace(state=Endpoint.LOCAL_ACTIVE | state) for state in states)]

    assert [is_answered(each) for each in endpoints] == [False, False, True, True]
    assert [is_open(each) for each in endpoints] == [False, False, True, False]


def test_a_connection_without_an_address_has_a_name_in_messages_too():
    assert peer_of(SimpleNamespace()) == "?"
    assert peer_of(SimpleNamespace(url=SimpleNamespace(host="10.0.0.1", port=5672))) == "10.0.0.1:5672"
