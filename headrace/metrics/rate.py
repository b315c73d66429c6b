"""A rate that fades: so many a second, over about the last ten seconds, with nothing that has to run on time."""

import math
import time
from collections.abc import Callable

_SECONDS = 10.0


class Rate:
    """Counts a second. Written by one thread; whoever reads sees it fade when nothing is counted."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._state = (0.0, clock())

    def add(self, count: int) -> None:
        """Count so many, now."""
        now = self._clock()
        self._state = (self._at(now) + count / _SECONDS, now)

    def read(self) -> float:
        """Return how many a second there were lately."""
        return self._at(self._clock())

    def _at(self, now: float) -> float:
        rate, since = self._state
        return rate * math.exp((since - now) / _SECONDS)
