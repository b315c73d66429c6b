"""Events of Proton's that come in an order which only a busy machine or a lost connection shows; without sockets."""

import pytest
from cproton_ffi import lib
from proton import Collector, Connection, Event, Transport

from bridge.amqp.connections import MOST_LINKS_IN_VAIN
from bridge.amqp.listener import Listener
from bridge.amqp.receiver import Receiver
from bridge.amqp.sender_links import REJECTED
from bridge.deliveries.outbox import Outbox
from bridge.deliveries.record import DeliveryMetrics, Record
from bridge.requests.pending import PendingRequests
from headrace.configuration.bridge import Interconnect
from headrace.configuration.sections import Delivery
from headrace.requests import ANSWERS, REQUESTS

SOURCE = "jakarta/bank"


def attach_bytes(*addresses):
    """Return what a client sends that opens a connection and attaches to addresses at once: it receives requests and alerts."""
    connection, transport = Connection(), Transport()
    connection.container = "edge"
    transport.bind(connection)
    connection.open()
    session = connection.session()
    session.open()
    for number, address in enumerate(addresses):
        make = session.receiver if address.startswith((REQUESTS, "alerts/")) else session.sender
        link = make(f"{address}/{number}")
        link.source.address = link.target.address = address
        link.open()
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


def dispatch(collector, listener):
    while (event := collector.peek()) is not None:
        event.dispatch(listener)
        collector.pop()


@pytest.mark.parametrize(("address", "stays"), [("alerts/jakarta", True), (f"cdc/{SOURCE}", False)])
def test_many_links_of_one_address_are_a_receivers_and_no_edges(address, stays):
    """A connection with fifty consumers of one queue, or one with a new consumer for each message, was lost every minute."""
    interconnect = Interconnect(listen="127.0.0.1:5672")
    receiver = Receiver(interconnect, [SOURCE], "bridge")
    receiver.links.deliveries.outboxes = [Outbox("alerts", Delivery(address="alerts/{region}"), DeliveryMetrics())]
    listener = Listener(interconnect, receiver._identities, receiver.links, receiver.pending, "bridge")
    collector, connection, transport = Collector(), Connection(), Transport(Transport.SERVER)
    connection.collect(collector)
    transport.bind(connection)
    transport.push(attach_bytes(*[address] * (MOST_LINKS_IN_VAIN + 10)))
    dispatch(collector, listener)
    assert (not transport.closed) == stays
    assert not stays or len(receiver.links.deliveries._links[address]) == MOST_LINKS_IN_VAIN + 10


def test_a_connection_that_is_lost_costs_no_look_at_the_others_x3(monkeypatch):
    """A thousand that were lost at once blocked the thread for 5 s, with requests for 14, and living edges dropped."""
    # given edges, each with a connection for changes, requests and answers
    sources = [f"jakarta/shop-{number}" for number in range(40)]
    interconnect = Interconnect(listen="127.0.0.1:5672")
    receiver = Receiver(interconnect, sources, "bridge")
    receiver.carry(PendingRequests(lambda _source: True, lambda _part: None), lambda *_arguments: None)
    listener = Listener(interconnect, receiver._identities, receiver.links, receiver.pending, "bridge")
    edges = []
    for source in sources:
        collector, connection, transport = Collector(), Connection(), Transport(Transport.SERVER)
        connection.collect(collector)
        transport.bind(connection)
        transport.push(attach_bytes(f"cdc/{source}", ANSWERS + source, REQUESTS + source))
        dispatch(collector, listener)
        edges.append((collector, connection, transport))
    links = receiver.links

    def attached():
        return (
            [feed.source for feed in links.credit.all()],
            list(links.requests._answers),
            [each.address.removeprefix(REQUESTS) for each in links.requests.senders._all()],
        )

    assert attached() == (sources, sources, sources)
    comparisons = []
    compare = Connection.__eq__
    monkeypatch.setattr(
        Connection, "__eq__", lambda one, other: comparisons.append(1) or compare(one, other), raising=False
    )
    # when all but one are lost
    for collector, _, transport in edges[:-1]:
        transport.close_tail()
        transport.close_head()
        dispatch(collector, listener)
    # then that one is as it was, and connections were compared a few times for each that was lost
    assert attached() == ([sources[-1]],) * 3
    assert len(comparisons) < 5 * len(sources)
    assert list(listener._connections) == [edges[-1][1]]


def test_an_outcome_whose_words_cannot_be_read_leaves_no_record_on_the_way():
    """Its record was neither sent again nor a dead letter, and nothing behind it was committed."""
    interconnect = Interconnect(listen="127.0.0.1:5672")
    receiver = Receiver(interconnect, [SOURCE], "bridge")
    outbox = Outbox("alerts", Delivery(address="alerts/{region}"), DeliveryMetrics())
    receiver.links.deliveries.outboxes = [outbox]
    outbox.assign(0)
    outbox.read(Record("alerts", 0, 0, b"jakarta/1", b"v"))
    listener = Listener(interconnect, receiver._identities, receiver.links, receiver.pending, "bridge")
    collector, connection, transport = Collector(), Connection(), Transport(Transport.SERVER)
    connection.collect(collector)
    transport.bind(connection)
    client, its_transport = Connection(), Transport()
    client.container = "branch"
    its_transport.bind(client)
    client.open()
    session = client.session()
    session.open()
    link = session.receiver("alerts")
    link.source.address = link.target.address = "alerts/jakarta"
    link.open()
    link.flow(5)

    def exchange():
        for one, other in ((its_transport, transport), (transport, its_transport)):
            if (size := one.pending()) > 0:
                other.push(one.peek(size))
                one.pop(size)
            dispatch(collector, listener)

    for _ in range(3):
        exchange()
    # when a description is no UTF-8
    delivery = link.current
    condition = lib.pn_disposition_condition(lib.pn_delivery_local(delivery._impl))
    lib.pn_condition_set_name(condition, b"amqp:rejected")
    lib.pn_condition_set_description(condition, b"\xff\xfe")
    lib.pn_delivery_update(delivery._impl, REJECTED)
    exchange()
    # then it is a rejection as any other
    (letter,) = outbox.take_condemned()
    assert (outbox.on_the_way, letter.condition, letter.description) == (
        0,
        "amqp:rejected",
        "in words that are no text",
    )
