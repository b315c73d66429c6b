"""What a session releases: withheld batches of one table, on their way from the reader's thread to a lane's.

While a table is released, the session takes no deliveries: what comes later would be withheld behind what is there, and a busy
table would never be done. Whatever is in doubt is dropped: the committed state says where to begin again.
"""

import threading
import time
from collections import deque
from typing import NamedTuple

from headrace.batch import Batch

#: Seconds until a table whose record its topic did not take is tried again.
_PUT_OFF_SECONDS = 30.0


class Released(NamedTuple):
    """A step of a release."""

    table: str
    #: The offset from which the step was read, and the one to go on from after it.
    begin: int
    next: int
    #: None where no record of the table is between them.
    batch: Batch | None
    #: The size of the withheld record, in bytes.
    size: int = 0


class Release:
    """The steps of one session; for its lane and the reader."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._steps: deque[Released] = deque()
        #: The table that is released now; empty while none is.
        self.table = ""
        # Until when tables are not tried again, by the monotonic clock.
        self._put_off: dict[str, float] = {}

    def put_off(self, table: str) -> None:
        """Have a table that cannot be released now not tried for a while: others are."""
        self._put_off[table] = time.monotonic() + _PUT_OFF_SECONDS

    def is_put_off(self, table: str) -> bool:
        """Whether a table is not to be tried now."""
        return time.monotonic() < self._put_off.get(table, 0.0)

    def __len__(self) -> int:
        """Return how many steps wait."""
        return len(self._steps)

    @property
    def size(self) -> int:
        """The size of what waits, in bytes."""
        with self._lock:
            return sum(step.size for step in self._steps)

    def begin(self, table: str) -> None:
        """Begin to release a table."""
        with self._lock:
            self._steps.clear()
            self.table = table

    def put(self, steps: list[Released]) -> None:
        """Add steps, unless the release of their table has ended."""
        with self._lock:
            self._steps.extend(step for step in steps if step.table == self.table)

    def take(self) -> Released | None:
        """Return the next step; None when none waits."""
        with self._lock:
            return self._steps.popleft() if self._steps else None

    def end(self) -> None:
        """End it, done or not."""
        with self._lock:
            self._steps.clear()
            self.table = ""
