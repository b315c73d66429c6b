"""Writers that never give up: PostgreSQL's own pgbench (TPC-B), begun again whenever the server goes away under it."""

import subprocess
import threading
from pathlib import Path

#: Tables and keys first, rows last: the keys are there when the first row is captured.
SCHEMA_STEPS, ROW_STEPS = "dtp", "g"


class Workload:
    """pgbench against one database until `stop`."""

    def __init__(self, pgbench: Path, dsn: str, *, log: Path, clients: int = 4, rate: int = 0) -> None:
        self._pgbench = str(pgbench)
        self._dsn = dsn
        self._log = log
        # A chunk is long enough to matter and short enough to be begun anew often.
        self._options = ["-n", "-c", str(clients), "-j", "1", "-T", "600", *(["-R", str(rate)] if rate else [])]
        self._stopping = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread: threading.Thread | None = None
        #: How often the server went away under it.
        self.broken = 0

    def initialise(self, steps: str, scale: int = 1) -> None:
        """Make the tables, or fill them: the steps are pgbench's own letters."""
        subprocess.run(
            [self._pgbench, "-i", "-q", "-I", steps, "-s", str(scale), self._dsn],
            check=True,
            capture_output=True,
            timeout=120,
        )

    def start(self) -> None:
        """Write from now on."""
        self._stopping.clear()
        self._thread = threading.Thread(target=self._run, daemon=True, name="workload")
        self._thread.start()

    def stop(self) -> None:
        """Write no more; returns when nothing more can be committed."""
        self._stopping.set()
        if self._process is not None:
            self._process.terminate()
        if self._thread is not None:
            self._thread.join(30)

    def _run(self) -> None:
        with self._log.open("ab") as log:
            while not self._stopping.is_set():
                self._process = subprocess.Popen(
                    [self._pgbench, *self._options, self._dsn], stdin=subprocess.DEVNULL, stdout=log, stderr=log
                )
                if self._stopping.is_set():
                    self._process.terminate()
                self._process.wait()
                if not self._stopping.wait(0.1):
                    self.broken += 1
