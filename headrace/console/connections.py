"""The console's connections: their number is bounded, and the time of each request with its answer, however slow a visitor is.

Uvicorn waits without end for a request that has begun, and for whoever does not read an answer. Where there are too many, the
oldest is closed: a browser's is in use for moments. With TLS it knows of a connection after the handshake alone, which costs
milliseconds, and may last a minute: the listening socket bounds these, by address.
"""

import asyncio
import contextlib
import socket
import time
import weakref
from collections import deque
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

#: A request has to come whole, and its answer to be read, within so many seconds.
SECONDS = 30.0
#: Connections at once.
MOST = 200
#: With TLS: seconds for each that an address begins, how much of that it may have ahead, and how many are known at once.
EACH_SECONDS, AHEAD_SECONDS = 0.2, 4.0
_MOST_ACCEPTED, _MOST_ADDRESSES = 2 * MOST, 10_000


class Listening(socket.socket):
    """A listening socket for TLS: what an address begins beyond its rate is closed ahead of the handshake."""

    def __init__(self, listening: socket.socket) -> None:
        """Take a socket over that listens."""
        super().__init__(fileno=listening.detach())
        # When all that an address has begun is paid for; and the latest of all that were accepted, oldest first.
        self._paid_at: dict[str, float] = {}
        self._accepted: deque[weakref.ref[socket.socket]] = deque()

    def accept(self) -> tuple[socket.socket, Any]:
        """Return the next connection that is taken."""
        while True:
            made, address = super().accept()
            if self._takes(address[0]):
                self._note(made)
                return made, address
            made.close()

    def _takes(self, address: str) -> bool:
        now = time.monotonic()
        if len(self._paid_at) >= _MOST_ADDRESSES:
            self._paid_at = {each: at for each, at in self._paid_at.items() if at > now}
        paid_at = max(now, self._paid_at.get(address, now))
        if paid_at - now > AHEAD_SECONDS:
            return False
        self._paid_at[address] = paid_at + EACH_SECONDS
        return True

    def _note(self, made: socket.socket) -> None:
        self._accepted.append(weakref.ref(made))
        if len(self._accepted) > _MOST_ACCEPTED:
            oldest = self._accepted.popleft()()
            if oldest is not None and oldest.fileno() >= 0:
                with contextlib.suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)


class Bounded(H11Protocol):
    """One connection; for each server a subclass with `known` of its own."""

    #: All of the server's, oldest first.
    known: dict["Bounded", None]
    _end: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Begin to count."""
        super().connection_made(transport)
        self.known[self] = None
        if len(self.known) > MOST:
            oldest = next(iter(self.known))
            oldest.abort()
        self._begin()

    def on_response_complete(self) -> None:
        """Count for the next request."""
        self._begin()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Count no more."""
        self.known.pop(self, None)
        if self._end is not None:
            self._end.cancel()
        super().connection_lost(exc)

    def abort(self) -> None:
        """Close at once, whatever is not read yet."""
        self.known.pop(self, None)
        self.transport.abort()

    def _begin(self) -> None:
        if self._end is not None:
            self._end.cancel()
        self._end = self.loop.call_later(SECONDS, self.abort)
