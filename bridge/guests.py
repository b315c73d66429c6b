"""Guests: connections that came and have no link in use yet, and how many and how long they are borne with.

A port that is open is met by scanners, by halves of handshakes and by floods. Each guest has some seconds; when there are too
many, the oldest leaves: under a flood an honest edge needs a moment, not a place. So strangers cost bounded memory and
descriptors. Sans-I/O: closing a connection is the caller's. Called by the receiver, in its thread only.
"""

import time
from collections.abc import Callable
from typing import Any

#: How long a guest may take to become an edge, in seconds.
SECONDS = 10.0
#: How many there may be at once.
MOST = 200
#: Not more often than this, in seconds, is it said what strangers did.
_QUIET_SECONDS = 10.0


class Guests:
    """The guests that are there, oldest first."""

    def __init__(self, send_off: Callable[[Any, str], None], clock: Callable[[], float] = time.monotonic) -> None:
        #: Closes a connection at once, and says why.
        self._send_off = send_off
        self._clock = clock
        self._guests: dict[Any, tuple[Any, float]] = {}

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._guests)

    def came(self, key: Any, connection: Any) -> None:
        """Note a new connection, and send the oldest guest off when there are too many."""
        self._guests[key] = (connection, self._clock() + SECONDS)
        if len(self._guests) > MOST:
            self._off(next(iter(self._guests)), f"there are more than {MOST} connections that are no edge's yet")

    def left(self, key: Any) -> None:
        """Forget a guest that became an edge, or is gone."""
        self._guests.pop(key, None)

    def tidy(self) -> None:
        """Send off those whose time has run out; called every second or so."""
        now = self._clock()
        for key in [key for key, (_, until) in self._guests.items() if until <= now]:
            self._off(key, f"no link of an edge within {SECONDS:.0f} s")

    def _off(self, key: Any, reason: str) -> None:
        connection, _ = self._guests.pop(key)
        self._send_off(connection, reason)


def key(connection: Any) -> int:
    """Return what a connection is known by: Proton makes a new object for it now and then, its C object stays."""
    return hash(connection)


class Seldom:
    """Says things that strangers can cause as often as they like, at most every ten seconds, with how many were not said."""

    def __init__(self, say: Callable[..., None], clock: Callable[[], float] = time.monotonic) -> None:
        self._say = say
        self._clock = clock
        self._until = 0.0
        self._unsaid = 0

    def __call__(self, text: str, *values: object) -> None:
        """Say it, or count it."""
        now = self._clock()
        if now < self._until:
            self._unsaid += 1
            return
        more, self._unsaid = self._unsaid, 0
        self._until = now + _QUIET_SECONDS
        self._say(text + (f" (and {more} others before)" if more else ""), *values)
