"""Sockets of Proton's transports, moved by hand: signs of life in time, addresses that swallow everything, and what is let go."""

import select
import socket
import struct
import weakref
from types import SimpleNamespace

import pytest
from proton import Connection, Transport

from headrace.amqp import sockets
from headrace.amqp.sockets import Address, Socket, Sockets

#: The other side's patience, in milliseconds.
TIMEOUT = 1000
SIGN_OF_LIFE = struct.pack(">IBBH", 8, 2, 0, 0)


def header_and_open(timeout):
    """Return how a peer begins that ends a connection on which it hears nothing for so long."""
    fields = b"\xa1\x01p\x40\x70\x00\x01\x00\x00\x60\x00\x0a\x70" + struct.pack(">I", timeout)
    body = b"\x00\x53\x10\xc0" + bytes([len(fields) + 1, 5]) + fields
    return b"AMQP\x00\x01\x00\x00" + struct.pack(">IBBH", 8 + len(body), 2, 0, 0) + body


class Turns:
    """What sockets are watched for and what is due, by a clock that moves when it is set."""

    def __init__(self):
        self.now = 1000.0
        self.watched, self.steps = {}, []

    def watch(self, descriptor, events, ready):
        self.watched[descriptor] = (events, ready)

    def forget(self, descriptor):
        self.watched.pop(descriptor, None)

    def know(self, descriptor):
        pass

    def at(self, moment, step):
        self.steps.append((moment, step))

    def pass_to(self, moment):
        self.now = moment
        due, self.steps = (
            [each for each in self.steps if each[0] <= moment],
            [each for each in self.steps if each[0] > moment],
        )
        for _, step in due:
            step()


@pytest.fixture
def turns(monkeypatch):
    turns = Turns()
    monkeypatch.setattr(sockets, "time", SimpleNamespace(monotonic=lambda: turns.now))
    return turns


@pytest.fixture
def ours(turns):
    ours = Sockets(turns, lambda: None)
    yield ours
    ours.close()


def turn(ours, turns):
    """Have the sockets that are ready their turn, and write what is to be written."""
    for descriptor, (events, call) in list(turns.watched.items()):
        reading, writing, _ = select.select([descriptor], [descriptor], [], 0)
        can = bool(reading and events & sockets.READ), bool(writing and events & sockets.WRITE)
        if any(can):
            call(*can)
    ours.flush()


@pytest.fixture
def opened(ours, turns):
    """A connection that was accepted and opened at both ends; its far end, from which all was read."""
    near, far = socket.socketpair()
    near.setblocking(False)
    far.setblocking(False)
    connection, transport = Connection(), Transport(Transport.SERVER)
    transport.bind(connection)
    connection.open()
    Socket(ours, connection, transport, near)
    # Nothing but the socket holds them.
    del connection, transport
    far.send(header_and_open(TIMEOUT))
    ours.flush()
    turn(ours, turns)
    assert far.recv(65536).startswith(b"AMQP")
    with far:
        yield far


def test_a_sign_of_life_comes_half_of_the_patience_after_the_last_byte(ours, turns, opened):
    """What Proton knew before the write counted for nothing: the first sign came when the patience was over."""
    for _ in range(3):
        turns.pass_to(turns.now + TIMEOUT / 2000)
        ours.flush()
        turn(ours, turns)
        assert opened.recv(65536) == SIGN_OF_LIFE


def test_a_connection_that_is_over_is_let_go_at_once(ours, turns, opened):
    """Each one stayed until the deadline that was planned for it: those who come and go quickly fill the memory."""
    (gone,) = ours.all.values()
    held = weakref.ref(gone._transport)
    gone.drop()
    assert held() is None
    # Nothing is asked of it when the deadline comes.
    turns.pass_to(turns.now + 60)
    ours.flush()


def test_an_address_that_swallows_everything_does_not_keep_the_next_from_its_turn(ours, turns, monkeypatch):
    with socket.create_server(("127.0.0.1", 0), backlog=0) as silent, socket.create_server(("127.0.0.1", 0)) as other:
        rows = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", each.getsockname()) for each in (silent, other)]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_arguments: rows)
        # A queue that is full answers nobody.
        with socket.create_connection(silent.getsockname()):
            transport, errors = Transport(), []
            Socket(ours, Connection(), transport).connect(Address("there", 5672), errors.append)
            turns.pass_to(turns.now + 4)
            other.settimeout(10)
            other.accept()[0].close()
    assert errors == []


def test_a_connection_that_is_reset_in_the_middle_of_a_frame_is_over_at_once(ours, turns, opened):
    """Of the end of half a frame Proton makes no error, so nothing was to be written, and nothing failed."""
    opened.send(SIGN_OF_LIFE[:5])
    turn(ours, turns)
    turns.pass_to(turns.now + TIMEOUT / 2000)
    ours.flush()
    turn(ours, turns)
    # What is not read makes a reset of the end.
    opened.close()
    turn(ours, turns)
    assert not ours.all
    assert not turns.watched
