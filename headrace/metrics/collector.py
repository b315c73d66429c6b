"""Figures in Prometheus's form: read when Prometheus scrapes, so that counting never waits for it."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from headrace import __version__
from headrace.metrics.figure import Metric, Seconds, metrics_of

Family = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily


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
