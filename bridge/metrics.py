"""Metrics of each source: what the bridge did since it started, the state of the source, what its edge reports of itself.

Written by whoever serves the source; read by any thread, which may see one figure newer than another. What an edge reports is
shown, and never trusted for anything else. docs/metrics.md explains each. A transaction is of many sources, so its size and cost
are a lane's and no source's: lanes have metrics of their own.
"""

import math
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from bridge.model.phases import NEXT_OF_SOURCE, SourcePhase
from headrace.batch import Figures
from headrace.metrics.collector import Metric, Rate, Seconds, counter, gauge, histogram, states, worked_out

#: An edge that is silent for more heartbeats than this is not heard any more; a second more for the network.
_HEARTBEATS = 3
#: The heartbeat of an edge that reports none, in seconds.
_HEARTBEAT_SECONDS = 10.0
#: An edge with batches that sends none for so long, in seconds, is kept from it.
_QUIET_SECONDS = 5.0


class Complete(NamedTuple):
    """What the newest committed batch with figures reported: up to then all of the source's log, but for `lag` seconds of it."""

    received_at: float
    lag: float
    commit_ms: float


def reported(figure: str, name: str, text: str) -> Any:
    """Declare a gauge that the edge reports in its batches."""

    def read(figures: "SourceMetrics") -> float | None:
        return number(figures.edge, figure) if figures.served else None

    read.metric = Metric(name, "gauge", text)  # type: ignore[attr-defined]
    return property(read, doc=text)


@dataclass(slots=True)
class SourceMetrics:
    """One source's figures; counts are since the bridge started, None is "not known"."""

    state: SourcePhase = states("state", "1 for the state that the source is in, 0 for the others.", tuple(SourcePhase))  # noqa: RUF009
    #: What explains the state; empty while it serves.
    reason: str = ""
    #: The last committed position; empty while none is known.
    position: str = ""
    records: int = counter("committed_records_total", "Records committed to Kafka.")
    written: int = counter("committed_bytes_total", "Their size, before Kafka's compression.")
    transactions: int = counter("transactions_total", "Kafka transactions committed with records or positions.")
    batches: int = counter("received_batches_total", "Batches received.")
    bytes: int = counter("received_bytes_total", "Their size, compressed.")
    repeats: int = counter("repeated_batches_total", "Batches that were in Kafka already: nothing was written.")
    released: int = counter(
        "released_batches_total", "Batches sent back: something before them was missing, or Kafka failed."
    )
    rejected: int = counter("rejected_batches_total", "Batches that cannot be processed: the edge stops.")
    undecodable: int = counter("decode_errors_total", "Those of them that could not be decoded.")
    gaps: int = counter("gaps_total", "Batches before which something was missing.")
    setbacks: int = counter("setbacks_total", "Times that the source was set back by an error and taken over again.")
    commit_seconds: Seconds = histogram("commit_seconds", "How long Kafka took to commit a transaction.")  # noqa: RUF009
    committed_latency: float | None = gauge(
        "committed_latency_seconds", "From commit in the source to commit in Kafka, of a recent change; by two clocks."
    )
    #: Times by the monotonic clock: the start, the last batch (0 before), the oldest delivery that is not committed.
    stalled_seconds: float | None = gauge(
        "stalled_seconds",
        "How long nothing was committed although the edge has batches; absent while it moves, or is idle.",
    )
    started_at: float = field(default_factory=time.monotonic)
    heard_at: float = 0.0
    waiting_since: float | None = None
    complete: Complete | None = None
    #: What the edge reported of itself in its last batch with figures.
    edge: Figures = field(default_factory=dict)
    rate: Rate = field(default_factory=Rate)
    received_rate: Rate = field(default_factory=Rate)
    written_rate: Rate = field(default_factory=Rate)
    #: Tables that have no topic, in a stream with topics of tables: their records are in the stream's own one.
    without_topic: Collection[str] = ()
    #: Tables whose records wait, because the registry refuses their schema; by name, with its reason.
    withheld: Mapping[str, str] = field(default_factory=dict)

    edge_captured_lag = reported(
        "captured_lag_seconds",
        "edge_captured_lag_seconds",
        "The edge: by how much reading lags behind the source's log.",
    )
    edge_accepted_lag = reported(
        "accepted_lag_seconds",
        "edge_accepted_lag_seconds",
        "The edge: by how much acceptance lags behind the source's log.",
    )
    edge_retained = reported(
        "retained_wal_bytes", "edge_retained_wal_bytes", "The edge: log that its source keeps for it."
    )
    edge_safe = reported(
        "safe_wal_bytes", "edge_safe_wal_bytes", "The edge: log that may still be written before that is lost."
    )
    edge_log_retention = reported(
        "log_retention_seconds",
        "edge_log_retention_seconds",
        "The edge: how long its source keeps its log by age, whoever has read it.",
    )
    edge_unconfirmed_log = reported(
        "unconfirmed_log_seconds",
        "edge_unconfirmed_log_seconds",
        "The edge: how old the oldest log is that it still needs.",
    )
    edge_spool = reported("spool_bytes", "edge_spool_bytes", "The edge: size of the batches in its spool.")
    edge_spool_limit = reported(
        "spool_limit_bytes", "edge_spool_limit_bytes", "The edge: size at which its spool is full."
    )
    edge_unacknowledged = reported(
        "unacknowledged_batches", "edge_unacknowledged_batches", "The edge: batches not accepted."
    )
    edge_disk_free = reported(
        "state_disk_free_bytes",
        "edge_state_disk_free_bytes",
        "The edge: free space of the disk that holds its state folder.",
    )
    edge_certificate_expiry = reported(
        "certificate_expiry_time",
        "edge_certificate_expiry_time_seconds",
        "The edge: when the first certificate of its interconnect ends, in seconds since 1970.",
    )
    edge_cpu = reported("cpu_cores", "edge_cpu_cores", "The edge: processor cores that its process used of late.")
    edge_memory = reported("memory_bytes", "edge_resident_memory_bytes", "The edge: memory of its process.")
    edge_in_flight = reported(
        "in_flight_ratio",
        "edge_in_flight_ratio",
        "The edge: how much of what may be in flight is, from 0 to 1.",
    )
    edge_captured = reported("captured", "edge_captured_records", "The edge: records captured since it was started.")

    @property
    @worked_out(
        "lag_seconds", "By how much what is committed in Kafka lags behind the source's log, as far as is known."
    )
    def lag(self) -> float | None:
        """Seconds; what is not heard of counts as missing. None where another bridge has the source, or after the end."""
        if not self.served:
            return None
        now = time.monotonic()
        if self.complete is None:
            return now - self.started_at
        silent = now - self.complete.received_at
        unheard = silent if silent > self._timeout else 0.0
        waited = now - self.waiting_since if self.waiting_since is not None else 0.0
        return self.complete.lag + max(unheard, waited)

    @property
    @worked_out("edge_silent_seconds", "How long the edge has not been heard; absent before the first time.")
    def silent(self) -> float | None:
        """Seconds since the last batch came."""
        return time.monotonic() - self.heard_at if self.heard_at and self.served else None

    @property
    @worked_out("tables_without_topic", "Tables whose records go to the stream's own topic, because they have none.")
    def without_topic_count(self) -> int:
        """How many were seen since the bridge started."""
        return len(self.without_topic)

    @property
    @worked_out("tables_withheld", "Tables whose records wait, because the schema registry refuses their schema.")
    def withheld_count(self) -> int | None:
        """How many there are now; None where another bridge has to know."""
        return len(self.withheld) if self.served else None

    @property
    @worked_out("edge_heard", "1 while the edge is heard as often as it promises, 0 while not.")
    def heard(self) -> int | None:
        """Whether a batch came lately; None where another bridge has to know."""
        return int(self.silent is not None and self.silent <= self._timeout) if self.served else None

    @property
    @worked_out("edge_ready", "1 while the edge is heard and reports that it captures, 0 while not.")
    def edge_ready(self) -> int | None:
        """Whether all is well at the edge."""
        return (
            int(self.heard and self.edge.get("state", "capturing") == "capturing") if self.heard is not None else None
        )

    @property
    @worked_out(
        "edge_needs_operator", "1 while the last that the edge reported of itself is that it needs an operator."
    )
    def edge_needs_operator(self) -> int | None:
        """Whether the edge has ended with an error that needs a person; it is silent since."""
        return int(self.edge.get("state") == "needs an operator") if self.served else None

    @property
    @worked_out("edge_warned", "1 while the edge reports a warning, 0 while not.")
    def edge_warned(self) -> int | None:
        """Whether the edge reports a warning."""
        return int("warnings" in self.edge) if self.served else None

    @property
    def has_unsent(self) -> bool:
        """Whether a batch came that is not committed, or the edge has batches and does not send them."""
        unacknowledged = number(self.edge, "unacknowledged_batches") or 0
        return self.waiting_since is not None or bool(unacknowledged and (self.silent or 0.0) > _QUIET_SECONDS)

    @property
    def _timeout(self) -> float:
        return _HEARTBEATS * (number(self.edge, "heartbeat_seconds") or _HEARTBEAT_SECONDS) + 1.0

    @property
    def served(self) -> bool:
        """Whether it is for this bridge to know how the source is doing."""
        return self.state not in {SourcePhase.ELSEWHERE, SourcePhase.NOT_SERVED, SourcePhase.STOPPED}

    def enter(self, phase: SourcePhase, reason: str = "") -> None:
        """Go on with a phase; what a lane notes of a source that was taken from it in the meantime is passed over."""
        if phase in NEXT_OF_SOURCE[self.state]:
            self.state, self.reason = phase, reason

    def begin(self) -> None:
        """Note that the source was assigned to this bridge: what was known of it before counts for nothing."""
        self.enter(SourcePhase.STARTING)
        self.started_at, self.heard_at = time.monotonic(), 0.0
        self.waiting_since = self.complete = None
        self.edge, self.withheld = {}, {}

    def hear(self, figures: Figures, size: int) -> None:
        """Note that a batch came, with the figures that it carries, if any."""
        self.heard_at = time.monotonic()
        if self.waiting_since is None:
            self.waiting_since = self.heard_at
        self.batches += 1
        self.bytes += size
        self.received_rate.add(size)
        if figures:
            self.edge = figures

    def read_report(self) -> Complete:
        """Return what the edge reported last of the changes that it has sent."""
        lag, commit_ms = number(self.edge, "captured_lag_seconds"), number(self.edge, "commit_ms")
        return Complete(self.heard_at, lag or 0.0, commit_ms or 0.0)

    def commit(self, records: int, size: int, seconds: float) -> None:
        """Note a committed transaction: its records, their size before compression, and how long Kafka took."""
        self.transactions += 1
        self.records += records
        self.written += size
        self.rate.add(records)
        self.written_rate.add(size)
        self.commit_seconds.add(seconds)

    def settle(self, complete: Complete | None) -> None:
        """Note that nothing waits any more, and what the newest committed batch with figures reported."""
        self.waiting_since = None
        if complete is not None:
            if complete.commit_ms and (self.complete is None or complete.commit_ms != self.complete.commit_ms):
                self.committed_latency = time.time() - complete.commit_ms / 1000
            self.complete = complete

    def set_back(self, phase: SourcePhase, reason: str) -> None:
        """Note that an error keeps the source from being served: from now on something may be missing."""
        self.setbacks += 1
        self.enter(phase, reason)
        if self.waiting_since is None:
            self.waiting_since = time.monotonic()

    def snapshot(self) -> dict[str, Any]:
        """Return the figures that the log shows, by name."""
        names = ("state", "position", "records", "batches", "repeats", "released", "rejected", "transactions")
        silent = None if self.silent is None else round(self.silent, 1)
        return {name: getattr(self, name) for name in names} | {"edge": self.edge, "silent_seconds": silent}


@dataclass(slots=True)
class LaneMetrics:
    """Counts since the bridge started; written by the lane's thread alone."""

    transactions: int = counter("transactions_total", "Transactions committed.")
    aborted: int = counter("aborted_transactions_total", "Transactions aborted, or whose outcome was not known.")
    records: int = counter("records_total", "Records committed.")
    sources: int = counter("sources_total", "Sources in committed transactions, counted in each.")
    partitions: int = counter("partitions_total", "Partitions with records in committed transactions, counted in each.")
    commit_seconds: Seconds = histogram("commit_seconds", "How long Kafka took to commit a transaction.")  # noqa: RUF009

    def commit(self, records: int, sources: int, partitions: int, seconds: float) -> None:
        """Note a committed transaction."""
        self.transactions += 1
        self.records += records
        self.sources += sources
        self.partitions += partitions
        self.commit_seconds.add(seconds)


@dataclass(slots=True)
class ThreadMetrics:
    """What is seen of one thread; written by itself alone."""

    turned_at: float = field(default_factory=time.monotonic)

    @property
    @worked_out("silent_seconds", "How long the thread has been at the same turn: a call that hangs, where it grows.")
    def silent(self) -> float:
        """Seconds since its turn began."""
        return time.monotonic() - self.turned_at


def number(figures: Mapping[str, int | float | str], name: str) -> float | None:
    """Return a figure that the edge reported, None when it reported none or no number."""
    value = figures.get(name)
    return value if isinstance(value, int | float) and math.isfinite(value) else None


def words(figures: Mapping[str, int | float | str], name: str) -> str:
    """Return a text that the edge reported, fit to be shown in a line; empty when it reported none."""
    value = figures.get(name)
    return "".join(each if each.isprintable() else " " for each in value)[:300] if isinstance(value, str) else ""
