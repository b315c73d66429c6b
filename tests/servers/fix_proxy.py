"""A wire to cut: a TCP proxy in front of a server, which a test can cut, stall, damage, refuse and mend.

It guarantees that a cut reaches both ends at once as a reset, and that the address stays the same for its whole life. It
forwards bytes as they come, but for those that it is asked to damage, and looks into none. Each connection has two threads, so
keep to a few connections.
"""

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator

import pytest

from infra.local.server import free_port

_CHUNK = 256 * 1024
#: SO_LINGER on, for 0 seconds: closing sends a reset, as a firewall that drops its state would.
_RESET = struct.pack("ii", 1, 0)


class Proxy:
    """Forwards every connection to `host:port` until something else is asked for."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._flowing = threading.Event()
        self._flowing.set()
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._listener: socket.socket | None = None
        # Where no client's connection can take the port while nobody listens on it.
        self.host, self.port = "127.0.0.1", free_port()
        #: Connections that were accepted so far.
        self.accepted = 0
        # Bytes towards the server until the next damage, below zero for none, and what it is.
        self._until, self._flips = -1, False
        self.start()

    @property
    def connections(self) -> int:
        """How many connections are open now."""
        with self._lock:
            return len(self._open) // 2

    def start(self) -> None:
        """Accept connections, on the same port as before."""
        if self._listener is not None:
            return
        self._listener = socket.create_server((self.host, self.port), reuse_port=False)
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True, name="proxy accept").start()

    def stop(self) -> None:
        """Refuse connections, and cut those that are open."""
        if self._listener is not None:
            # Closing alone does not wake a thread that waits in accept.
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self._listener = None
        self.cut()

    def cut(self) -> None:
        """Reset every open connection; new ones are welcome."""
        with self._lock:
            ends, self._open = self._open, set()
        for end in ends:
            with contextlib.suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                # Wakes the thread that reads it; the descriptor is then closed by nobody else.
                end.shutdown(socket.SHUT_RD)
            end.close()

    def damage(self, after: int, *, flip: bool) -> None:
        """Once: flip a bit of the byte that comes after so many more towards the server, or cut the wire right before it."""
        with self._lock:
            self._until, self._flips = after, flip

    @property
    def damaged(self) -> bool:
        """Whether the damage that was asked for last is done."""
        return self._until < 0

    def stall(self) -> None:
        """Forward nothing more, and close nothing: the connections are half open."""
        self._flowing.clear()

    def resume(self) -> None:
        """Forward again what was held back."""
        self._flowing.set()

    def close(self) -> None:
        """End for good."""
        self.stop()
        self.resume()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(self._target, timeout=10)
            except OSError:
                near.close()
                continue
            far.settimeout(None)
            for end in (near, far):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._open |= {near, far}
                self.accepted += 1
            for first, other, there in ((near, far, True), (far, near, False)):
                threading.Thread(target=self._forward, args=(first, other, there), daemon=True, name="proxy").start()

    def _forward(self, one: socket.socket, other: socket.socket, there: bool) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(_CHUNK):
                self._flowing.wait()
                passed = self._spoilt(data) if there else data
                other.sendall(passed)
                if len(passed) < len(data):
                    break
        # AMQP never half-closes: when one direction ends, so does the other.
        with self._lock:
            ours = {one, other} & self._open
            self._open -= ours
        for end in ours:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _spoilt(self, data: bytes) -> bytes:
        """Return what of the data passes, and how."""
        with self._lock:
            at, self._until = self._until, max(-1, self._until - len(data))
            if not 0 <= at < len(data):
                return data
            self._until = -1
            if self._flips:
                return data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :]
        return data[:at]


@pytest.fixture
def proxies() -> Iterator[Callable[[str, int], Proxy]]:
    """Return what puts a proxy in front of an address; every one ends with the test."""
    made: list[Proxy] = []

    def put(host: str, port: int) -> Proxy:
        made.append(Proxy(host, port))
        return made[-1]

    yield put
    for proxy in made:
        proxy.close()
