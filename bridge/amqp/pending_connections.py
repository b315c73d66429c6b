"""Pending connections: accepted, but without a link in use yet. Their number and their age are bounded.

An open port is met by scanners, incomplete handshakes and floods. Each connection has some seconds to attach a link; when there
are too many, the oldest is closed: under a flood an honest edge needs a moment only. So strangers cost bounded memory and
descriptors. Sans-I/O: the caller closes connections. Called in the receiver's thread only.
"""

import time
from collections.abc import Callable
from typing import Any

#: How long a connection may take to attach a link, in seconds.
SECONDS = 10.0
#: How many there may be at once.
MOST = 200


class PendingConnections:
    """The pending connections, oldest first."""

    def __init__(self, abort: Callable[[Any, str], None], clock: Callable[[], float] = time.monotonic) -> None:
        #: Closes a connection at once, for a reason.
        self._abort = abort
        self._clock = clock
        self._pending: dict[Any, tuple[Any, float]] = {}

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._pending)

    def add(self, key: Any, connection: Any) -> None:
        """Note a new connection, and close the oldest one when there are too many."""
        self._pending[key] = (connection, self._clock() + SECONDS)
        if len(self._pending) > MOST:
            self._close(next(iter(self._pending)), f"there are more than {MOST} connections that are no edge's yet")

    def remove(self, key: Any) -> None:
        """Forget a connection that attached a link, or is gone."""
        self._pending.pop(key, None)

    def expire(self) -> None:
        """Close those whose time is over; called about every second."""
        now = self._clock()
        for key in [key for key, (_, until) in self._pending.items() if until <= now]:
            self._close(key, f"no link of an edge within {SECONDS:.0f} s")

    def _close(self, key: Any, reason: str) -> None:
        connection, _ = self._pending.pop(key)
        self._abort(connection, reason)


def key(connection: Any) -> int:
    """Return what a connection is known by: Proton makes a new object for it now and then, its C object stays."""
    return hash(connection)
