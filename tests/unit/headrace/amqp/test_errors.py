"""Why an interconnect ended a link or a connection: who has to act, and where to look."""

from types import SimpleNamespace

import pytest

from headrace.amqp.errors import Reasons, Role, hide_password
from headrace.configuration.sections import Client
from headrace.errors import NeedsOperator, NotConnected

URL = "amqps://router:5671"
ROLE = Role(
    "edge", "send to", if_not_found="Is it in the file?", if_too_large="Raise maxMessageSize. Its own log names it."
)


def condition(name, description=""):
    return SimpleNamespace(name=name, description=description)


def reasons(url=URL, role=ROLE):
    return Reasons(role, url, Client())


def test_a_user_that_no_policy_names_is_told_from_nothing_by_the_condition_so_the_hint_names_both():
    """R6, R7."""
    result = reasons().connection_closed(condition("amqp:resource-limit-exceeded", "disallowed by local policy"))

    assert isinstance(result, NotConnected)
    for words in ("policy has no group", "common name of [interconnect] certificate", "maxConnections", "router's log"):
        assert words in result.hint
    assert reasons().connection_closed(condition("amqp:connection:forced")).hint == ""


def test_a_connection_that_ends_before_it_was_opened_may_be_a_limit_of_the_router():
    """`policy { maxConnections }` closes the socket without a reason (R7)."""
    eof = condition("amqp:connection:framing-error", "SSL Failure: unexpected eof while reading")

    for each in (reasons().closed_silently(opened=False), reasons().lost(eof, opened=False)):
        assert "closed the connection before it was opened" in each.message
        assert "speak TLS? A router that has reached its policy's maxConnections" in each.hint
    assert "AMQP without TLS?" in reasons("amqp://router").closed_silently(opened=False).hint


def test_a_connection_that_was_up_did_not_end_during_the_handshake():
    """R11."""
    eof = condition("amqp:connection:framing-error", "SSL Failure: unexpected eof while reading")

    result = reasons().lost(eof, opened=True)

    assert result.message.startswith(f"interconnect {URL}: the connection was lost: amqp:connection:framing-error")
    assert "handshake" not in result.message + result.hint
    assert reasons().closed_silently(opened=True).hint == ""


def test_a_message_that_is_too_large_for_a_router_is_looked_for_in_its_log():
    """The bridge never saw it (R9)."""
    result = reasons().link_closed("cdc/jakarta/bank", condition("amqp:link:message-size-exceeded"))

    assert isinstance(result, NeedsOperator)
    assert "maxMessageSize" in result.hint
    assert "own log" in result.hint
    assert "maxMessageSize" in Role("bridge", "send to").if_too_large


@pytest.mark.parametrize(
    ("role", "says"),
    [
        (ROLE, "does not let this edge send to a"),
        (Role("bridge", "receive from"), "not let this bridge receive from a"),
    ],
)
def test_a_link_that_is_refused_is_an_operators_matter_in_the_words_of_who_attached(role, says):
    for refusal in (condition("amqp:unauthorized-access"), condition("amqp:not-allowed", "AMQ229032: no permission")):
        result = reasons(role=role).link_closed("a", refusal)
        assert isinstance(result, NeedsOperator)
        assert says in result.message


def test_an_unknown_address_has_the_hint_of_the_role_and_no_other_lost_link_has():
    assert reasons().link_closed("a", condition("amqp:not-found")).hint == "Is it in the file?"
    assert reasons().link_closed("a", condition("amqp:link:stolen")).hint == ""
    assert reasons().link_closed("a", None).message == f"interconnect {URL} closed the link to a"


def test_a_shown_url_has_no_user_and_no_password():
    assert hide_password("amqps://bridge:secret@router.example:5671/path") == "amqps://router.example:5671"
    assert hide_password("amqp://router.example") == "amqp://router.example"
