"""What this process takes from its machine: processor of late, and memory. Prometheus has `process_…` by its own library."""

import os
import time
from collections.abc import Callable
from pathlib import Path

#: The processor's share is a mean over at least this many seconds.
_LEAST_SECONDS = 10.0


class ProcessUse:
    """Measured when it is read; any thread may."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, processor: Callable[[], float] = time.process_time
    ) -> None:
        self._clock, self._processor = clock, processor
        # When the present mean began, the processor's seconds by then, and the mean before it; None before it was read first.
        self._began: tuple[float, float, float | None] | None = None

    def begin(self) -> None:
        """Let the mean begin now, and not when it is read first."""
        self._began = (self._clock(), self._processor(), None)

    @property
    def cpu_cores(self) -> float | None:
        """How many processor cores were busy of late; None in the first seconds."""
        if self._began is None:
            self.begin()
            return None
        began, seconds, mean = self._began
        now, spent = self._clock(), self._processor()
        if now - began >= _LEAST_SECONDS:
            mean = round((spent - seconds) / (now - began), 4)
            self._began = (now, spent, mean)
        return mean

    @property
    def memory_bytes(self) -> int | None:
        """Resident memory; None where the system does not say."""
        try:
            return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except (OSError, ValueError, IndexError):
            return None


#: Of this process.
PROCESS = ProcessUse()
