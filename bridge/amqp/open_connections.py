"""Open connections: those whose handshakes are over. None stays without a link, without whole frames, or beyond a day.

One that uses no link any more, because a newer link replaced it or it was revoked, is pending again: so a certificate opens a
bounded number. One that sends bytes and never a whole frame is closed: to Proton, bytes alone are a sign of life. And where
clients have certificates a connection ends after a day: the next handshake refuses a certificate that has expired meanwhile;
Proton does not report its dates. Sans-I/O. Called in the receiver's thread only.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any

from bridge.amqp.pending_connections import PendingConnections

#: How long a frame may take, in calls of `look`, which is called every second: 64 kB are then slower than any share of a link.
FRAME_LOOKS = 600
#: How old a connection gets whose other side has a certificate, in seconds, and how many end at one look: they come back at once.
LONGEST_SECONDS, MOST_ENDS = 86_400.0, 20


class _Open:
    def __init__(self, connection: Any, since: float) -> None:
        self.connection = connection
        self.since = since
        self.frames, self.looks = -1, 0


class OpenConnections:
    """Those of one listener, oldest first."""

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
