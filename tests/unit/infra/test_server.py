"""Ports that servers keep."""

import socket
from contextlib import closing
from pathlib import Path

import pytest

from headrace.errors import NeedsOperator
from infra.local.server import PortTaken, free_port, is_free, start_on_port


@pytest.fixture
def taken():
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        yield listener.getsockname()[1]


def test_free_port_lies_below_the_ports_of_outgoing_connections():
    lowest_outgoing = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])

    ports = [free_port() for _ in range(50)]

    assert all(1024 < port < lowest_outgoing for port in ports)


def test_port_with_a_listener_is_not_free(taken):
    assert not is_free(taken)


def test_server_whose_free_port_was_taken_meanwhile_is_started_on_another():
    tried = []

    def start(port):
        tried.append(port)
        if len(tried) < 3:
            raise PortTaken

    start_on_port(start, kept=0, what="it")

    assert len(set(tried)) == 3


def test_kept_port_that_another_has_is_named_and_never_changed(taken):
    tried = []

    def start(port):
        tried.append(port)
        raise PortTaken

    with pytest.raises(NeedsOperator, match=f"it cannot listen on its port {taken}") as caught:
        start_on_port(start, kept=taken, what="it")

    assert tried == [taken]
    assert caught.value.hint
