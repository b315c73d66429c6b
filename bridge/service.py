"""What a running bridge answers at its endpoint: whether it lives, whether it is ready, and how each of its sources is doing.

Sources that make no progress although something waits to be committed: each is reported once, and shown until it moves.

The threads of a bridge: each takes its turn again and again until the bridge ends, or until it is over. One that does not return,
such as from a call of Kafka's client, is shown by name; what it costs is its own work. Who has a successor for it starts that one
under the same name. Made and watched by the bridge's main thread.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from bridge.deliveries.record import DeliveryMetrics
from bridge.metrics import LaneMetrics, SourceMetrics, ThreadMetrics, number, words
from bridge.model.chain import Withheld
from bridge.model.phases import SourcePhase
from bridge.source.state import SourceState
from headrace import __version__, doors
from headrace.certificates.files import ConnectionMetrics
from headrace.errors import NeedsOperator
from headrace.process import PROCESS
from headrace.status.answer import Answer, DeliveryStatus, Health, SourceStatus, refused_inputs, snapshot_of

if TYPE_CHECKING:
    from headrace.metrics.collector import Together


_log = logging.getLogger(__name__)

#: Seconds after which a source that does not move is reported.
STALLED_SECONDS = 20.0


class Stalls:
    """Looks at all sources now and then."""

    def __init__(
        self, states: Callable[[], Mapping[str, SourceState]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._states = states
        self._clock = clock
        # The position of each source, what of it is withheld, and since when it has been there with something waiting.
        self._since: dict[str, tuple[str, Withheld | None, float]] = {}

    def look(self) -> None:
        """Note which sources are stalled now."""
        now = self._clock()
        for source, state in self._states().items():
            figures = state.figures
            # Most sources of a file may be other bridges'. One whose position cannot be read gives no credit, so nothing comes
            # from its edge.
            is_waiting = state.token is not None and (
                figures.has_unsent or (state.session is None and figures.state is SourcePhase.STARTING)
            )
            if not is_waiting:
                self._since.pop(source, None)
                figures.stalled_seconds = None
                continue
            position, withheld, since = self._since.get(source, ("", None, now))
            # A table that is released moves, and the position waits for it.
            current = session.withheld if (session := state.session) is not None else withheld
            if (position, withheld) != (figures.position, current) or source not in self._since:
                self._since[source] = (figures.position, current, now)
                figures.stalled_seconds = None
            elif now - since >= STALLED_SECONDS:
                if figures.stalled_seconds is None:
                    _log.warning(
                        "%s: assigned to this bridge, and nothing was committed for %.0f s although something waits: %s, %s",
                        source,
                        now - since,
                        figures.state,
                        figures.reason or "no reason known",
                    )
                figures.stalled_seconds = now - since


PREFIX = "headrace_bridge"
LANE_PREFIX, THREAD_PREFIX = f"{PREFIX}_lane", f"{PREFIX}_thread"
#: Of the metrics of deliveries, whose label is `delivery`.
DELIVERY_PREFIX = "headrace_bridge_delivery"
#: Of the metrics of the bridge's own connections, whose label is `connection`: interconnect, kafka.
CONNECTION_PREFIX = PREFIX
#: A bridge whose main thread did not turn for so long, in seconds, hangs.
_HUNG_SECONDS = 60.0
#: Tables that a warning names.
_SHOWN = 5


class BridgeService:
    """Implements `headrace.metrics.endpoint.Served` over the figures of a bridge's sources."""

    def __init__(
        self,
        figures: Callable[[], Mapping[str, SourceMetrics]],
        lanes: Callable[[], Mapping[str, LaneMetrics]],
        connected: Callable[[], bool],
        trouble: Callable[[], str],
        deliveries: Mapping[str, DeliveryMetrics],
        connections: Mapping[str, ConnectionMetrics],
        threads: Callable[[], Mapping[str, ThreadMetrics]],
    ) -> None:
        self._figures = figures
        self._lanes = lanes
        self._deliveries = deliveries
        self._connections = connections
        self._threads = threads
        self._connected = connected
        #: What keeps a lane, the recovery or the membership from working; empty when nothing does.
        self._trouble = trouble
        #: Returns what else does not work: batches are taken all the same.
        self.aside: Callable[[], str] = str
        #: What keeps the bridge from starting; empty once it serves.
        self.waits_for = "Kafka has not answered yet"
        PROCESS.begin()
        #: When the main thread turned last, by the monotonic clock.
        self.turned_at = time.monotonic()

    @cached_property
    def collector(self) -> "Together":
        """What Prometheus reads; its library is imported only for that."""
        from headrace.metrics.collector import FiguresCollector, RefusedCollector, Together, process_collector

        return Together(
            process_collector(),
            FiguresCollector(PREFIX, SourceMetrics, self._figures),
            FiguresCollector(LANE_PREFIX, LaneMetrics, self._lanes, label="lane"),
            FiguresCollector(THREAD_PREFIX, ThreadMetrics, self._threads, label="thread"),
            FiguresCollector(DELIVERY_PREFIX, DeliveryMetrics, lambda: self._deliveries, label="delivery"),
            FiguresCollector(CONNECTION_PREFIX, ConnectionMetrics, lambda: self._connections, label="connection"),
            RefusedCollector(PREFIX, doors.refused),
        )

    def live(self) -> Health:
        """Return whether the main thread still turns."""
        silent = time.monotonic() - self.turned_at
        return Health(well=silent <= _HUNG_SECONDS, reason=f"the main thread turned {silent:.1f} s ago")

    def ready(self) -> Health:
        """Return whether batches are taken and committed: of one source at least, since none may stall the others."""
        if self.waits_for:
            return Health(well=False, reason=self.waits_for)
        if not self._connected():
            return Health(well=False, reason="the interconnect is down")
        sources = self._figures()
        elsewhere = [name for name, figures in sources.items() if figures.state is SourcePhase.ELSEWHERE]
        served = [name for name, figures in sources.items() if figures.state is SourcePhase.SERVING]
        troubled = [
            f"{name}: {figures.state}, {figures.reason or 'no reason given'}"
            for name, figures in sources.items()
            if figures.state not in {SourcePhase.SERVING, SourcePhase.ELSEWHERE}
        ]
        shown = f"{len(served)} of {len(sources)} sources are served"
        shown += f", {len(elsewhere)} by other bridges" if elsewhere else ""
        trouble = self._trouble()
        # A bridge without sources is ready to take some over, if the group has admitted it.
        well = bool(served) or (len(elsewhere) == len(sources) and not trouble)
        return Health(well=well, reason="; ".join([shown, *filter(None, [trouble, self.aside()]), *troubled]))

    def log_figures(self) -> None:
        """Log how each source is doing."""
        for name, each in self._figures().items():
            figures = each.snapshot()
            _log.info(
                "%s: %s at %s; %d records in %d batches and %d transactions, %d repeats, %d released, %d rejected; %s",
                name,
                figures["state"],
                figures["position"] or "no position",
                *(figures[key] for key in ("records", "batches", "transactions", "repeats", "released", "rejected")),
                "edge not heard yet"
                if figures["silent_seconds"] is None
                else f"edge heard {figures['silent_seconds']} s ago",
                extra={"figures": figures},
            )

    def status(self) -> Answer:
        """Return the state of every source and delivery."""
        ready = self.ready()
        sources = [_status(name, figures) for name, figures in self._figures().items()]
        return Answer(
            part="bridge",
            running=True,
            version=__version__,
            ready=ready.well,
            reason=ready.reason,
            cpu_cores=PROCESS.cpu_cores,
            memory_bytes=PROCESS.memory_bytes,
            sources=sources,
            deliveries=[_delivery(name, figures) for name, figures in self._deliveries.items()],
            refused=refused_inputs(doors.refused()),
        )


def _status(source: str, figures: SourceMetrics) -> SourceStatus:
    edge = figures.edge
    return SourceStatus(
        source=source,
        state=figures.state,
        reason=figures.reason,
        position=figures.position or None,
        records_per_second=round(figures.rate.read(), 1),
        captured_lag_seconds=number(edge, "captured_lag_seconds"),
        accepted_lag_seconds=number(edge, "accepted_lag_seconds"),
        committed_lag_seconds=figures.lag,
        retained_wal_bytes=_whole(edge, "retained_wal_bytes"),
        safe_wal_bytes=_whole(edge, "safe_wal_bytes"),
        spool_bytes=_whole(edge, "spool_bytes"),
        spool_limit_bytes=_whole(edge, "spool_limit_bytes"),
        unacknowledged_batches=_whole(edge, "unacknowledged_batches"),
        edge_cpu_cores=figures.edge_cpu,
        edge_memory_bytes=_whole(edge, "memory_bytes") if figures.served else None,
        wan_bytes_per_second=round(figures.received_rate.read(), 1),
        kafka_bytes_per_second=round(figures.written_rate.read(), 1),
        in_flight_ratio=figures.edge_in_flight,
        heard_seconds=figures.silent,
        edge_version=words(edge, "version") or None,
        edge_state=_edge_state(figures),
        snapshot=snapshot_of(edge),
        warnings=_warnings(figures),
    )


def _delivery(name: str, figures: DeliveryMetrics) -> DeliveryStatus:
    return DeliveryStatus(
        delivery=name,
        state=figures.state,
        reason=figures.reason,
        records_per_second=round(figures.rate.read(), 1),
        pending=figures.pending,
        oldest_pending_seconds=round(figures.oldest_age, 1),
        dead_lettered=figures.dead_lettered,
        assigned_partitions=figures.assigned,
        paused_partitions=figures.paused,
        warnings=_delivery_warnings(figures),
    )


def _delivery_warnings(figures: DeliveryMetrics) -> list[str]:
    more = figures.waiting_addresses - len(figures.notes)
    warnings = [*figures.notes, *([f"and {more} other addresses"] if more > 0 else [])]
    if figures.paused:
        warnings.append(f"{figures.paused} partitions are not read on: too much of them is pending")
    if figures.removed:
        warnings.append(f"Kafka removed up to {figures.removed} records before they were delivered")
    return warnings


def _edge_state(figures: SourceMetrics) -> str | None:
    if not figures.served:
        return None
    reported = words(figures.edge, "state") or None
    # One that has ended reported why; of the others it is not known.
    return reported if figures.heard or reported in {"stopped", "needs an operator"} else "silent"


def _warnings(figures: SourceMetrics) -> list[str]:
    if not figures.served:
        return []
    warnings = [words(figures.edge, name) for name in ("reason", "warnings")]
    if figures.stalled_seconds is not None:
        why = (
            "its position could not be read"
            if figures.state is SourcePhase.STARTING
            else "nothing was committed although its edge has batches"
        )
        warnings.insert(0, f"{why} for {figures.stalled_seconds:.0f} s")
    if figures.without_topic:
        shown = ", ".join(sorted(figures.without_topic)[:_SHOWN]) + ", ..." * (len(figures.without_topic) > _SHOWN)
        warnings.append(f"tables without a topic, whose records go to the stream's own: {shown}")
    warnings += [
        f"table {table} is withheld from its topic: {reason or 'the registry refused its schema'}"
        for table, reason in sorted(figures.withheld.items())[:_SHOWN]
    ]
    if len(figures.withheld) > _SHOWN:
        warnings.append(f"and {len(figures.withheld) - _SHOWN} other tables")
    if figures.silent is None:
        return [
            "its edge has not been heard since the bridge started",
            *(warnings if figures.stalled_seconds is not None else []),
        ]
    unheard = [] if figures.heard else [f"its edge has not been heard for {figures.silent:.0f} s"]
    return [*unheard, *filter(None, warnings)]


def _whole(figures: Mapping[str, int | float | str], name: str) -> int | None:
    value = number(figures, name)
    return None if value is None else int(value)


#: Seconds after which a thread is shown that is still at the same turn.
HUNG_SECONDS = 30.0


class Threads:
    """All threads but the main one and the receiver's."""

    def __init__(self) -> None:
        #: By name; of a thread that was given up, those of its successor.
        self.metrics: dict[str, ThreadMetrics] = {}
        #: What ended a thread; the bridge ends with it.
        self.failure: BaseException | None = None
        self._ending = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self, name: str, turn: Callable[[], None], over: Callable[[], bool] = lambda: False) -> None:
        """Start a thread that does `turn` repeatedly."""
        metrics = ThreadMetrics()

        def loop() -> None:
            try:
                while not self._ending.is_set() and not over():
                    metrics.turned_at = time.monotonic()
                    turn()
            except NeedsOperator as error:
                self.failure = self.failure or error
            except BaseException as error:  # noqa: BLE001 - the bridge ends with it.
                _log.exception("unexpected error")
                self.failure = self.failure or error

        thread = threading.Thread(target=loop, name=name, daemon=True)
        # Never changed in place: other threads go through it.
        self.metrics = {**self.metrics, name: metrics}
        self._threads.append(thread)
        thread.start()

    def wait(self, seconds: float) -> None:
        """Let some seconds pass, or less where the bridge ends."""
        self._ending.wait(seconds)

    def hanging(self) -> dict[str, float]:
        """Return for how long those threads did not return that are at one turn for far too long."""
        silent = {name: each.silent for name, each in self.metrics.items()}
        return {name: each for name, each in silent.items() if each > HUNG_SECONDS}

    def end(self, seconds: float) -> set[str]:
        """Have all end within some seconds; return the names of those that do not."""
        self._ending.set()
        until = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        return {thread.name for thread in self._threads if thread.is_alive()}
