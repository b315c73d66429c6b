"""The wire that tests cut does what they believe it does."""

import socket

import pytest

from tests.servers.fix_proxy import Proxy


@pytest.fixture
def server():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(5)
        yield listener


@pytest.fixture
def wire(server):
    proxy = Proxy(*server.getsockname())
    yield proxy
    proxy.close()


def connect(wire, server):
    near = socket.create_connection((wire.host, wire.port), timeout=5)
    far, _ = server.accept()
    far.settimeout(5)
    return near, far


def test_bytes_pass_both_ways(wire, server):
    near, far = connect(wire, server)
    with near, far:
        near.sendall(b"to")
        far.sendall(b"fro")

        assert (far.recv(10), near.recv(10)) == (b"to", b"fro")


def test_end_of_one_side_reaches_the_other(wire, server):
    near, far = connect(wire, server)
    with far:
        near.close()

        assert far.recv(10) == b""


def test_cut_resets_both_sides_and_new_connections_pass(wire, server):
    near, far = connect(wire, server)
    with near, far:
        near.sendall(b"through")
        far.recv(10)

        wire.cut()

        for end in (near, far):
            with pytest.raises(ConnectionResetError):
                end.recv(10)
    near, far = connect(wire, server)
    with near, far:
        near.sendall(b"again")
        assert far.recv(10) == b"again"


def test_stopped_wire_refuses_until_it_starts_again(wire, server):
    wire.stop()
    with pytest.raises(ConnectionRefusedError):
        connect(wire, server)

    wire.start()

    near, far = connect(wire, server)
    near.close()
    far.close()


def test_stalled_wire_holds_bytes_back_until_it_resumes(wire, server):
    near, far = connect(wire, server)
    with near, far:
        wire.stall()
        near.sendall(b"held")
        far.settimeout(0.2)
        with pytest.raises(TimeoutError):
            far.recv(10)

        wire.resume()

        far.settimeout(5)
        assert far.recv(10) == b"held"
