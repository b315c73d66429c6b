"""Ranges of figures from a Prometheus that scrapes the bridges, where `--prometheus` names one.

It only widens the charts: every page works without it, and one that does not answer is named on the page.

Figures since the console started, in memory: rings of fixed size, so that a thousand sources cost a few megabytes.
"""

import json
import math
import time
import urllib.error
import urllib.parse
import urllib.request
from array import array
from collections.abc import Iterable, Mapping

from headrace.errors import ConfigurationError, NotConnected

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


_PATIENCE = 2.0
#: Points of a chart.
_POINTS = 240
#: After it did not answer, Prometheus is left alone for so many seconds: a page must not wait for each chart.
_PAUSE = 15.0


class Prometheus:
    """A server by its URL."""

    def __init__(self, url: str) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ConfigurationError(f"--prometheus {url}: expected a URL such as http://127.0.0.1:9090")
        self.url = url.rstrip("/")
        #: For people: without a name and a password.
        self.shown = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl().rstrip("/")
        self._silent: tuple[float, str] = (0.0, "")

    def series(self, query: str, seconds: float) -> list[Point]:
        """Return the points of a query that gives one series, over the last `seconds`; raise NotConnected without an answer."""
        since, why = self._silent
        if time.monotonic() - since < _PAUSE and why:
            raise NotConnected(why)
        now = time.time()
        step = max(5.0, seconds / _POINTS)
        asked = urllib.parse.urlencode({"query": query, "start": now - seconds, "end": now, "step": step})
        try:
            # The scheme was checked.
            with urllib.request.urlopen(f"{self.url}/api/v1/query_range?{asked}", timeout=_PATIENCE) as answer:  # noqa: S310
                found = json.load(answer)["data"]["result"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            reason = getattr(error, "reason", None) or error
            why = f"Prometheus at {self.shown} does not answer: {reason}"
            self._silent = (time.monotonic(), why)
            raise NotConnected(why) from error
        self._silent = (0.0, "")
        return _filled(found[0]["values"], step) if found else []


def _filled(values: list[tuple[float, str]], step: float) -> list[Point]:
    """Return points with a hole wherever Prometheus had none."""
    points: list[Point] = []
    for at, text in values:
        if points and at - points[-1][0] > 1.5 * step:
            points.append((points[-1][0] + step, None))
        value = float(text)
        points.append((at, value if value == value else None))  # noqa: PLR0124 - not a number.
    return points


def quoted(text: str) -> str:
    """Return a label's value as PromQL takes it."""
    return json.dumps(text)
