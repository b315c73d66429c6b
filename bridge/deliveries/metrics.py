"""Figures of each delivery: written by its thread and the receiver's, read by anybody. docs/metrics.md explains each."""

import time
from dataclasses import dataclass, field

from headrace.metrics.figure import Rate, counter, gauge, states, worked_out

STATES = ("starting", "delivering", "waiting for Kafka", "needs an operator", "stopped")


@dataclass(slots=True)
class DeliveryMetrics:
    """One delivery's figures; counts are since the bridge started."""

    state: str = states("state", "1 for the state that the delivery is in, 0 for the others.", STATES)
    #: What explains the state; empty while it delivers.
    reason: str = ""
    read: int = counter("read_records_total", "Records read from the topic.")
    delivered: int = counter("delivered_records_total", "Records that a receiver accepted.")
    redelivered: int = counter("redelivered_records_total", "Times that a record was sent again.")
    dead_lettered: int = counter("dead_lettered_records_total", "Records written to the dead-letter topic.")
    removed: int = counter(
        "removed_records_total", "Records that Kafka's retention removed before they were delivered, at most."
    )
    pending: int = gauge("pending_records", "Records read that are neither accepted nor dead letters.", 0)
    paused: int = gauge("paused_partitions", "Partitions not read on, as too many of their records are pending.", 0)
    assigned: int = gauge("assigned_partitions", "Partitions that this bridge delivers.", 0)
    #: Addresses with pending records that have no receiver, or one without credit.
    waiting_addresses: int = gauge("waiting_addresses", "Addresses with records and nobody who takes them.", 0)
    #: The timestamp of the oldest pending record, in milliseconds since 1970; None while none is pending.
    oldest_ms: int | None = None
    #: Why addresses wait, shown by `headrace status`.
    notes: list[str] = field(default_factory=list)
    rate: Rate = field(default_factory=Rate)

    @property
    @worked_out("oldest_pending_seconds", "Age of the oldest pending record by its timestamp; 0 while none is pending.")
    def oldest_age(self) -> float:
        """Seconds."""
        return 0.0 if self.oldest_ms is None else max(0.0, time.time() - self.oldest_ms / 1000)
