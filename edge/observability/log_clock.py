"""How far behind a place in the log is, in seconds, whether or not anything happens.

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
