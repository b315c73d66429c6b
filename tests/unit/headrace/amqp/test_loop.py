"""The loop that runs Proton's engine, over real sockets: addresses in turn, what handlers raise, and what an event costs."""

import errno
import socket
import threading

import pytest

from headrace.amqp import sockets, transport
from headrace.amqp.connection import Connection
from headrace.amqp.errors import Role
from headrace.configuration.sections import Client
from tests.amqp.peer import Listener, Peer
from tests.rules.waiting import eventually


class Far(Listener):
    """Counts who has connected."""

    def __init__(self):
        super().__init__()
        self.opened = 0
        self.start()

    def on_connection_opened(self, event):
        self.opened += 1


class Near(Connection):
    """Closes as soon as the other side has answered."""

    def __init__(self, port):
        super().__init__(Client(), f"amqp://127.0.0.1:{port}", "near", Role("edge", "send to"))

    def on_connection_remote_open(self, _event):
        self.worked = True
        self.close()

    def run_once(self):
        return self.run(threading.Event())


@pytest.fixture
def far():
    far = Far()
    yield far
    far.close()


@pytest.fixture
def closed_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        yield listener.getsockname()[1]


def resolve(monkeypatch, *ports):
    """Have every name resolve to these ports."""
    rows = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port)) for port in ports]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_arguments: list(rows))


def test_the_addresses_of_a_name_are_tried_one_after_the_other(far, closed_port, monkeypatch):
    resolve(monkeypatch, closed_port, closed_port, far.port)
    near = Near(far.port)
    assert near.run_once() is None
    assert near.worked


def test_where_no_address_answers_the_reason_is_the_systems(closed_port, monkeypatch):
    resolve(monkeypatch, closed_port, closed_port)
    problem = Near(closed_port).run_once()
    assert problem.message == f"interconnect amqp://127.0.0.1:{closed_port} cannot be reached: Connection refused"


def test_a_name_without_an_address_is_reported(monkeypatch):
    def unknown(*_arguments):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    assert "cannot be reached: Name or service not known" in Near(5672).run_once().message


@pytest.mark.parametrize("host", ["bridge..example", "b" * 64])
def test_what_cannot_be_a_name_is_reported_as_one_without_an_address(host):
    near = Connection(Client(), f"amqp://{host}:5672", "near", Role("edge", "send to"))
    assert "cannot be reached: Name or service not known" in near.run(threading.Event()).message


def test_what_a_handler_raises_for_an_event_is_given_to_it_and_the_loop_goes_on(far, monkeypatch):
    class Raising(Near):
        def __init__(self, port):
            super().__init__(port)
            self.errors = []

        def on_session_init(self, _event):
            raise ValueError("of a value that came")

        def attach(self):
            self.loop.attach_sender(self.connection, "there", "one")

        def refused(self, event, error):
            self.errors.append((event.type.name, str(error)))

    raising = Raising(far.port)
    assert raising.run_once() is None
    assert raising.errors == [("PN_SESSION_INIT", "of a value that came")]


def test_a_process_without_descriptors_accepts_again_once_it_has_some(far, monkeypatch):
    accept, refusals = (
        socket.socket.accept,
        [OSError(errno.EMFILE, "Too many open files"), OSError(errno.ECONNABORTED, "gone")],
    )

    class Poor(socket.socket):
        def accept(self):
            if refusals:
                raise refusals.pop(0)
            return accept(self)

    monkeypatch.setattr(sockets.socket, "socket", Poor)
    poor = Far()
    monkeypatch.undo()
    assert Near(poor.port).run_once() is None
    eventually(lambda: poor.opened == 1)
    poor.close()
    assert not refusals


class Several(Peer):
    """Connects several times and attaches a sender over each."""

    def __init__(self, port, connections):
        super().__init__("several")
        self.links = []
        self._port, self._connections = port, connections
        self.start()

    def on_start(self, _event):
        for number in range(self._connections):
            connection = self.loop.connect(f"amqp://127.0.0.1:{self._port}", trusted=None, credentials={})
            self.links.append((connection, self.loop.attach_sender(connection, "there", f"sender {number}")))

    def end(self):
        self.do(self.loop.stop)
        self.join()


def test_each_connection_of_a_loop_has_a_session_and_links_of_its_own(far):
    several = Several(far.port, 3)
    eventually(lambda: far.opened == 3, 10, saying="all are connected")
    assert [link.connection == connection for connection, link in several.links] == [True] * 3
    several.end()


def test_x2_an_event_that_nobody_handles_makes_no_object(far, monkeypatch):
    """Proton's own loop made the event, its context, link, session, connection and transport of each."""
    names = set()

    class Counted(transport.Event):
        def __init__(self, impl, number):
            super().__init__(impl, number)
            names.add(self.type.method)

    monkeypatch.setattr(transport, "Event", Counted)
    near = Near(far.port)
    assert near.run_once() is None

    handled = {name for handler in (near, far, *far.handlers) for name in dir(handler)}
    assert "on_connection_remote_open" in names
    assert names <= handled
    assert not {"on_transport", "on_connection_init", "on_connection_bound"} & handled
