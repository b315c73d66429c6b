"""Logging in: the password stays here when a server without TLS asks for it as it is."""

import io
import random
import socket
import struct
import threading
from types import SimpleNamespace

import pytest

from edge.mysql.connection import SnapshotConnection, connect
from headrace.configuration.edge import Mysql
from headrace.configuration.secret import Secret
from headrace.errors import ConfigurationError, NotConnected

PASSWORD = "entirely-secret"


class Greedy:
    """A server that answers every login by asking for the password in the clear; or somebody between who does."""

    def __init__(self, plugin):
        self.plugin, self.heard = plugin, b""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self):
        self._thread.join(60)
        self._listener.close()
        assert not self._thread.is_alive()

    def _serve(self):
        connection, _ = self._listener.accept()
        with connection:
            connection.settimeout(60)
            capabilities = 0x200 | 0x8000 | 0x80000
            greeting = (
                b"\x0a11.4.5-MariaDB\0" + struct.pack("<I", 7) + b"12345678\0" + struct.pack("<H", capabilities & 0xFFFF)
                + b"\x2d" + struct.pack("<HHB", 2, capabilities >> 16, 21) + bytes(10) + b"123456789012\0mysql_native_password\0"
            )  # fmt: skip
            self._send(connection, 0, greeting)
            connection.recv(4096)
            self._send(connection, 2, b"\xfe" + self.plugin + b"\0" + b"\x04Password: ")
            while more := connection.recv(4096):
                self.heard += more
                # A wrong password.
                self._send(connection, 4, b"\xff" + struct.pack("<H", 1045) + b"#28000Access denied")

    def _send(self, connection, number, payload):
        connection.sendall(len(payload).to_bytes(3, "little") + bytes([number]) + payload)


@pytest.mark.parametrize("plugin", [b"mysql_clear_password", b"dialog"])
def test_a_password_is_never_sent_in_the_clear(plugin):
    """The edge's side of E15: a server, or somebody in its place, may ask the driver for it."""
    server = Greedy(plugin)
    config = Mysql(host="127.0.0.1", port=server.port, user="headrace", password=Secret(f"env:{PASSWORD}"), server_id=9)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv(PASSWORD, PASSWORD)
        with pytest.raises(ConfigurationError, match="in the clear") as refused:
            connect(config, "jakarta/bank")
    server.close()

    assert "sslmode" in refused.value.hint
    assert PASSWORD.encode() not in server.heard


class Trickling(io.RawIOBase):
    """Bytes that come in pieces of the sizes that are drawn."""

    def __init__(self, data, draw):
        self._data, self._draw = io.BytesIO(data), draw

    def readable(self):
        return True

    def readinto(self, into):
        return self._data.readinto(memoryview(into)[: self._draw(len(into))])


@pytest.mark.parametrize("most", [1, 3, 100, 1 << 20])
def test_packets_are_the_same_however_they_arrive(most):
    chance = random.Random(most)
    bodies = [bytes([7]) * chance.choice([0, 1, 250, 5000, 70_000]) for _ in range(200)]
    sent = [(body, [body]) for body in bodies]
    if most > 3:
        for size in (0xFFFFFE, 0xFFFFFF, 0xFFFFFF + 5):
            body = bytes([size & 7]) * size
            sent.append((body, [body[:0xFFFFFF], *([body[0xFFFFFF:]] if size >= 0xFFFFFF else [])]))
    pieces = [piece for _, whole in sent for piece in whole]
    data = b"".join(len(piece).to_bytes(3, "little") + b"\1" + piece for piece in pieces)
    connection = object.__new__(SnapshotConnection)
    connection._address = "db:3306"
    raw = Trickling(data, lambda room: min(room, chance.randrange(1, most + 1)))
    connection._connection = SimpleNamespace(_rfile=io.BufferedReader(raw))
    packets = connection._packets()
    for body, _ in sent:
        assert next(packets) == body
    with pytest.raises(NotConnected, match="the server closed it"):
        next(packets)
