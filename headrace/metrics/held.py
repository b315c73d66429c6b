"""Metrics of a part that an error has ended and that stays up so that it is seen (headrace/hold.py)."""

from collections.abc import Iterator, Sequence

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from headrace.metrics.collector import build_info, text_of


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
        held = GaugeMetricFamily(
            f"{self._prefix}_held",
            "1 while an error has ended the part and it stays up.",
            labels=["reason", "exit_code"],
        )
        held.add_metric(self._labels, 1)
        yield held
        states = GaugeMetricFamily(
            f"{self._prefix}_state", "1 for the state that the source is in.", labels=["source", "state"]
        )
        for source in self._sources:
            states.add_metric([source, self._state], 1)
        yield states

    def text(self) -> bytes:
        """Return all metrics in Prometheus's text format."""
        return text_of(self)
