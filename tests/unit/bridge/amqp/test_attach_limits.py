"""How many links a connection may attach: a flood ends it once, an honest peer that comes again every minute stays."""

import pytest

from bridge.amqp.connections import MOST_LINKS, MOST_LINKS_IN_VAIN, MOST_SHARING, AttachLimits

ONE, OTHER = 1, 2


@pytest.fixture
def now():
    return [100.0]


@pytest.fixture
def ended():
    return []


@pytest.fixture
def limits(now, ended):
    return AttachLimits(ended.append, clock=lambda: now[0])


def test_links_that_are_refused_end_their_connection_once(limits, ended):
    for number in range(3 * MOST_LINKS_IN_VAIN):
        limits.attach(ONE, "one", f"cdc/{number}")
        limits.refuse(ONE, "one")
    limits.attach(OTHER, "other", "cdc/1")
    assert ended == ["one"]
    assert limits.is_over(ONE)
    assert not limits.is_over(OTHER)
    limits.forget(ONE)
    assert not limits.is_over(ONE)
    assert len(limits) == 1


def test_links_to_the_same_address_end_their_connection(limits, ended):
    for _ in range(MOST_LINKS_IN_VAIN + 2):
        limits.attach(ONE, "one", "cdc/a/one")
    assert ended == ["one"]


def test_links_to_many_addresses_are_a_receivers_up_to_a_limit(limits, ended):
    for number in range(MOST_LINKS):
        limits.attach(ONE, "one", f"alerts/{number}")
    assert not ended
    limits.attach(ONE, "one", "alerts/more")
    assert ended == ["one"]


def test_links_of_a_receiver_may_share_an_address_up_to_a_limit(limits, ended):
    for _ in range(MOST_SHARING + MOST_LINKS_IN_VAIN):
        limits.attach(ONE, "one", "alerts/jakarta", MOST_SHARING)
    assert not ended
    limits.attach(ONE, "one", "alerts/jakarta", MOST_SHARING)
    assert ended == ["one"]


def test_an_edge_whose_requests_are_not_carried_stays_for_days(limits, ended, now):
    """It attaches two links each minute; counted together, its connection was lost after 17 hours."""
    for _ in range(2 * 24 * 60):
        for address in ("requests/a/one", "answers/a/one"):
            limits.attach(ONE, "one", address)
            limits.refuse(ONE, "one")
        now[0] += 60
    assert not ended


def test_time_opens_no_connection_again_that_was_ended(limits, now):
    for _ in range(MOST_LINKS_IN_VAIN + 2):
        limits.attach(ONE, "one", "cdc/a/one")
    now[0] += 3600
    limits.attach(ONE, "one", "cdc/a/one")
    assert limits.is_over(ONE)
