"""Events of Proton's that come in an order which only a busy machine or a lost connection shows; without sockets."""

import pytest
from proton import Collector, Connection, Event, Transport

from bridge.amqp.listener import Listener
from bridge.amqp.receiver import Receiver
from headrace.configuration.bridge import Interconnect

SOURCE = "jakarta/bank"


def attach_bytes(address):
    """Return what a client sends that opens a connection and attaches a sender, all at once."""
    connection, transport = Connection(), Transport()
    connection.container = "edge"
    transport.bind(connection)
    connection.open()
    session = connection.session()
    session.open()
    sender = session.sender("one")
    sender.source.address = sender.target.address = address
    sender.open()
    return transport.peek(transport.pending())


@pytest.mark.parametrize("address", [f"cdc/{SOURCE}", "cdc/oslo/unknown"])
def test_a_link_whose_connection_is_lost_while_it_opens_is_forgotten(address):
    interconnect = Interconnect(listen="127.0.0.1:5672")
    receiver = Receiver(interconnect, [SOURCE], "bridge")
    listener = Listener(interconnect, receiver._identities, receiver.links, receiver.pending, "bridge")
    collector, connection, transport = Collector(), Connection(), Transport(Transport.SERVER)
    connection.collect(collector)
    transport.bind(connection)
    transport.push(attach_bytes(address))

    # When the connection is gone before the events of the attach are dispatched, as after an idle timeout on a busy machine.
    lost = False
    seen = []
    while (event := collector.peek()) is not None:
        seen.append(event.type)
        event.dispatch(listener)
        if event.type == Event.LINK_REMOTE_OPEN and not lost:
            lost = True
            transport.close_tail()
            transport.close_head()
            transport.unbind()
        collector.pop()

    assert Event.LINK_LOCAL_OPEN in seen
    assert receiver.links.credit.all() == []
