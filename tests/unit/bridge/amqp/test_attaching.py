"""A bridge that connects out attaches to the addresses of the sources that it serves, and to no others."""

from types import SimpleNamespace

import pytest

from bridge.amqp.authorization import Identities
from bridge.amqp.connections import PendingConnections
from bridge.amqp.links import Links

ONE, TWO = SOURCES = ("a/one", "a/two")


class Outgoing:
    """A connection to a router that only remembers what is attached."""

    def __init__(self):
        self.attached = []
        self.connection = object()
        self.loop = self

    def attach_receiver(self, _connection, address, _name):
        self.attached.append(address)
        return SimpleNamespace(connection=self.connection)


@pytest.fixture
def links():
    return Links(
        "bridge",
        SOURCES,
        credit=8,
        identities=Identities({}, demanded=False),
        pending=PendingConnections(lambda _connection, _why: None),
        later=lambda _seconds, step: step(),
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
