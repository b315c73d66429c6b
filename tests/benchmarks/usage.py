"""What a process costs: CPU seconds and the most memory that it ever had, by the kernel's own count."""

from pathlib import Path
from typing import NamedTuple

import psutil


class Usage(NamedTuple):
    """Of one process, since it began."""

    cpu_seconds: float
    peak_megabytes: float


def usage(pid: int) -> Usage:
    """Return what the process has cost so far."""
    times = psutil.Process(pid).cpu_times()
    status = Path(f"/proc/{pid}/status").read_text()
    (peak,) = (line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:"))
    return Usage(times.user + times.system, int(peak) / 1024)
