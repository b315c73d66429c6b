"""What an edge reports about itself: counts and gauges kept in one place, scraped, logged, and sent in batches.

Every count has one thread that writes it, so nothing is locked; a reader may see figures of slightly different moments.
docs/metrics.md explains each.
"""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Self

from edge.observability.clocks import CreditWait, LogClock
from headrace import __version__
from headrace.batch import Figures as BatchFigures
from headrace.certificates.files import Expiry
from headrace.configuration.edge import EdgeFile
from headrace.configuration.sections import Certificates
from headrace.metrics.collector import Rate, counter, gauge, worked_out
from headrace.process import PROCESS

STATES = (
    "starting", "capturing", "database down", "interconnect down", "not acknowledged", "stopped",
    "needs an operator",
)  # fmt: skip
#: With batches in flight and nothing accepted for so long, in seconds, the far side is stuck.
STUCK_SECONDS = 30.0
_LOOK_SECONDS = 5.0
#: Of the space for WAL or of the spool, so much taken is worth a warning.
_WARNING_SHARE = 0.8


def look_seconds(config: EdgeFile) -> float:
    """Return how often the end of the source's log is looked at, in seconds."""
    return min(_LOOK_SECONDS, config.heartbeat_seconds)


@dataclass(slots=True)
class Figures:
    """Figures since the edge was started; None is "not known"."""

    captured: int = counter("captured_records_total", "Records captured, schema records included.")
    captured_transactions: int = counter("captured_transactions_total", "Transactions with changes captured.")
    captured_batches: int = counter("captured_batches_total", "Batches cut.")
    captured_bytes: int = counter("captured_bytes_total", "Size of the batches cut, before compression.")
    sent: int = counter("sent_batches_total", "Batches sent; one that is sent again counts again.")
    sent_bytes: int = counter("sent_bytes_total", "Size of the batches sent, compressed.")
    accepted: int = counter("accepted_batches_total", "Batches that the far side accepted: they are committed.")
    returned: int = counter("returned_batches_total", "Batches that came back and are sent again.")
    rejected: int = counter("rejected_batches_total", "Batches that the far side rejected: the edge stops.")
    undecodable: int = counter("decode_errors_total", "Messages of the log that could not be decoded: the edge stops.")
    dead_letters: int = counter("dead_letters_total", "Changes too large or not decoded, sent without their row.")
    database_connections: int = counter("database_connections_total", "Connections made to the database.")
    interconnect_connections: int = counter("interconnect_connections_total", "Links made that got credit.")
    database_connected: int = gauge("database_connected", "1 while the log is read, 0 while not.", 0)
    interconnect_connected: int = gauge("interconnect_connected", "1 while batches can be sent, 0 while not.", 0)
    credit: int = gauge("credit_batches", "Batches that the far side would take now.", 0)
    read_lsn: int = gauge("read_position", "Place in the source's log read up to: an LSN, or file and offset.", 0)
    confirmed_lsn: int = gauge("confirmed_position", "Place below which the source may discard its log.", 0)
    server_lsn: int | None = gauge("log_end_position", "Place where the source's log ended at the last look.")
    retained_wal_bytes: int | None = gauge("retained_wal_bytes", "Log that the source keeps for this edge.")
    safe_wal_bytes: int | None = gauge(
        "safe_wal_bytes", "Log that may still be written before the source gives up on this edge; absent: no limit."
    )
    log_retention_seconds: float | None = gauge(
        "log_retention_seconds",
        "How long the source keeps its log by age, whoever has read it; absent: it does not go by age.",
    )
    unacknowledged_batches: int = gauge("unacknowledged_batches", "Batches that are not accepted.", 0)
    unacknowledged_bytes: int = gauge("unacknowledged_bytes", "Their size, compressed.", 0)
    #: Deliveries without an outcome, and their size, compressed.
    unsettled: tuple[int, int] = (0, 0)
    window_limit_bytes: int | None = gauge("window_limit_bytes", "Unacknowledged bytes at which capture waits.")
    spool_bytes: int | None = gauge("spool_bytes", "Size of the batches in the spool; absent: there is no spool.")
    spool_limit_bytes: int | None = gauge("spool_limit_bytes", "Size at which the spool is full and capture waits.")
    #: Milliseconds since 1970 at which the newest captured change was committed, by the source's clock; 0 before.
    commit_ms: int = 0
    captured_latency: float | None = gauge(
        "captured_latency_seconds", "From commit to capture of the newest change; by two clocks."
    )
    started_at: float = gauge("start_time_seconds", "When the edge was started, in seconds since 1970.", 0.0)
    #: Seconds between the empty batches of an idle source: headquarters counts a longer silence as lag.
    heartbeat_seconds: float = 10.0
    #: Times by the monotonic clock: of the last outcome `accepted`, and of the capturing thread's last turn.
    accepted_at: float = field(default_factory=time.monotonic)
    turned_at: float = field(default_factory=time.monotonic)
    #: Why the database or the interconnect is unavailable, why the edge ended; empty while they are not and it has not.
    database_problem: str = ""
    interconnect_problem: str = ""
    ended: str = ""
    #: `stopped` or `needs an operator` once the edge has ended.
    ended_state: str = ""
    credit_wait: CreditWait = field(default_factory=CreditWait)
    rate: Rate = field(default_factory=Rate)
    sent_rate: Rate = field(default_factory=Rate)
    log_clock: LogClock = field(default_factory=lambda: LogClock(every=5.0))
    #: Returns the place below which everything is accepted.
    accepted_place: Callable[[], int] = field(default=lambda: 0)
    #: The certificates of the interconnect, and the folder that holds spool and checkpoint.
    certificates: Expiry = field(default_factory=lambda: Expiry(Certificates()))
    state_folder: Path | None = None
    #: How far the snapshots are, in the names of `for_batch`; empty while nothing is to be copied.
    snapshot: Callable[[], dict[str, int | float | str]] = field(default=dict)
    #: The warnings about copies that failed.
    failed_copies: Callable[[], list[str]] = field(default=list)
    #: Further warnings: whatever part has one puts it here under its name.
    warned: dict[str, str] = field(default_factory=dict)

    @classmethod
    def from_config(cls, config: EdgeFile) -> Self:
        """Return the figures of an edge that starts now."""
        return cls(
            started_at=time.time(),
            heartbeat_seconds=config.heartbeat_seconds,
            window_limit_bytes=config.batches.window_megabytes << 20,
            log_clock=LogClock(every=look_seconds(config)),
            certificates=Expiry(config.interconnect),
            state_folder=config.resolve(config.state.folder),
        )

    @property
    @worked_out("captured_lag_seconds", "By how much what is read lags behind the end of the source's log.")
    def captured_lag(self) -> float | None:
        """Seconds that reading is behind the end of the log; None before the first look."""
        return None if self.server_lsn is None else self.log_clock.behind(self.read_lsn)

    @property
    @worked_out("accepted_lag_seconds", "By how much what is accepted, so committed, lags behind the source's log.")
    def accepted_lag(self) -> float | None:
        """Seconds that acceptance is behind the end of the log; None before the first look."""
        return None if self.server_lsn is None else self.log_clock.behind(self.accepted_place())

    @property
    @worked_out(
        "unconfirmed_log_seconds",
        "How old the oldest log is that this edge still needs, as far as it was seen since the start.",
    )
    def unconfirmed_log(self) -> float | None:
        """Seconds since the log was beyond what is confirmed; None before the first look."""
        return None if self.server_lsn is None else self.log_clock.behind(self.confirmed_lsn)

    @property
    @worked_out("stuck_seconds", "Seconds since a batch was accepted, while batches are in flight.")
    def stuck(self) -> float:
        """Seconds since the last outcome `accepted` while something is in flight."""
        return time.monotonic() - self.accepted_at if self.unacknowledged_batches else 0.0

    @property
    @worked_out(
        "no_credit_seconds", "How long the link has been attached without credit; 0 while there is credit, or no link."
    )
    def no_credit(self) -> float:
        """Seconds for which the far side has let this source attach and has taken nothing."""
        return self.credit_wait.seconds

    @property
    @worked_out(
        "in_flight_ratio", "How much of what may be in flight is, from 0 to 1, by the smaller of credit and window."
    )
    def in_flight(self) -> float | None:
        """1 where the bridge's credit or the window is used up: nothing more is sent until something is accepted.

        None while nothing can be sent. What is unsent, or in the spool alone, is not in flight.
        """
        if not self.interconnect_connected:
            return None
        batches, size = self.unsettled
        of_credit = batches / (batches + self.credit) if batches else 0.0
        of_window = size / self.window_limit_bytes if self.window_limit_bytes else 0.0
        return round(min(1.0, max(of_credit, of_window)), 3)

    @property
    @worked_out(
        "certificate_expiry_time_seconds",
        "When the first certificate of the interconnect ends, in seconds since 1970; absent without any.",
    )
    def certificate_expiry(self) -> float | None:
        """Seconds since 1970."""
        return self.certificates.time()

    @property
    @worked_out(
        "state_disk_free_bytes", "Free space of the disk that holds the state folder, with spool and checkpoint."
    )
    def state_disk_free(self) -> int | None:
        """Bytes that this process may still write; None where the folder cannot be read."""
        with suppress(OSError):
            if self.state_folder is not None:
                disk = os.statvfs(self.state_folder)
                return disk.f_bavail * disk.f_frsize
        return None

    @property
    @worked_out("ready", "1 while the edge captures and is acknowledged, 0 while not.")
    def ready(self) -> int:
        """Whether all is well."""
        return int(self.state == "capturing")

    @property
    @worked_out("state", "1 for the state that the edge is in, 0 for the others.", STATES)
    def state(self) -> str:
        """One of STATES, by what is really so."""
        if self.ended_state:
            return self.ended_state
        if not self.database_connected:
            return "database down" if self.database_problem else "starting"
        if not self.interconnect_connected:
            return "interconnect down" if self.interconnect_problem or self.credit_wait.is_long else "starting"
        return "not acknowledged" if self.stuck > STUCK_SECONDS + self.heartbeat_seconds else "capturing"

    @property
    def reason(self) -> str:
        """What explains the state; empty while all is well."""
        if self.ended_state:
            return self.ended
        waits = str(self.credit_wait) if self.credit_wait.is_long else ""
        stuck = f"{self.unacknowledged_batches} batches are in flight, none accepted for {self.stuck:.0f} s"
        explained = {
            "database down": self.database_problem,
            "interconnect down": waits or self.interconnect_problem,
            "not acknowledged": f"{stuck}; {waits}" if waits else stuck,
            "starting": "not connected yet",
        }
        return explained.get(self.state, "")

    @property
    @worked_out("warnings", "How many warnings the edge has now; 'headrace status' shows their words.")
    def warned_count(self) -> int:
        """How many there are."""
        return len(self.warnings)

    @property
    def warnings(self) -> list[str]:
        """What an operator should look at before it becomes a problem."""
        warnings = [*self.warned.values(), *self.failed_copies()]
        if self.safe_wal_bytes is not None and self.retained_wal_bytes is not None:
            limit = self.retained_wal_bytes + max(0, self.safe_wal_bytes)
            if limit and self.retained_wal_bytes > _WARNING_SHARE * limit:
                warnings.append(f"retained WAL takes {self.retained_wal_bytes / limit:.0%} of max_slot_wal_keep_size")
        age, kept = self.unconfirmed_log, self.log_retention_seconds
        if age is not None and kept and age > _WARNING_SHARE * kept:
            warnings.append(f"log that is not confirmed is {age / kept:.0%} of the age at which the server removes it")
        if self.spool_bytes and self.spool_limit_bytes and self.spool_bytes > _WARNING_SHARE * self.spool_limit_bytes:
            warnings.append(f"the spool is {self.spool_bytes / self.spool_limit_bytes:.0%} full")
        return warnings

    def saw_log(self, end: int, *, retained: int | None, safe: int | None) -> None:
        """Note what a look at the server found: where its log ends, how much it keeps for this edge and may still write."""
        self.log_clock.look(end, min(self.read_lsn, self.accepted_place()))
        self.server_lsn, self.retained_wal_bytes, self.safe_wal_bytes = end, retained, safe

    def for_batch(self) -> BatchFigures:
        """Return the figures that travel to the bridge, with this machine's clock in milliseconds since 1970."""
        values: dict[str, int | float | str | None] = {
            "clock_ms": time.time_ns() // 1_000_000,
            "version": __version__,
            "state": self.state,
            "heartbeat_seconds": self.heartbeat_seconds,
            "captured": self.captured,
            "commit_ms": self.commit_ms,
            "read_lsn": self.read_lsn,
            "confirmed_lsn": self.confirmed_lsn,
            "captured_lag_seconds": _round(self.captured_lag),
            "accepted_lag_seconds": _round(self.accepted_lag),
            "retained_wal_bytes": self.retained_wal_bytes,
            "safe_wal_bytes": self.safe_wal_bytes,
            "log_retention_seconds": self.log_retention_seconds,
            "unconfirmed_log_seconds": _round(self.unconfirmed_log),
            "unacknowledged_batches": self.unacknowledged_batches,
            "unacknowledged_bytes": self.unacknowledged_bytes,
            "spool_bytes": self.spool_bytes,
            "spool_limit_bytes": self.spool_limit_bytes,
            "certificate_expiry_time": self.certificate_expiry,
            "state_disk_free_bytes": self.state_disk_free,
            "returned": self.returned,
            "cpu_cores": PROCESS.cpu_cores,
            "memory_bytes": PROCESS.memory_bytes,
            "in_flight_ratio": self.in_flight,
            "warnings": "; ".join(self.warnings)[:300],
            "reason": self.reason[:300],
        }
        values |= self.snapshot()
        # Wide places are no numbers of MessagePack.
        values = {
            name: None if isinstance(value, int) and value >= 1 << 64 else value for name, value in values.items()
        }
        return {name: value for name, value in values.items() if value is not None and value != ""}

    def __str__(self) -> str:
        """Return them as one line for the log."""
        numbers = [each.name for each in fields(self) if "metric" in each.metadata]
        lags = f"captured lag {self.captured_lag}, accepted lag {self.accepted_lag}"
        return f"{self.state}, " + ", ".join(f"{name} {getattr(self, name)}" for name in numbers) + f", {lags}"


def _round(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)
