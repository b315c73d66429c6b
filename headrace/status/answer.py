"""What a running part answers when it is asked for its status: the contract between its endpoint and `headrace status`.

An edge answers with its one source, a bridge with all of its own. None is "not known".
"""

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

#: Senders and doors of refused inputs that an answer names.
_MOST_REFUSED = 20


class SnapshotStatus(msgspec.Struct, kw_only=True, omit_defaults=False):
    """How far the copies of a source's tables are, as its edge counts acknowledged rows."""

    #: The table that is copied now, `schema.table`, or next while it is paused.
    table: str
    #: Rows of it that are acknowledged, and how many it has by the database's own statistics.
    rows: int
    estimated_rows: int | None = None
    rows_per_second: float | None = None
    #: Tables that are not finished, this one included.
    tables: int = 1
    paused: bool = False

    @property
    def seconds_left(self) -> float | None:
        """How long this table will take at the present rate; None while that is not known."""
        if self.paused or not self.rows_per_second or self.estimated_rows is None:
            return None
        return max(0, self.estimated_rows - self.rows) / self.rows_per_second


class SourceStatus(msgspec.Struct, kw_only=True, omit_defaults=False):
    """One source."""

    source: str
    #: By edge/observability/figures.py or bridge/metrics.py; `not running` where nobody was asked.
    state: str
    #: What explains the state; empty while all is well.
    reason: str = ""
    #: The last position that is committed, as far as the part that answers has it.
    position: str | None = None
    #: When it was committed, ISO 8601; only where nobody runs.
    committed_at: str | None = None
    #: Of late: captured by the edge, committed by the bridge.
    records_per_second: float | None = None
    #: By how many seconds each hop is behind the end of the source's log: what is read, what is accepted as far as the edge has
    #: it, and what the bridge has committed.
    captured_lag_seconds: float | None = None
    accepted_lag_seconds: float | None = None
    committed_lag_seconds: float | None = None
    retained_wal_bytes: int | None = None
    safe_wal_bytes: int | None = None
    spool_bytes: int | None = None
    spool_limit_bytes: int | None = None
    unacknowledged_batches: int | None = None
    #: What the source costs, of late: processor cores and memory of its edge, and bytes a second, compressed, on the way from it.
    edge_cpu_cores: float | None = None
    edge_memory_bytes: int | None = None
    wan_bytes_per_second: float | None = None
    #: Bytes a second of records, before Kafka's compression; only a bridge has it.
    kafka_bytes_per_second: float | None = None
    #: How much of what may be in flight is, from 0 to 1, by the smaller of credit and window (docs/network.md).
    in_flight_ratio: float | None = None
    #: Seconds since the bridge heard the edge.
    heard_seconds: float | None = None
    edge_version: str | None = None
    #: The edge's own state, as the bridge received it; `silent` when it has not been heard for some heartbeats.
    edge_state: str | None = None
    #: None while nothing is copied.
    snapshot: SnapshotStatus | None = None
    warnings: list[str] = []


def snapshot_of(figures: Mapping[str, int | float | str]) -> SnapshotStatus | None:
    """Return how far the copies are, by the figures that an edge sends; None while nothing is copied."""

    def number(name: str) -> float | None:
        value = figures.get(name)
        return value if isinstance(value, int | float) and math.isfinite(value) and value >= 0 else None

    table, rows, estimate = figures.get("snapshot_table"), number("snapshot_rows"), number("snapshot_estimate")
    if not isinstance(table, str) or rows is None:
        return None
    return SnapshotStatus(
        table="".join(each if each.isprintable() else " " for each in table)[:300],
        rows=int(rows),
        estimated_rows=int(estimate) if estimate is not None else None,
        rows_per_second=number("snapshot_rows_per_second"),
        tables=int(number("snapshot_tables") or 1),
        paused=bool(number("snapshot_paused")),
    )


class DeliveryStatus(msgspec.Struct, kw_only=True, omit_defaults=False):
    """One delivery to regions, as one bridge sees its share of it."""

    delivery: str
    #: By bridge/deliveries/record.py.
    state: str
    #: What explains the state; empty while all is well.
    reason: str = ""
    #: Accepted of late.
    records_per_second: float | None = None
    #: Records read and not settled, and the age of the oldest.
    pending: int | None = None
    oldest_pending_seconds: float | None = None
    #: Since the bridge started.
    dead_lettered: int | None = None
    assigned_partitions: int | None = None
    paused_partitions: int | None = None
    warnings: list[str] = []


class RefusedInputs(msgspec.Struct, kw_only=True):
    """What one sender has sent to one door that could not be processed, since the part started."""

    sender: str
    #: By headrace/doors.py.
    door: str
    count: int


def refused_inputs(refused: Mapping[str, Mapping[str, int]]) -> list[RefusedInputs]:
    """Return what was refused, by sender, by door; the most first, at most 20."""
    inputs = [
        RefusedInputs(sender="".join(each if each.isprintable() else " " for each in sender), door=door, count=count)
        for door, counts in refused.items()
        for sender, count in list(counts.items())
    ]
    return sorted(inputs, key=lambda each: -each.count)[:_MOST_REFUSED]


class Answer(msgspec.Struct, kw_only=True):
    """A part, with its sources."""

    #: `edge` or `bridge`.
    part: str
    #: False when nobody answered, and what is durable was looked up instead.
    running: bool
    version: str = ""
    #: The address asked.
    address: str = ""
    ready: bool = False
    reason: str = ""
    #: Of its own process: processor cores of late, resident memory.
    cpu_cores: float | None = None
    memory_bytes: int | None = None
    sources: list[SourceStatus] = []
    #: Of a bridge; of several, one for each bridge that has partitions of it.
    deliveries: list[DeliveryStatus] = []
    refused: list[RefusedInputs] = []


class Cost(NamedTuple):
    """What one source or part takes, or several together; None is "not known"."""

    cpu_cores: float | None
    memory_bytes: float | None
    wan_bytes_per_second: float | None = None
    kafka_bytes_per_second: float | None = None
    in_flight_ratio: float | None = None


def cost_of(source: SourceStatus) -> Cost:
    """Return what a source takes."""
    return Cost(
        source.edge_cpu_cores,
        source.edge_memory_bytes,
        source.wan_bytes_per_second,
        source.kafka_bytes_per_second,
        source.in_flight_ratio,
    )


def cost_of_all(answers: Iterable[Answer], sources: Iterable[SourceStatus]) -> Cost:
    """Return what bridges and the edges of sources take together, and the fullest share of what may be in flight."""
    costs = [Cost(answer.cpu_cores, answer.memory_bytes) for answer in answers] + [cost_of(each) for each in sources]

    def figures(name: str) -> list[float]:
        return [value for each in costs if (value := getattr(each, name)) is not None]

    sums = {name: sum(values) if (values := figures(name)) else None for name in Cost._fields[:4]}
    return Cost(**sums, in_flight_ratio=max(figures("in_flight_ratio"), default=None))


class Health(msgspec.Struct, frozen=True):
    """An answer to a supervisor."""

    well: bool
    #: A sentence, whether well or not.
    reason: str
