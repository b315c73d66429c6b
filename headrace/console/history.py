"""Figures since the console started, in memory: rings of fixed size, so that a thousand sources cost a few megabytes.

Written by one thread every ten seconds, read by any.
"""

import math
import time
from array import array
from collections.abc import Iterable, Mapping

#: Seconds between two points, and how many points are kept: two hours.
STEP = 10.0
POINTS = 720

#: Seconds since 1970 and a value; None where it was not known.
Point = tuple[float, float | None]


class _Ring:
    """The last values of one figure, by the number of their step."""

    __slots__ = ("first", "last", "values")

    def __init__(self, step: int) -> None:
        self.first = self.last = step
        self.values = array("f", [math.nan]) * POINTS

    def put(self, step: int, value: float | None) -> None:
        for missed in range(max(self.last + 1, step - POINTS + 1), step):
            self.values[missed % POINTS] = math.nan
        self.values[step % POINTS] = math.nan if value is None else value
        self.last = step

    def points(self, since: int) -> Iterable[Point]:
        for step in range(max(self.first, since, self.last - POINTS + 1), self.last + 1):
            value = self.values[step % POINTS]
            yield step * STEP, None if math.isnan(value) else value


class History:
    """Figures by a key of two: what, and of whom: `("lag", "jakarta/bank")`."""

    def __init__(self) -> None:
        self._rings: dict[tuple[str, str], _Ring] = {}

    def record(self, figures: Mapping[tuple[str, str], float | None], at: float | None = None) -> None:
        """Note figures of one moment, in seconds since 1970; now when none is given."""
        step = int((time.time() if at is None else at) // STEP)
        for key, value in figures.items():
            ring = self._rings.get(key)
            if ring is None:
                if value is None:
                    continue
                ring = self._rings[key] = _Ring(step)
            ring.put(step, value)
        for key in [key for key, ring in self._rings.items() if step - ring.last > POINTS]:
            del self._rings[key]

    def series(self, what: str, whom: str, seconds: float) -> list[Point]:
        """Return the points of the last `seconds`, oldest first; empty when nothing was noted."""
        ring = self._rings.get((what, whom))
        return [] if ring is None else list(ring.points(int((time.time() - seconds) // STEP)))
