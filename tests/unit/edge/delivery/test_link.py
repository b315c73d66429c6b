"""A batch that was rejected: who has to act, and where to look."""

from types import SimpleNamespace

from edge.delivery.link import rejected
from headrace.errors import NeedsOperator


def condition(name, description=""):
    return SimpleNamespace(name=name, description=description)


def test_a_batch_that_the_bridge_rejects_is_looked_for_at_the_bridge():
    result = rejected("jakarta/bank", condition("headrace:stale-epoch", "an older epoch"))

    assert isinstance(result, NeedsOperator)
    assert result.message == "the far side rejected a batch of jakarta/bank: headrace:stale-epoch an older epoch"
    assert "See the bridge's log" in result.hint


def test_a_batch_that_is_too_large_for_a_router_is_looked_for_in_its_log():
    """The bridge never saw it (R9)."""
    result = rejected("jakarta/bank", condition("amqp:link:message-size-exceeded"))

    assert isinstance(result, NeedsOperator)
    assert "maxMessageSize above [records] largest_megabytes" in result.hint
    assert "Its own log" in result.hint
