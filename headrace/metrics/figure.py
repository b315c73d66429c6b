"""Figures declared once: the attribute that is written, its name at Prometheus, and what it means.

A figure is a plain attribute of a dataclass with slots, written by one thread and never locked, so counting costs an addition.
What is worked out of others is a property with `worked_out`. Both are read at each scrape. None is "not known": such a
figure is not shown at all. Used by edge/observability/figures.py and bridge/metrics.py.
"""

import math
import time
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import field, fields
from typing import Any, NamedTuple, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


class Metric(NamedTuple):
    """How Prometheus shows a figure."""

    #: Without the part's prefix; a counter's ends in `_total`, and a unit is in it: `retained_wal_bytes`.
    name: str
    #: `counter`, `gauge`, `histogram`, or `states`: a text, shown as one series for each that is possible.
    kind: str
    help: str
    states: tuple[str, ...] = ()


def counter(name: str, text: str) -> Any:
    """Declare a count since the part was started."""
    return field(default=0, metadata={"metric": Metric(name, "counter", text)})


def gauge(name: str, text: str, first: float | None = None) -> Any:
    """Declare a number that rises and falls; None while it is not known."""
    return field(default=first, metadata={"metric": Metric(name, "gauge", text)})


def states(name: str, text: str, possible: tuple[str, ...]) -> Any:
    """Declare a text that is always one of those possible, at first the first of them."""
    return field(default=possible[0], metadata={"metric": Metric(name, "states", text, possible)})


def histogram(name: str, text: str) -> Any:
    """Declare a distribution of seconds."""
    return field(default_factory=Seconds, metadata={"metric": Metric(name, "histogram", text)})


def worked_out(name: str, text: str, possible: tuple[str, ...] = ()) -> Callable[[F], F]:
    """Declare a gauge, or a text out of those possible, that is computed at each scrape: goes below `@property`."""

    def mark(function: F) -> F:
        function.metric = Metric(name, "states" if possible else "gauge", text, possible)  # type: ignore[attr-defined]
        return function

    return mark


def metrics_of(kind: type) -> dict[str, Metric]:
    """Return the metric of each attribute of a class of figures that has one."""
    declared = {each.name: each.metadata["metric"] for each in fields(kind) if "metric" in each.metadata}
    return declared | {
        name: each.fget.metric
        for name, each in vars(kind).items()
        if isinstance(each, property) and each.fget is not None and hasattr(each.fget, "metric")
    }


class Seconds:
    """A distribution of durations, by buckets whose bounds double."""

    BOUNDS = tuple(0.001 * 2**power for power in range(15))

    def __init__(self) -> None:
        self.counts = [0] * (len(self.BOUNDS) + 1)
        self.sum = 0.0

    def add(self, seconds: float) -> None:
        """Count one duration."""
        self.counts[bisect_left(self.BOUNDS, seconds)] += 1
        self.sum += seconds


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
