"""How many links one connection may attach within a minute: to attach is work for the thread of all sources, and a link that is
refused costs its sender nothing.

A receiver of deliveries has a link for each address. In vain are links that are refused, and those that take the place of another
of the same connection; an honest peer has a few of them, again every minute. Sans-I/O. Called in the receiver's thread only.
"""

import time
from collections.abc import Callable

#: Most links of a connection within a minute, and most of them in vain.
MOST, MOST_IN_VAIN = 2000, 50
_SECONDS = 60.0


class _Attached:
    def __init__(self, since: float) -> None:
        self.since = since
        self.links = self.in_vain = 0
        # Hashes of addresses, which are as long as their sender likes.
        self.addresses: set[int] = set()
        self.is_over = False


class AttachLimits:
    """What the connections of one listener have attached, by the key of each."""

    def __init__(self, end: Callable[[object], None], clock: Callable[[], float] = time.monotonic) -> None:
        """`end` is given the connection that has attached too many; once."""
        self._end = end
        self._clock = clock
        self._all: dict[int, _Attached] = {}

    def __len__(self) -> int:
        """Return of how many connections something is known."""
        return len(self._all)

    def attach(self, number: int, connection: object, address: str) -> None:
        """Note that a connection attaches a link to an address."""
        now = self._clock()
        found = self._all.get(number)
        if found is None or (found.since + _SECONDS <= now and not found.is_over):
            found = self._all[number] = _Attached(now)
        found.links += 1
        found.in_vain += (which := hash(address)) in found.addresses
        found.addresses.add(which)
        self._judge(found, connection)

    def refuse(self, number: int, connection: object) -> None:
        """Note that a link was refused."""
        found = self._all.get(number)
        if found is not None:
            found.in_vain += 1
            self._judge(found, connection)

    def _judge(self, found: _Attached, connection: object) -> None:
        if not found.is_over and (found.links > MOST or found.in_vain > MOST_IN_VAIN):
            found.is_over = True
            self._end(connection)

    def is_over(self, number: int) -> bool:
        """Whether a connection was ended: links that came in one piece with the last one cost no more work."""
        found = self._all.get(number)
        return found is not None and found.is_over

    def forget(self, number: int) -> None:
        """Forget a connection that is gone."""
        self._all.pop(number, None)
