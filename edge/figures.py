"""What an edge says about itself: counters and gauges, kept in one place, sent in batches and logged.

Every counter has one thread that writes it, so nothing is locked; a reader may see figures of slightly different moments.
"""

import time
from dataclasses import asdict, dataclass

from headrace.batch import Figures as BatchFigures


@dataclass(slots=True)
class Figures:
    """Figures since the edge was started."""

    #: Records captured (changes and schema records), and batches cut from them.
    captured: int = 0
    captured_batches: int = 0
    #: Batches sent, accepted by the far side, and returned by it.
    sent: int = 0
    accepted: int = 0
    returned: int = 0
    #: Connections made to the database and to the interconnect.
    database_connections: int = 0
    interconnect_connections: int = 0
    #: LSN read up to, and LSN that the slot was told.
    read_lsn: int = 0
    confirmed_lsn: int = 0
    #: WAL that the server keeps for the slot, in bytes; -1 while unknown.
    retained_wal_bytes: int = -1
    unacknowledged_batches: int = 0
    unacknowledged_bytes: int = 0

    def for_batch(self) -> BatchFigures:
        """Return the figures that travel to the bridge, with this machine's clock in milliseconds since 1970."""
        return {
            "clock_ms": time.time_ns() // 1_000_000,
            "captured": self.captured,
            "read_lsn": self.read_lsn,
            "confirmed_lsn": self.confirmed_lsn,
            "retained_wal_bytes": self.retained_wal_bytes,
            "unacknowledged_batches": self.unacknowledged_batches,
            "unacknowledged_bytes": self.unacknowledged_bytes,
            "returned": self.returned,
        }

    def __str__(self) -> str:
        """Return them as one line for the log."""
        return ", ".join(f"{name} {value}" for name, value in asdict(self).items())
