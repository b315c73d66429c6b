"""A rogue bridge, router or broker, at an edge and at `headrace receive`: what it sends or closes is a pause, or what it says."""

import threading

import pytest

from edge.requests.service import KnownRequests, RequestService
from headrace import doors
from headrace.amqp.links import close
from headrace.configuration.sections import Client
from headrace.errors import NeedsOperator, ReplicationError
from headrace.receive import receiver
from headrace.waiting import Backoff
from tests.amqp.interconnect_ends import SOURCE, Edge, Far, at, sealed
from tests.amqp.peer import Listener
from tests.hostile import peers
from tests.rules.waiting import eventually


class RogueBridge(Listener):
    """Takes what an edge attaches, and then closes the link, the session or the connection badly."""

    def __init__(self, spoil):
        super().__init__()
        self._spoil = spoil
        self.connections = 0
        self.start()

    def on_connection_opened(self, _event):
        self.connections += 1

    def on_link_opened(self, event):
        class Found:
            link, connection = event.link, event.connection

        self._spoil(Found)


@pytest.mark.parametrize("spoil", [peers.close_link_badly, peers.close_session_badly, peers.close_connection_badly])
def test_a_condition_that_cannot_be_read_does_not_end_an_edge(spoil):
    """S1, at the other end: what a bridge, a router or a broker sends."""
    bridge = RogueBridge(spoil)
    edge = Edge(f"amqp://127.0.0.1:{bridge.port}")
    try:
        eventually(lambda: bridge.connections > 2, saying="the edge connects again and again")
        assert edge.outbox.problem is None
        assert sum(doors.AMQP.refused.values())
    finally:
        edge.close()
        bridge.close()


class FloodingBridge(RogueBridge):
    """Takes links of requests too, and says on each what it says."""

    def __init__(self, flood):
        super().__init__(flood)
        self.flooded = 0

    def on_link_opening(self, event):
        event.link.source.copy(event.link.remote_source)
        event.link.target.copy(event.link.remote_target)

    def on_link_opened(self, event):
        super().on_link_opened(event)
        self.flooded += 1


def _send(*bodies):
    """Return what sends these as requests, whatever the credit."""

    def act(opened):
        if opened.link.is_sender:
            for number, data in enumerate(bodies):
                opened.link.delivery(str(number))
                opened.link.stream(data)
                opened.link.advance()

    return act


def _open_many_sessions(opened):
    for _ in range(1000):
        opened.connection.session().open()


#: What floods an edge, by the door that counts it; none where it is the rogue's own connection alone.
FLOODS = {
    "10,000 links": (peers.attach_many, None),
    "1,000 sessions": (_open_many_sessions, None),
    "bytes that are no messages": (_send(*peers.MESSAGES.values()), doors.MESSAGE),
    "a request of 40 MB": (_send(bytes(40 << 20)), doors.MEMORY),
    "20,000 requests that are none": (_send(*[b"\x00\x53\x75\xa0\x01x"] * 20_000), doors.REQUEST),
}


@pytest.mark.parametrize("name", FLOODS)
def test_a_bridge_that_floods_an_edge_does_not_end_it_and_the_next_one_is_served(name, tmp_path):
    flood, door = FLOODS[name]
    before = sum(door.refused.values()) if door is not None else 0
    bridge = FloodingBridge(flood)
    port = bridge.port
    edge = Edge(f"amqp://127.0.0.1:{port}", requests=RequestService(SOURCE, (), {}, KnownRequests(tmp_path)))
    honest = None
    try:
        edge.put(sealed(1, 5))
        eventually(
            lambda: bridge.flooded and (door is None or sum(door.refused.values()) > before), saying="it is flooded"
        )
        bridge.close()
        honest = Far(listen=f"127.0.0.1:{port}")
        edge.acknowledged(at(5))
    finally:
        edge.close()
        if honest is None:
            bridge.close()
        else:
            honest.close()


class RejectingBridge(Listener):
    """Gives an edge credit for batches, and rejects them, answers to requests too, in words that are no text."""

    def __init__(self, *, links_of_requests):
        super().__init__(prefetch=0, auto_accept=False)
        self._links_of_requests = links_of_requests
        self.connections = self.batches = self.closed = 0
        self.start()

    def on_connection_opened(self, _event):
        self.connections += 1

    def on_link_opening(self, event):
        event.link.source.copy(event.link.remote_source)
        event.link.target.copy(event.link.remote_target)

    def on_link_opened(self, event):
        class Opened:
            link, connection = event.link, event.connection

        if not event.link.is_sender and event.link.remote_target.address.startswith("cdc/"):
            event.link.flow(10)
        elif not self._links_of_requests:
            self.closed += 1
            peers.close_link_badly(Opened)

    def on_delivery(self, event):
        if event.delivery.readable and not event.delivery.partial:
            self.batches += 1
            peers.reject_badly(event.delivery)


def test_a_rejection_in_words_that_are_no_text_is_one():
    """It ended the connection, and the edge sent the same batch again, for ever."""
    bridge = RejectingBridge(links_of_requests=True)
    edge = Edge(f"amqp://127.0.0.1:{bridge.port}")
    try:
        edge.put(sealed(1, 5))
        problem = edge.problem()
        assert isinstance(problem, NeedsOperator)
        assert "rejected a batch" in problem.message
        assert (bridge.connections, bridge.batches, edge.figures.rejected) == (1, 1, 1)
    finally:
        edge.close()
        bridge.close()


def test_a_link_of_requests_that_is_closed_in_words_that_are_no_text_leaves_the_edge_its_connection(tmp_path):
    bridge = RejectingBridge(links_of_requests=False)
    edge = Edge(f"amqp://127.0.0.1:{bridge.port}", requests=RequestService(SOURCE, (), {}, KnownRequests(tmp_path)))
    try:
        eventually(lambda: bridge.closed == 2, saying="both links are closed")
        edge.put(sealed(1, 5))
        assert isinstance(edge.problem(), NeedsOperator)
        assert bridge.connections == 1
    finally:
        edge.close()
        bridge.close()


class RogueServer(Listener):
    """Sends each receiver that attaches a message of two megabytes, or closes its link."""

    def __init__(self, closes_with=None):
        super().__init__()
        self.attached, self.conditions, self._closes_with = 0, [], closes_with
        self.start()

    def on_link_opening(self, event):
        event.link.source.copy(event.link.remote_source)
        event.link.target.copy(event.link.remote_target)

    def on_link_opened(self, event):
        self.attached += 1
        if self._closes_with is not None:
            close(event.link, self._closes_with, "because")
            return
        event.link.delivery("1")
        event.link.stream(bytes(2 << 20))
        event.link.advance()

    def on_link_error(self, event):
        self.conditions.append(event.link.remote_condition.name)


class Receiving(threading.Thread):
    """`headrace receive` at a server, until it has ended or `is_enough`; `ended` holds what became of it."""

    def __init__(self, server, monkeypatch):
        super().__init__()
        self._url, self._stopping, self.ended, self.resets = (
            f"amqp://127.0.0.1:{server.port}",
            threading.Event(),
            [],
            [],
        )
        monkeypatch.setattr(Backoff, "reset", self.resets.append)

    def run(self):
        try:
            self.ended.append(
                receiver.receive_all(
                    [self._url], Client(), "alerts/x", lambda _: True, receiver.Rules(), self._stopping
                )
            )
        except ReplicationError as error:
            self.ended.append(error)

    def until(self, is_enough):
        self.start()
        try:
            eventually(lambda: self.ended or is_enough(), saying="it attaches again and again, or ends")
        finally:
            self._stopping.set()
            self.join(60)
        return self.ended


def test_a_message_above_the_limit_does_not_end_headrace_receive(monkeypatch, caplog):
    """S7: it ended with exit code 3 for what a bridge, a router or a broker sent."""
    monkeypatch.setattr(receiver, "_LARGEST_MESSAGE", 1 << 20)
    server = RogueServer()
    receiving = Receiving(server, monkeypatch)
    try:
        assert receiving.until(lambda: len(server.conditions) > 3) == [True]
    finally:
        server.close()
    assert set(server.conditions) == {"amqp:link:message-size-exceeded"}
    assert doors.MEMORY.refused["alerts/x"] == server.attached
    lines = [each.getMessage() for each in caplog.records if each.levelname in {"WARNING", "ERROR"}]
    assert len(lines) <= server.attached
    assert all("a message is larger than 1048576 bytes; trying again in" in line for line in lines)
    # It waits longer each time, although each connection was one.
    assert receiving.resets == []


@pytest.mark.parametrize(
    "condition",
    ["amqp:link:message-size-exceeded", "amqp:resource-limit-exceeded", "amqp:internal-error", "amqp:not-found", "x"],
)
def test_a_link_that_a_peer_closes_does_not_end_headrace_receive(condition, monkeypatch):
    """The first of these ended it with exit code 3."""
    server = RogueServer(closes_with=condition)
    receiving = Receiving(server, monkeypatch)
    try:
        assert receiving.until(lambda: server.attached > 2) == [True]
    finally:
        server.close()
    assert receiving.resets == []


def test_a_receiver_that_is_not_authorised_is_an_operators_matter(monkeypatch):
    server = RogueServer(closes_with="amqp:unauthorized-access")
    try:
        (problem,) = Receiving(server, monkeypatch).until(lambda: server.attached > 2)
    finally:
        server.close()
    assert isinstance(problem, NeedsOperator)
    assert "receive from alerts/x" in problem.message
