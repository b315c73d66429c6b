"""Pending connections: accepted, but without a link in use yet, or any more. Their number and their age are bounded.

An open port is met by scanners, incomplete handshakes, floods, and by thousands of edges that come back in the same second. Each
connection has some seconds to attach a link. Those that are not authenticated are strangers; when there are too many of them, the
newest is refused before its handshake costs anything, and who is nearly done stays; but one that has had the time for a handshake
and has not used it makes room. So strangers cost bounded memory and descriptors, and edges attach one after the other. Sans-I/O:
the caller closes connections. Called in the receiver's thread only.

What each connection that is in use has: one that is gone costs no look at the others.
"""

import time
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

#: How long a connection may take to attach a link, in seconds.
SECONDS = 10.0
#: How many strangers there may be at once, and how many that are authenticated.
MOST, MOST_KNOWN = 200, 2000
#: The time for a handshake, in seconds: eight round trips of a quarter of a second, behind 200 others of the same thread.
HANDSHAKE_SECONDS = 4.0


class PendingConnections:
    """The pending connections, oldest first."""

    def __init__(self, abort: Callable[[Any, str], None], clock: Callable[[], float] = time.monotonic) -> None:
        #: Closes a connection at once, for a reason.
        self._abort = abort
        self._clock = clock
        # Each with the time when it came.
        self._strangers: dict[Any, tuple[Any, float]] = {}
        self._known: dict[Any, tuple[Any, float]] = {}

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._strangers) + len(self._known)

    def add(self, key: Any, connection: Any) -> bool:
        """Note a new connection; return False when there are too many, and it was closed."""
        if len(self._strangers) >= MOST:
            oldest, (_, came) = next(iter(self._strangers.items()))
            if self._clock() - came < HANDSHAKE_SECONDS:
                self._abort(connection, f"{MOST} connections are in their handshakes: it has to come again")
                return False
            self._close(self._strangers, oldest, f"no handshake within {HANDSHAKE_SECONDS:.0f} s, and others wait")
        self._strangers[key] = (connection, self._clock())
        return True

    def authenticate(self, key: Any) -> None:
        """Note that a connection's other side is known."""
        entry = self._strangers.pop(key, None)
        if entry is not None:
            self._add_known(key, entry)

    def add_unused(self, key: Any, connection: Any) -> None:
        """Note that a connection has no link in use any more; for one that is pending, nothing changes."""
        if key not in self._known and key not in self._strangers:
            self._add_known(key, (connection, self._clock()))

    def _add_known(self, key: Any, entry: tuple[Any, float]) -> None:
        self._known[key] = entry
        if len(self._known) > MOST_KNOWN:
            self._close(self._known, key, f"there are more than {MOST_KNOWN} connections without a link")

    def remove(self, key: Any) -> None:
        """Forget a connection that attached a link, or is gone."""
        self._strangers.pop(key, None)
        self._known.pop(key, None)

    def expire(self) -> None:
        """Close those whose time is over; called about every second."""
        now = self._clock()
        for group in (self._strangers, self._known):
            for key in [key for key, (_, came) in group.items() if came + SECONDS <= now]:
                self._close(group, key, f"no link of an edge within {SECONDS:.0f} s")

    def _close(self, group: dict[Any, tuple[Any, float]], key: Any, reason: str) -> None:
        connection, _ = group.pop(key)
        self._abort(connection, reason)


def key(connection: Any) -> int:
    """Return what a connection is known by: Proton makes a new object for it now and then, its C object stays."""
    return hash(connection)


T = TypeVar("T", bound=Hashable)


class PerConnection(Generic[T]):
    """What each connection has, in the order in which it was added."""

    def __init__(self) -> None:
        self._items: dict[int, dict[T, None]] = {}

    def __contains__(self, number: object) -> bool:
        """Whether a connection has something, by its key."""
        return number in self._items

    def add(self, connection: Any, item: T) -> None:
        """Note that a connection has something."""
        self._items.setdefault(key(connection), {})[item] = None

    def discard(self, connection: Any, item: T) -> None:
        """Note that a connection does not have something any more."""
        number = key(connection)
        items = self._items.get(number, {})
        items.pop(item, None)
        if not items:
            self._items.pop(number, None)

    def pop(self, connection: Any) -> list[T]:
        """Return what a connection had that is gone."""
        return list(self._items.pop(key(connection), {}))

    def clear(self) -> None:
        """Forget all of it."""
        self._items.clear()
