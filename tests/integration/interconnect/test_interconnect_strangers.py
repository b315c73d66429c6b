"""Strangers at the interconnect: scanners, halves of handshakes, floods. Edges go on meanwhile, and it costs bounded memory."""

import random
import socket
import ssl
import threading
from collections import deque

import psutil
import pytest

from bridge.amqp import connections
from headrace.amqp import connection
from infra.local.server import free_port
from tests.amqp.interconnect_ends import Edge, Far, at, pem, sealed
from tests.rules.waiting import eventually


@pytest.fixture
def ours(certificates):
    return certificates / "ours"


@pytest.fixture
def far(ours):
    made = Far(**pem(ours, "bridge"))
    yield made
    made.close()


@pytest.fixture
def edge(far, ours):
    made = Edge(far.url(scheme="amqps", host="localhost"), **pem(ours, "jakarta-bank"))
    made.put(sealed(1, 1))
    made.acknowledged(at(1))
    yield made
    made.close()


def megabytes():
    return psutil.Process().memory_info().rss / 2**20


def descriptors():
    return psutil.Process().num_fds()


def stranger(port, chance):
    """Connect and misbehave in one of many ways; return the socket, which may stay open."""
    made = socket.create_connection(("127.0.0.1", port))
    made.setblocking(False)
    hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + chance.randbytes(40)
    said = chance.choice([b"", chance.randbytes(500), b"GET / HTTP/1.1\r\n\r\n", b"AMQP\x03\x01\x00\x00", hello])
    made.send(said)
    return made


def test_a_flood_of_strangers_leaves_an_edge_alone_and_little_behind(far, edge, monkeypatch):
    monkeypatch.setattr(connections, "PENDING_SECONDS", 2.0)
    chance = random.Random(7)
    # Q15: a process has 1,024 descriptors on a stock system, and both ends of these connections are in this one.
    open_ones = deque()

    def flood(count):
        for _ in range(count):
            made = stranger(far.receiver.port, chance)
            if chance.random() < 0.5:
                made.close()
            else:
                open_ones.append(made)
            if len(open_ones) > connections.MOST_STRANGERS + 50:
                open_ones.popleft().close()

    # given what a first wave leaves in caches
    flood(400)
    before, files = megabytes(), descriptors() - len(open_ones)
    # when
    sender_of_floods = threading.Thread(target=flood, args=(1500,))
    sender_of_floods.start()
    number = 1
    while sender_of_floods.is_alive() or number < 20:
        number += 1
        edge.put(sealed(number, number))
        edge.acknowledged(at(number))
        assert len(far.receiver.pending) <= connections.MOST_STRANGERS
    sender_of_floods.join()
    # then
    for made in open_ones:
        made.close()
    eventually(lambda: len(far.receiver.pending) == 0, saying="all strangers are sent off")
    eventually(lambda: descriptors() < files + 20, saying="their descriptors are closed")
    assert megabytes() - before < 40
    assert edge.figures.interconnect_connections == 1
    assert far.numbers["jakarta/bank"] == list(range(1, number + 1))


def test_who_says_nothing_is_sent_off(far, ours, monkeypatch):
    monkeypatch.setattr(connections, "PENDING_SECONDS", 0.2)
    # given one who is silent from the start, and one who is let in by its certificate and then silent
    silent = socket.create_connection(("127.0.0.1", far.receiver.port))
    context = ssl.create_default_context(cafile=ours / "authority.pem")
    context.load_cert_chain(ours / "jakarta-bank.pem", ours / "jakarta-bank.key")

    def let_in():
        # Where the handshake takes longer than a guest has, it is sent off in the middle of it.
        return context.wrap_socket(
            socket.create_connection(("127.0.0.1", far.receiver.port)), server_hostname="localhost"
        )

    known = eventually(let_in, saying="it is let in")
    # then both find the connection closed
    for each in (silent, known):
        each.settimeout(60)
        with each:
            assert each.recv(1) == b""


def test_an_edge_s_link_makes_a_guest_an_edge(far, edge, monkeypatch):
    monkeypatch.setattr(connections, "PENDING_SECONDS", 0.0)
    eventually(lambda: len(far.receiver.pending) == 0)
    late = socket.create_connection(("127.0.0.1", far.receiver.port))
    with late:
        late.settimeout(60)
        assert late.recv(1) == b""
    edge.put(sealed(2, 2))
    edge.acknowledged(at(2))
    assert edge.figures.interconnect_connections == 1


class _AtOnce:
    """A back-off without pauses."""

    def __init__(self, **_options):
        self.pauses = 0

    def pause(self):
        self.pauses += 1
        return 0.0

    def reset(self):
        pass


@pytest.mark.parametrize("end", ["bridge", "edge"])
def test_a_far_side_that_is_long_away_costs_no_memory(ours, monkeypatch, end):
    backoffs = []

    def backoff(**options):
        backoffs.append(_AtOnce(**options))
        return backoffs[-1]

    monkeypatch.setattr(connection, "Backoff", backoff)
    url = f"amqps://localhost:{free_port()}"
    made = Far(url=url, **pem(ours, "bridge")) if end == "bridge" else Edge(url, **pem(ours, "jakarta-bank"))
    try:
        eventually(lambda: backoffs and backoffs[0].pauses > 10)
        before = megabytes()
        eventually(lambda: backoffs[0].pauses > 60, 120)
        # Left behind by each attempt, its TLS contexts would be 80 MB.
        assert megabytes() - before < 30
    finally:
        made.close()
