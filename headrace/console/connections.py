"""The console's connections: their number is bounded, and the time of each request with its answer, however slow a visitor is.

Uvicorn waits without end for a request that has begun, and for whoever does not read an answer. Where there are too many, the
oldest is closed: a browser's is in use for moments.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

#: A request has to come whole, and its answer to be read, within so many seconds.
SECONDS = 30.0
#: Connections at once.
MOST = 200


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
