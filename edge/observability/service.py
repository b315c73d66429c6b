"""What a running edge answers at its endpoint: whether it lives, whether it is ready, and how its source is doing."""

import time
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

from edge.observability.figures import Figures
from headrace import __version__, doors
from headrace.process import PROCESS
from headrace.status.answer import Answer, Health, SourceStatus, refused_inputs, snapshot_of

if TYPE_CHECKING:
    from headrace.metrics.collector import Together

PREFIX = "headrace_edge"
#: A capturing thread that did nothing for so long, in seconds, hangs: every call that it makes ends sooner.
_HUNG_SECONDS = 180.0


class EdgeService:
    """Implements `headrace.metrics.endpoint.Served` over an edge's figures."""

    def __init__(self, source: str, figures: Figures, position: Callable[[], str]) -> None:
        self._source = source
        self._figures = figures
        self._position = position

    @cached_property
    def collector(self) -> "Together":
        """What Prometheus reads; its library is imported only for that."""
        from headrace.metrics.collector import FiguresCollector, RefusedCollector, Together, process_collector

        return Together(
            process_collector(),
            FiguresCollector(PREFIX, Figures, lambda: {self._source: self._figures}),
            RefusedCollector(PREFIX, doors.refused),
        )

    def live(self) -> Health:
        """Return whether the capturing thread still runs."""
        silent = time.monotonic() - self._figures.turned_at
        if silent > _HUNG_SECONDS:
            return Health(well=False, reason=f"the capturing thread has done nothing for {silent:.0f} s")
        return Health(well=True, reason=f"the capturing thread worked {silent:.1f} s ago")

    def ready(self) -> Health:
        """Return whether changes are captured and acknowledged."""
        figures = self._figures
        state, reason = figures.state, figures.reason
        return Health(well=state == "capturing", reason=f"{state}: {reason}" if reason else state)

    def status(self) -> Answer:
        """Return the source's status."""
        figures, ready = self._figures, self.ready()
        return Answer(
            part="edge",
            running=True,
            version=__version__,
            ready=ready.well,
            reason=ready.reason,
            cpu_cores=PROCESS.cpu_cores,
            memory_bytes=PROCESS.memory_bytes,
            sources=[
                SourceStatus(
                    source=self._source,
                    state=figures.state,
                    reason=figures.reason,
                    position=self._position(),
                    records_per_second=round(figures.rate.read(), 1),
                    captured_lag_seconds=figures.captured_lag,
                    accepted_lag_seconds=figures.accepted_lag,
                    retained_wal_bytes=figures.retained_wal_bytes,
                    safe_wal_bytes=figures.safe_wal_bytes,
                    spool_bytes=figures.spool_bytes,
                    spool_limit_bytes=figures.spool_limit_bytes,
                    unacknowledged_batches=figures.unacknowledged_batches,
                    edge_cpu_cores=PROCESS.cpu_cores,
                    edge_memory_bytes=PROCESS.memory_bytes,
                    wan_bytes_per_second=round(figures.sent_rate.read(), 1),
                    in_flight_ratio=figures.in_flight,
                    edge_version=__version__,
                    snapshot=snapshot_of(figures.snapshot()),
                    warnings=figures.warnings,
                )
            ],
            refused=refused_inputs(doors.refused()),
        )
