"""The console's listening socket for TLS: how many connections an address may begin, whatever it does with them."""

import socket

import pytest

from headrace.console import server
from headrace.console.server import AHEAD_SECONDS, EACH_SECONDS, Listening


@pytest.fixture
def listening():
    with Listening(socket.create_server(("127.0.0.1", 0), backlog=200)) as made:
        made.settimeout(0)
        yield made


@pytest.fixture
def now(monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(server.time, "monotonic", lambda: clock[0])
    return clock


@pytest.fixture
def connect(listening):
    made = []

    def begin(address, count):
        port = listening.getsockname()[1]
        made.extend(socket.create_connection(("127.0.0.1", port), source_address=(address, 0)) for _ in range(count))

    yield begin
    for each in made:
        each.close()


def accepted(listening):
    results = []
    try:
        while True:
            results.append(listening.accept()[0])
    except BlockingIOError:
        return results


def test_an_address_begins_a_few_connections_a_second_and_others_are_served(listening, connect, now):
    burst = round(AHEAD_SECONDS / EACH_SECONDS) + 1
    connect("127.0.0.1", 60)
    first = accepted(listening)
    assert len(first) in {burst - 1, burst}
    connect("127.0.0.2", 2)
    assert len(accepted(listening)) == 2
    now[0] += 1.0
    connect("127.0.0.1", 60)
    assert len(accepted(listening)) <= round(1.0 / EACH_SECONDS) + 1


def test_a_proxy_that_connects_for_each_request_serves_thirty_open_pages(listening, connect, now):
    """With five a second each third request of ten pages was answered with an error."""
    for _ in range(20):
        connect("127.0.0.1", 15)
        assert len(accepted(listening)) == 15
        now[0] += 1.0


def test_where_too_many_are_open_the_oldest_is_closed(listening, connect, now, monkeypatch):
    monkeypatch.setattr(server, "_MOST_ACCEPTED", 3)
    connect("127.0.0.1", 5)
    result = accepted(listening)
    for each in result[:2]:
        each.settimeout(5)
        assert each.recv(1) == b""
    result[2].settimeout(0)
    with pytest.raises(BlockingIOError):
        result[2].recv(1)


def test_addresses_cost_bounded_memory(listening, connect, now, monkeypatch):
    monkeypatch.setattr(server, "_MOST_ADDRESSES", 3)
    for number in range(1, 9):
        connect(f"127.0.0.{number}", 1)
        now[0] += 10
        assert len(accepted(listening)) == 1
        assert len(listening._paid_at) <= 3
