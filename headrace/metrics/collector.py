"""Figures declared once (the attribute that is written, its name at Prometheus, what it means), and read by Prometheus.

A figure is a plain attribute of a dataclass with slots, written by one thread and never locked, so counting costs an addition.
What is computed from others is a property with `worked_out`. Both are read at each scrape, so that counting never waits for it.
None is "not known": such a figure is not shown at all. Used by edge/observability/figures.py and bridge/metrics.py.
"""

import math
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, fields
from itertools import accumulate
from typing import Any, NamedTuple, TypeVar

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from headrace import __version__

F = TypeVar("F", bound=Callable[..., Any])
Family = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily


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


class FiguresCollector(Collector):
    """Metrics `PREFIX_NAME{source="region/name"}` of figures of one class, one for each source, or for each of another label."""

    def __init__(
        self, prefix: str, kind: type, figures: Callable[[], Mapping[str, Any]], label: str = "source"
    ) -> None:
        self._prefix = prefix
        self._label = label
        self._metrics = metrics_of(kind)
        self._figures = figures

    def collect(self) -> Iterator[Family]:
        """Yield every metric, with the sources of which it is known."""
        if self._label == "source":
            yield build_info(self._prefix)
        by_source = self._figures()
        for attribute, metric in self._metrics.items():
            family = _family(f"{self._prefix}_{metric.name}", metric, self._label)
            for source, figures in by_source.items():
                value = getattr(figures, attribute)
                if value is not None:
                    _add(family, metric, source, value)
            yield family

    def text(self) -> bytes:
        """Return all metrics in Prometheus's text format."""
        return text_of(self)


class Together(Collector):
    """Several collectors as one."""

    def __init__(self, *collectors: Collector) -> None:
        self._collectors = collectors

    def collect(self) -> Iterator[Any]:
        """Yield the metrics of all."""
        for each in self._collectors:
            yield from each.collect()

    def text(self) -> bytes:
        """Return all metrics in Prometheus's text format."""
        return text_of(self)


def process_collector() -> Collector:
    """Return `process_…` as Prometheus's other clients have it: processor, memory, open files and their limit."""
    return ProcessCollector(registry=None)


class RefusedCollector(Collector):
    """`PREFIX_refused_inputs_total{door, sender}`: what came from outside and could not be processed."""

    def __init__(self, prefix: str, refused: Callable[[], Mapping[str, Mapping[str, int]]]) -> None:
        self._prefix = prefix
        #: Returns the counts by sender, by door.
        self._refused = refused

    def collect(self) -> Iterator[CounterMetricFamily]:
        """Yield the metric."""
        family = CounterMetricFamily(
            f"{self._prefix}_refused_inputs", "Inputs that could not be processed.", labels=["door", "sender"]
        )
        for door, counts in self._refused().items():
            for sender, count in list(counts.items()):
                family.add_metric([door, sender], count)
        yield family


def text_of(collector: Collector) -> bytes:
    """Return the metrics of a collector in Prometheus's text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    return generate_latest(registry)


def build_info(prefix: str) -> GaugeMetricFamily:
    """Return the metric of the release that runs."""
    release = GaugeMetricFamily(
        f"{prefix}_build_info", "Always 1; its label is the release that runs.", labels=["version"]
    )
    release.add_metric([__version__], 1)
    return release


def names(prefix: str, kind: type) -> set[str]:
    """Return the names of all metrics of a part, as they are scraped, those of a part that is held included."""
    figures = {f"{prefix}_{metric.name}" for metric in metrics_of(kind).values()}
    return figures | {f"{prefix}_build_info", f"{prefix}_held"}


def _family(name: str, metric: Metric, label: str) -> Family:
    if metric.kind == "counter":
        return CounterMetricFamily(name.removesuffix("_total"), metric.help, labels=[label])
    if metric.kind == "histogram":
        return HistogramMetricFamily(name, metric.help, labels=[label])
    return GaugeMetricFamily(name, metric.help, labels=[label, *(["state"] if metric.states else [])])


def _add(family: Any, metric: Metric, source: str, value: Any) -> None:
    if isinstance(value, Seconds):
        counts = accumulate(list(value.counts))
        bounds: Iterable[str] = [*(f"{bound:g}" for bound in Seconds.BOUNDS), "+Inf"]
        family.add_metric([source], list(zip(bounds, counts, strict=True)), value.sum)
    elif metric.states:
        for state in metric.states:
            family.add_metric([source, state], float(state == value))
    else:
        family.add_metric([source], float(value))


class HeldCollector(Collector):
    """`PREFIX_held{reason, exit_code}`, and for each source the state in which it waits."""

    def __init__(self, prefix: str, sources: Sequence[str], state: str, reason: str, exit_code: int) -> None:
        self._prefix = prefix
        self._sources = sources
        self._state = state
        self._labels = [reason, str(exit_code)]

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the metrics."""
        yield build_info(self._prefix)
        gauge = GaugeMetricFamily(
            f"{self._prefix}_held",
            "1 while an error has ended the part and it stays up.",
            labels=["reason", "exit_code"],
        )
        gauge.add_metric(self._labels, 1)
        yield gauge
        states = GaugeMetricFamily(
            f"{self._prefix}_state", "1 for the state that the source is in.", labels=["source", "state"]
        )
        for source in self._sources:
            states.add_metric([source, self._state], 1)
        yield states

    def text(self) -> bytes:
        """Return all metrics in Prometheus's text format."""
        return text_of(self)
