"""A wire between two peers that becomes slow at a place of what one of them says: from then on it passes byte after byte."""

import select
import socket
import threading

from tests.rules.waiting import eventually

#: Marks in what a client says over AMQP 1.0 in the clear: the protocol of SASL, its answer, the open frame, a transfer.
SASL, ANSWER, OPEN, TRANSFER = b"AMQP\x03", b"\x00\x53\x41", b"\x00\x53\x10", b"\x00\x53\x14"
#: What each byte waits for the end of the wire, in seconds: ten times as quick as a byte a second, as the tests' limits are.
_PACE = 0.1


class SlowWire:
    """Passes on one connection to a port; `mark` is where one side's bytes become slow, `backwards` those of the server."""

    def __init__(self, port: int, mark: bytes = b"", *, backwards: bool = False) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._far, self._mark, self._backwards = port, mark, backwards
        #: Bytes that were passed slowly.
        self.dripped = 0
        #: Set when either side has closed.
        self.closed = threading.Event()
        threading.Thread(target=self._run, daemon=True).start()

    def slow(self) -> "SlowWire":
        """Return itself once it is slow."""
        eventually(lambda: self.dripped, saying="the place has come where the wire is slow")
        return self

    def close(self) -> None:
        self.closed.set()
        self._listener.close()

    def _run(self) -> None:
        try:
            with self._listener.accept()[0] as near, socket.create_connection(("127.0.0.1", self._far)) as far:
                slow, quick = (far, near) if self._backwards else (near, far)
                threading.Thread(target=self._pass, args=(quick, slow), daemon=True).start()
                self._drip(slow, quick)
        except OSError:
            pass
        finally:
            self.closed.set()

    def _pass(self, begin: socket.socket, end: socket.socket) -> None:
        try:
            while data := begin.recv(1 << 16):
                end.sendall(data)
        except OSError:
            pass
        finally:
            self.closed.set()

    def _drip(self, begin: socket.socket, end: socket.socket) -> None:
        """Pass bytes on up to the mark, and from there byte after byte, until either side closes."""
        said = b""
        while self._mark not in said and (data := begin.recv(1 << 16)):
            said += data
            end.sendall(data if self._mark not in said else data[: len(data) - len(said) + said.index(self._mark)])
        rest = said[said.index(self._mark) :] if self._mark in said else b""
        while not self.closed.wait(_PACE):
            if not rest and select.select([begin], [], [], 0)[0]:
                rest = begin.recv(1 << 16)
                if not rest:
                    return
            if rest:
                end.sendall(rest[:1])
                rest, self.dripped = rest[1:], self.dripped + 1
