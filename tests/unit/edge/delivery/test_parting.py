"""Why an interconnect ended a link or a connection: who has to act, and where to look."""

from types import SimpleNamespace

import pytest

from edge.delivery import parting
from headrace.configuration.edge import Interconnect
from headrace.errors import NeedsOperator, NotConnected

URL = "amqps://router:5671"


def condition(name, description=""):
    return SimpleNamespace(name=name, description=description)


def test_a_user_that_no_policy_names_is_told_from_nothing_by_the_condition_so_the_hint_names_both():
    found = parting.connection_closed(URL, condition("amqp:resource-limit-exceeded", "disallowed by local policy"))

    assert isinstance(found, NotConnected)
    for words in ("policy has no group", "common name of [interconnect] certificate", "maxConnections", "router's log"):
        assert words in found.hint
    assert parting.connection_closed(URL, condition("amqp:connection:forced")).hint == ""


def test_a_connection_that_ends_before_it_was_opened_may_be_a_limit_of_the_router():
    """`policy { maxConnections }` closes the socket without a reason (R7)."""
    eof = condition("amqp:connection:framing-error", "SSL Failure: unexpected eof while reading")

    for found in (
        parting.closed_silently(URL, opened=False),
        parting.way_lost(Interconnect(url=URL), URL, eof, opened=False),
    ):
        assert "closed the connection before it was opened" in found.message
        assert "speak TLS? A router that has reached its policy's maxConnections" in found.hint
    assert "AMQP without TLS?" in parting.closed_silently("amqp://router", opened=False).hint


def test_a_connection_that_was_up_did_not_end_during_the_handshake():
    """R11."""
    eof = condition("amqp:connection:framing-error", "SSL Failure: unexpected eof while reading")

    found = parting.way_lost(Interconnect(url=URL), URL, eof, opened=True)

    assert found.message.startswith(f"interconnect {URL}: the connection was lost: amqp:connection:framing-error")
    assert "handshake" not in found.message + found.hint
    assert parting.closed_silently(URL, opened=True).hint == ""


@pytest.mark.parametrize(
    "end",
    [lambda it: parting.rejected("jakarta/bank", it), lambda it: parting.link_closed(URL, "cdc/jakarta/bank", it)],
)
def test_a_batch_that_is_too_large_for_a_router_is_looked_for_in_its_log(end):
    """The bridge never saw it (R9)."""
    found = end(condition("amqp:link:message-size-exceeded"))

    assert isinstance(found, NeedsOperator)
    assert "maxMessageSize" in found.hint
    assert "Its own log" in found.hint
