"""A connection out, over real sockets to a peer in this process: both directions, and each way in which it ends."""

import gc
import os
import socket
import threading
from pathlib import Path

import pytest

from headrace.amqp import connection as connections
from headrace.amqp import security
from headrace.amqp.connection import Connection
from headrace.amqp.errors import Role
from headrace.amqp.links import Accept, Reject, Release, decode, settle
from headrace.amqp.transport import Condition, Delivery, Message
from headrace.configuration.sections import Client
from headrace.errors import ConfigurationError, NeedsOperator, NotConnected
from tests.amqp.peer import Listener

STATES = {Delivery.ACCEPTED: "accepted", Delivery.REJECTED: "rejected", Delivery.RELEASED: "released"}


class Sending(Connection):
    """Sends what it was given, in order and unsettled, and then closes."""

    def __init__(self, port, messages):
        super().__init__(Client(), f"amqp://127.0.0.1:{port}", "sending", Role("edge", "send to"))
        self.waiting = list(messages)
        self.outcomes = []

    def attach(self):
        self.link = self.loop.attach_sender(self.connection, "there", "one")

    def on_link_flow(self, event):
        while self.link.credit and self.waiting and not self.is_ending:
            self.link.send(Message(body=self.waiting.pop(0)))

    def on_delivery(self, event):
        if event.delivery.updated:
            self.outcomes.append(STATES[event.delivery.remote_state])
            event.delivery.settle()
            if not self.waiting and not self.link.unsettled:
                self.close()


class Taking(Listener):
    """Takes one message after another, each with an outcome of those given; holds credit for two."""

    def __init__(self, outcomes=()):
        super().__init__(prefetch=0, auto_accept=False)
        self.outcomes = iter(outcomes)
        self.bodies, self.attached = [], []
        self.start()

    def on_link_opening(self, event):
        event.link.source.copy(event.link.remote_source)
        event.link.target.copy(event.link.remote_target)

    def on_link_opened(self, event):
        self.attached.append(event.link)
        if event.link.is_receiver:
            event.link.flow(2)

    def on_delivery(self, event):
        link, delivery = event.link, event.delivery
        if link.is_receiver and delivery.readable and not delivery.partial:
            data = link.recv(delivery.pending)
            link.advance()
            self.bodies.append(decode(data)[2])
            settle(delivery, next(self.outcomes))
            link.flow(1)


class Receiving(Connection):
    """Takes as many messages as it gives credit for, and then closes."""

    def __init__(self, port, credit):
        super().__init__(Client(), f"amqp://127.0.0.1:{port}", "receiving", Role("command", "receive from"))
        self.bodies, self._credit = [], credit

    def attach(self):
        self.link = self.loop.attach_receiver(self.connection, "there", "one")
        self.link.flow(self._credit)

    def on_delivery(self, event):
        delivery = event.delivery
        if delivery.readable and not delivery.partial:
            data = self.link.recv(delivery.pending)
            self.link.advance()
            self.bodies.append(decode(data)[2])
            settle(delivery, Accept())
            if len(self.bodies) == self._credit:
                self.close()


class Giving(Taking):
    """Sends numbers to whoever receives, as credit allows."""

    def on_sendable(self, event):
        while event.link.credit:
            event.link.send(Message(body=b"%d" % len(self.bodies), inferred=True))
            self.bodies.append(b"")


def run(connection):
    return connection.run(threading.Event())


@pytest.fixture
def peers():
    made = []

    def start(kind, *arguments):
        made.append(kind(*arguments))
        return made[-1]

    yield start
    for each in made:
        each.close()


def test_a_sender_keeps_the_order_and_learns_the_outcome_of_each(peers):
    peer = peers(Taking, [Accept(), Release(), Reject("amqp:decode-error", "no"), Accept()])
    sending = Sending(peer.port, [b"0", b"1", b"2", b"3"])

    assert run(sending) is None
    assert peer.bodies == [b"0", b"1", b"2", b"3"]
    assert sending.outcomes == ["accepted", "released", "rejected", "accepted"]


def test_a_receiver_gets_what_it_gives_credit_for_and_no_more(peers):
    peer = peers(Giving)
    receiving = Receiving(peer.port, 3)

    assert run(receiving) is None
    assert receiving.bodies == [b"0", b"1", b"2"]


def test_a_link_that_is_refused_ends_it_with_who_has_to_act(peers):
    class Refusing(Taking):
        def on_link_opened(self, event):
            event.link.condition = Condition("amqp:unauthorized-access", "not for you")
            event.link.close()

    problem = run(Sending(peers(Refusing).port, [b"0"]))

    assert isinstance(problem, NeedsOperator)
    assert "does not let this edge send to there: amqp:unauthorized-access not for you" in problem.message


def test_a_port_that_nobody_listens_on_and_a_name_that_nobody_has_are_named():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    problem = run(Sending(port, []))
    assert isinstance(problem, NotConnected)
    assert f"interconnect amqp://127.0.0.1:{port} cannot be reached" in problem.message

    unknown = Sending(port, [])
    unknown.url = "amqp://no-such-host.invalid"
    assert "cannot be reached" in run(unknown).message


def test_one_that_is_not_answered_is_given_up(monkeypatch):
    monkeypatch.setattr(connections, "ATTEMPT_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        problem = run(Sending(silent.getsockname()[1], []))

    assert isinstance(problem, NotConnected)
    assert "did not answer within" in problem.message


def test_one_that_is_closed_before_it_runs_and_one_that_is_stopped_end_without_a_problem(peers):
    peer = peers(Taking)
    closed = Sending(peer.port, [b"0"])
    closed.close()
    assert run(closed) is None

    stopping = threading.Event()
    stopping.set()
    assert Sending(peer.port, [b"0"]).run(stopping) is None


def test_renewed_certificates_end_it(peers, monkeypatch, tmp_path):
    monkeypatch.setattr(security, "CERTIFICATE_SECONDS", 0.01)
    peer = peers(Taking)
    authority = tmp_path / "authority.pem"
    sending = Sending(peer.port, [])
    sending._certificates = security.CertificateWatch(Client(authority=authority))
    authority.write_text("another")

    assert "certificates for amqp://127.0.0.1" in run(sending).message


def test_an_ended_one_can_be_woken_and_closed_and_holds_no_descriptor(peers):
    peer = peers(Taking)
    sending = Sending(peer.port, [])
    descriptor = sending.loop._wakeup.fileno()
    sending.close()
    run(sending)

    sending.wake()
    sending.close()

    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_one_that_cannot_be_made_leaves_no_descriptor(tmp_path):
    """A connector tries again while certificates cannot be used, for days if need be."""
    missing = Client(certificate=tmp_path / "none.pem", key=tmp_path / "none.key", authority=tmp_path / "authority.pem")
    descriptors = Path("/proc/self/fd")
    before = len(list(descriptors.iterdir()))
    gc.disable()
    try:
        with pytest.raises(ConfigurationError):
            Connection(missing, "amqps://there", "near", Role("edge", "send to"))
        assert len(list(descriptors.iterdir())) == before
    finally:
        gc.enable()
