"""Who may attach for requests and answers: whoever may send a source's changes, at the bridge that serves the source."""

from types import SimpleNamespace

import pytest

from bridge.amqp.authorization import Identities
from bridge.amqp.request_links import NOT_CARRIED, RequestLinks, source_of
from bridge.requests.pending import PendingRequests

SOURCE = "jakarta/bank"


def link(address, *, is_sender, settled=False):
    ends = {"remote_source": address if is_sender else None, "remote_target": None if is_sender else address}
    made = {name: SimpleNamespace(address=each) for name, each in ends.items()}
    return SimpleNamespace(is_sender=is_sender, remote_snd_settle_mode=int(settled), **made)


@pytest.fixture
def links():
    refused = {"jakarta/shop": ("amqp:link:redirect", "another bridge has it")}
    request_links = RequestLinks(
        "bridge",
        {SOURCE, "jakarta/shop"},
        Identities({"edge-3": ["london/*"]}, demanded=True),
        refused,
        lambda _seconds, _step: None,
    )
    request_links.carry(PendingRequests(lambda _source: True, lambda _part: None), lambda *_arguments: None)
    return request_links


def test_addresses_of_requests_and_answers_are_known_in_their_own_direction_alone():
    assert source_of(link(f"requests/{SOURCE}", is_sender=True)) == SOURCE
    assert source_of(link(f"answers/{SOURCE}", is_sender=False)) == SOURCE
    # Nobody sends requests through a bridge, or reads answers from it.
    for address, is_sender in ((f"requests/{SOURCE}", False), (f"answers/{SOURCE}", True), (f"cdc/{SOURCE}", False)):
        assert source_of(link(address, is_sender=is_sender)) is None
    assert source_of(link(None, is_sender=True)) is None


@pytest.mark.parametrize(
    ("source", "identity", "condition"),
    [
        (SOURCE, SOURCE, None),
        (SOURCE, "london/bank", "amqp:unauthorized-access"),
        (SOURCE, "edge-3", "amqp:unauthorized-access"),
        (SOURCE, None, "amqp:unauthorized-access"),
        # Who may not know is not shown which sources there are.
        ("paris/bank", SOURCE, "amqp:unauthorized-access"),
        ("london/bank", "edge-3", "amqp:not-found"),
        ("jakarta/shop", "jakarta/shop", "amqp:link:redirect"),
    ],
)
def test_a_source_attaches_for_itself(links, source, identity, condition):
    for is_sender in (True, False):
        address = f"{'requests' if is_sender else 'answers'}/{source}"
        refusal = links.refusal(link(address, is_sender=is_sender), source, identity)
        assert (refusal and refusal[0]) == condition


def test_links_whose_deliveries_nobody_acknowledges_are_refused(links):
    refusal = links.refusal(link(f"answers/{SOURCE}", is_sender=False, settled=True), SOURCE, SOURCE)
    assert refusal[0] == "amqp:not-allowed"


def test_a_bridge_that_carries_no_requests_refuses_all():
    identities = Identities({}, demanded=False)
    bare = RequestLinks("bridge", {SOURCE}, identities, {}, lambda _seconds, _step: None)
    assert bare.refusal(link(f"requests/{SOURCE}", is_sender=True), SOURCE, None) == NOT_CARRIED


def test_a_link_for_answers_that_is_closed_for_its_size_is_attached_again(links):
    """Where the bridge connected out, nothing followed the other side's answer: no answer came until the next request."""
    attached, timers = [], []
    links._later = lambda _seconds, step: timers.append(step)
    links._pending.sources = lambda: [SOURCE]

    class Outgoing:
        def attach_receiver(self, _connection, _address, _name):
            attached.append(SimpleNamespace(connection=self, flow=lambda _count: None, credit=8, close=lambda: None))
            return attached[-1]

    outgoing = Outgoing()
    outgoing.connection = outgoing.loop = outgoing
    links.attach_by(outgoing)
    attached[0].recv = lambda size: b"x" * size
    links.delivered(attached[0], SimpleNamespace(aborted=False, readable=True, pending=300_000, partial=True))
    while timers:
        timers.pop(0)()
    assert len(attached) == 2
