"""A bridge that connects out attaches to the addresses of the sources that it serves, and to no others."""

from types import SimpleNamespace

import pytest

from bridge.amqp.authorization import Identities
from bridge.amqp.connections import PendingConnections
from bridge.amqp.links import Links

ONE, TWO = SOURCES = ("a/one", "a/two")


class Outgoing:
    """A connection to a router that only remembers what is attached."""

    remote_container = "router"

    def __init__(self):
        self.attached = []
        self.connection = self.loop = self

    def attach_receiver(self, _connection, address, _name):
        self.attached.append(address)
        self.link = Link(self, address)
        return self.link


class Link:
    """A link that arrives in full, from a router."""

    is_sender, is_receiver, credit = False, True, 8

    def __init__(self, connection, address):
        self.connection, self.remote_source = connection, SimpleNamespace(address=address)
        self.closed = False

    def flow(self, _count):
        pass

    def recv(self, size):
        return b"x" * size

    def close(self):
        self.closed = True


@pytest.fixture
def timers():
    return []


@pytest.fixture
def links(timers):
    return Links(
        "bridge",
        SOURCES,
        credit=8,
        identities=Identities({}, demanded=False),
        pending=PendingConnections(lambda _connection, _why: None),
        later=lambda _seconds, step: timers.append(step),
    )


def test_nothing_is_attached_before_the_group_has_assigned_a_source(links):
    outgoing = Outgoing()
    links.attach_by(outgoing)
    assert outgoing.attached == []
    links.admit(TWO)
    assert outgoing.attached == ["cdc/a/two"]


def test_the_next_connection_attaches_to_what_is_served_then(links):
    links.attach_by(Outgoing())
    links.admit(ONE)
    links.admit(TWO)
    links.refuse(ONE, "amqp:link:redirect", "served by another bridge")
    links.drop_all()
    outgoing = Outgoing()
    links.attach_by(outgoing)
    assert outgoing.attached == ["cdc/a/two"]


@pytest.mark.parametrize("names_reason", [False, True])
@pytest.mark.parametrize("limit", ["_LARGEST_MESSAGE", "_MOST_ARRIVING"])
def test_a_link_that_is_closed_for_its_size_is_attached_again_once(links, timers, limit, names_reason, monkeypatch):
    """Where the other side's answer named no reason, nothing followed: the source stood still until the next connection."""
    monkeypatch.setattr(f"bridge.amqp.links.{limit}", 1000)
    outgoing = Outgoing()
    links.attach_by(outgoing)
    links.admit(ONE)
    link = outgoing.link
    links.opened(link, None)
    links.delivered(link, SimpleNamespace(aborted=False, readable=True, pending=2000, partial=True))
    assert (link.closed, links.credit.of(ONE)) == (True, None)
    if names_reason:
        links.closing(link, "amqp:link:detach-forced")
    timers.pop(0)()
    links.opened(outgoing.link, None)
    while timers:
        timers.pop(0)()
    assert outgoing.attached == ["cdc/a/one"] * 2
    assert links.credit.of(ONE).link is outgoing.link


def test_a_link_that_is_closed_as_its_source_is_another_bridges_is_not_attached_again(links, timers):
    outgoing = Outgoing()
    links.attach_by(outgoing)
    links.admit(ONE)
    links.opened(outgoing.link, None)
    links.refuse(ONE, "amqp:link:redirect", "served by another bridge")
    while timers:
        timers.pop(0)()
    assert outgoing.attached == ["cdc/a/one"]
