"""Accepted connections: how many there may be, how long each may take, and how many links it may attach. Sans-I/O.

What is bounded here ends a connection by the caller's `abort`. Called in the receiver's thread only.
"""

import time
from collections.abc import Callable, Hashable, Iterator
from typing import Any, Generic, TypeVar

#: How long a frame may take, in calls of `look`, which is called every second: 64 kB are then slower than any share of a link.
FRAME_LOOKS = 600
#: How old a connection gets whose other side has a certificate, in seconds, and how many end at one look: they come back at once.
LONGEST_SECONDS, MOST_ENDS = 86_400.0, 20
#: Most links of a connection within a minute, most of them in vain, and most of a receiver to one address before they are that.
MOST_LINKS, MOST_LINKS_IN_VAIN, MOST_SHARING = 2000, 50, 200
_MINUTE_SECONDS = 60.0
#: How long a connection may take to attach a link, in seconds.
PENDING_SECONDS = 10.0
#: How many strangers there may be at once, and how many that are authenticated.
MOST_STRANGERS, MOST_KNOWN = 200, 2000
#: The time for a handshake, in seconds: eight round trips of a quarter of a second, behind 200 others of the same thread.
HANDSHAKE_SECONDS = 4.0


class PendingConnections:
    """Those without a link in use yet, or any more, oldest first.

    An open port is met by scanners, incomplete handshakes, floods, and by thousands of edges that come back in the same second.
    Each connection has some seconds to attach a link. Those that are not authenticated are strangers; when there are too many of
    them, the newest is refused before its handshake costs anything, and who is nearly done stays; but one that has had the time
    for a handshake and has not used it makes room. So strangers cost bounded memory and descriptors, and edges attach one after
    the other.
    """

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
        if len(self._strangers) >= MOST_STRANGERS:
            oldest, (_, came) = next(iter(self._strangers.items()))
            if self._clock() - came < HANDSHAKE_SECONDS:
                self._abort(connection, f"{MOST_STRANGERS} connections are in their handshakes: it has to come again")
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
            for key in [key for key, (_, came) in group.items() if came + PENDING_SECONDS <= now]:
                self._close(group, key, f"no link of an edge within {PENDING_SECONDS:.0f} s")

    def _close(self, group: dict[Any, tuple[Any, float]], key: Any, reason: str) -> None:
        connection, _ = group.pop(key)
        self._abort(connection, reason)


class _Open:
    def __init__(self, connection: Any, since: float) -> None:
        self.connection = connection
        self.since = since
        self.frames, self.looks = -1, 0


class OpenConnections:
    """Those of one listener whose handshakes are over, oldest first: none stays without links or frames, or for long.

    One that uses no link any more, because a newer link replaced it or it was revoked, is pending again: so a certificate opens a
    bounded number. One that sends bytes and never a whole frame is closed: to Proton, bytes alone are a sign of life. And where
    clients have certificates a connection ends after a day: the next handshake refuses a certificate that has expired meanwhile;
    Proton does not report its dates.
    """

    def __init__(
        self,
        pending: PendingConnections,
        abort: Callable[[Any, str], None],
        renew: Callable[[Any], None],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`abort` closes a connection at once, for a reason; `renew` has its other side come again."""
        self._pending = pending
        self._abort = abort
        self._renew = renew
        self._clock = clock
        self._all: dict[int, _Open] = {}

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._all)

    def __contains__(self, number: object) -> bool:
        """Whether a connection is open, by its key."""
        return number in self._all

    def __iter__(self) -> Iterator[Any]:
        """Yield them."""
        return iter([each.connection for each in self._all.values()])

    def add(self, number: int, connection: Any) -> None:
        """Note one whose handshakes are over."""
        self._pending.authenticate(number)
        self._all[number] = _Open(connection, self._clock())

    def remove(self, number: int) -> None:
        """Forget one that is gone."""
        self._all.pop(number, None)

    def look(self, uses_links: Callable[[int], bool], *, ends: bool) -> None:
        """Look after all of them; `ends`: whether those that are old are to end."""
        ended = 0
        for number, each in list(self._all.items()):
            transport = each.connection.transport
            if transport is None:
                continue
            frames = transport.frames_input
            each.frames, each.looks = frames, each.looks + 1 if frames == each.frames else 0
            if each.looks > FRAME_LOOKS:
                self._abort(each.connection, f"no whole frame within {FRAME_LOOKS} s")
            elif not uses_links(number):
                self._pending.add_unused(number, each.connection)
            elif ends and each.since + LONGEST_SECONDS <= self._clock() and ended < MOST_ENDS:
                # Once: until it is gone it uses no link.
                ended += 1
                self._renew(each.connection)


class _Attached:
    def __init__(self, since: float) -> None:
        self.since = since
        self.links = self.in_vain = 0
        # How many were to each address, by its hash: it is as long as its sender likes.
        self.addresses: dict[int, int] = {}
        self.is_over = False


class AttachLimits:
    """What the connections of one listener have attached within a minute, by the key of each.

    To attach is work for the thread of all sources, and a link that is refused costs its sender nothing. A receiver of deliveries
    has a link for each address, several that share one, or one for each message. In vain are links that are refused, and those of
    an edge that take the place of another of the same connection; an honest peer has a few of them, again every minute.
    """

    def __init__(self, end: Callable[[object], None], clock: Callable[[], float] = time.monotonic) -> None:
        """`end` is given the connection that has attached too many; once."""
        self._end = end
        self._clock = clock
        self._all: dict[int, _Attached] = {}

    def __len__(self) -> int:
        """Return of how many connections something is known."""
        return len(self._all)

    def attach(self, number: int, connection: object, address: str, links: int = 1) -> None:
        """Note that a connection attaches a link to an address; more than so many `links` are in vain."""
        now = self._clock()
        attached = self._all.get(number)
        if attached is None or (attached.since + _MINUTE_SECONDS <= now and not attached.is_over):
            attached = self._all[number] = _Attached(now)
        attached.links += 1
        which = hash(address)
        attached.addresses[which] = count = attached.addresses.get(which, 0) + 1
        attached.in_vain += count > links
        self._judge(attached, connection)

    def refuse(self, number: int, connection: object) -> None:
        """Note that a link was refused."""
        attached = self._all.get(number)
        if attached is not None:
            attached.in_vain += 1
            self._judge(attached, connection)

    def _judge(self, attached: _Attached, connection: object) -> None:
        if not attached.is_over and (attached.links > MOST_LINKS or attached.in_vain > MOST_LINKS_IN_VAIN):
            attached.is_over = True
            self._end(connection)

    def is_over(self, number: int) -> bool:
        """Whether a connection was ended: links that came in one piece with the last one cost no more work."""
        attached = self._all.get(number)
        return attached is not None and attached.is_over

    def forget(self, number: int) -> None:
        """Forget a connection that is gone."""
        self._all.pop(number, None)


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
