"""Figures of each source, in memory: what it did since the bridge started, where it stands, what its edge says of itself.

Written by the source's thread only; read by anybody, who may see one figure newer than another.
"""

import time
from dataclasses import asdict, dataclass, field
from typing import Any

from headrace.batch import Figures


@dataclass(slots=True)
class SourceFigures:
    """One source's figures; counts are since the bridge started."""

    #: `starting`, `serving`, `waiting for Kafka`, `needs an operator`, `taken over` or `stopped`.
    state: str = "starting"
    #: The last committed position; empty while none is known.
    position: str = ""
    records: int = 0
    batches: int = 0
    #: Batches that stood in Kafka already.
    repeats: int = 0
    #: Batches sent back because something before them was missing, or because Kafka failed.
    released: int = 0
    rejected: int = 0
    transactions: int = 0
    #: When the last batch came, by the monotonic clock; 0 before the first.
    heard_at: float = 0.0
    #: What the edge said of itself in its last batch.
    edge: Figures = field(default_factory=dict)

    def snapshot(self) -> dict[str, Any]:
        """Return all figures by name, with the seconds since the edge was heard instead of when."""
        known = asdict(self)
        heard_at = known.pop("heard_at")
        return known | {"silent_seconds": round(time.monotonic() - heard_at, 1) if heard_at else None}
