"""How far behind a place in the log is, in seconds, whether or not anything happens; and for how long credit is missing.

Somebody looks at the source's log every few seconds and notes where it ends. A place that reaches the newest end lags by
nothing, however long ago the last change was; one that does not lags by the age of the oldest end that it has not reached, and
that grows while nothing arrives. Once looks fail the log is not known, so the time since the last look counts. One clock
is used, this machine's. The watch writes; capture and readers of figures read.
"""

import threading
import time
from collections.abc import Callable

#: So many looks are kept; beyond, they are kept half as densely, which only makes a long lag coarser.
_MOST = 512
#: A look older than so many intervals is not the present.
_STALE = 3


class LogClock:
    """When the source's log ended where."""

    def __init__(self, every: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._stale_seconds = _STALE * every + 1.0
        self._every = self._apart = every
        self._clock = clock
        self._lock = threading.Lock()
        self._looks: list[tuple[float, int]] = []
        self._looked_at = clock()

    def look(self, end: int, reached: int) -> None:
        """Note that the log ends at `end` now; places before `reached` are not queried any more."""
        now = self._clock()
        with self._lock:
            kept = [look for look in self._looks if reached < look[1] <= end]
            # Where the log did not grow, the time since which it ends there is what counts.
            if not kept or kept[-1][1] < end:
                if len(kept) > 1 and kept[-1][0] - kept[-2][0] < self._apart:
                    kept.pop()
                kept.append((now, end))
            if len(kept) > _MOST:
                self._apart *= 2
                kept = kept[::2]
            elif len(kept) <= 1:
                self._apart = self._every
            self._looks, self._looked_at = kept, now

    def behind(self, place: int) -> float:
        """Return by how many seconds a place is behind the end of the log."""
        now = self._clock()
        with self._lock:
            missed = next((at for at, end in self._looks if end > place), None)
            if missed is not None:
                return now - missed
            unseen = now - self._looked_at
            return unseen if unseen > self._stale_seconds else 0.0


#: A wait of less than this is ordinary, in seconds.
_ORDINARY_SECONDS = 5.0
#: The first pause between two warnings and the longest, in seconds; each is twice the one before.
_FIRST_SECONDS, _LONGEST_SECONDS = 30.0, 600.0


class CreditWait:
    """The wait of one link after another."""

    def __init__(self) -> None:
        # By the monotonic clock and by that of the wall; None while there is credit, or no link.
        self._since: tuple[float, float] | None = None
        self._warn_at, self._pause = 0.0, _FIRST_SECONDS

    @property
    def seconds(self) -> float:
        """For how long there has been a link and no credit."""
        since = self._since
        return 0.0 if since is None else time.monotonic() - since[0]

    @property
    def is_long(self) -> bool:
        """Whether that is longer than ordinary."""
        return self.seconds > _ORDINARY_SECONDS

    def attached(self) -> None:
        """Begin to wait: the link is there."""
        now = time.monotonic()
        self._since = now, time.time()
        self._warn_at, self._pause = now + _ORDINARY_SECONDS, _FIRST_SECONDS

    def used_up(self) -> None:
        """Begin to wait, unless it does: all credit is used."""
        if self._since is None:
            self.attached()

    def given(self) -> None:
        """End the wait: there is credit, or no link any more."""
        self._since = None

    def is_due(self) -> bool:
        """Return whether it is time for a warning, seldomer each time."""
        now = time.monotonic()
        if self._since is None or now < self._warn_at:
            return False
        self._warn_at, self._pause = now + self._pause, min(2 * self._pause, _LONGEST_SECONDS)
        return True

    def __str__(self) -> str:
        """Return it in words, empty while nothing waits."""
        since = self._since
        if since is None:
            return ""
        clock = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(since[1]))
        return (
            f"attached, no credit since {clock}: no bridge receives from this address, a router between does not forward it, or "
            "the bridge waits for Kafka or for an operator"
        )
