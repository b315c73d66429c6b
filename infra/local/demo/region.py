"""One region of the demo: a database, the edge beside it, and PostgreSQL's own pgbench writing to it."""

import re
import subprocess
from pathlib import Path

from headrace.errors import NeedsOperator
from infra.local import files
from infra.local.demo.part import Part, headrace
from infra.local.postgres import Postgres

DATABASE = "bank"
_FOREVER = 3600


class Region:
    """A source of the demo, named after its region."""

    def __init__(self, name: str, folder: Path, postgres: Postgres, *, interconnect: str, detached: bool) -> None:
        self.name = name
        self.source = f"{name}/{DATABASE}"
        self.postgres = postgres
        self.edge_file = files.edge(
            folder / f"edge-{name}.toml",
            source=self.source,
            postgres=postgres,
            database=DATABASE,
            interconnect=interconnect,
        )
        arguments = ["edge", "run", "--config", str(self.edge_file)]
        self.edge = Part(f"edge-{name}", arguments, folder, detached=detached)
        self._pgbench: subprocess.Popen[str] | None = None

    def prepare(self, scale: int) -> None:
        """Make the database and its tables, begin to capture, and only then make the rows: all of them are in the log."""
        self.postgres.create_database(DATABASE)
        self._initialise("dtp", scale)
        headrace("edge", "init", "--config", str(self.edge_file))
        self.edge.start()
        self._initialise("g", scale)

    def write(self, *, clients: int, seconds: int, rate: int) -> None:
        """Start TPC-B transactions: so many clients, for so long, so many a second; returns at once."""
        self._pgbench = subprocess.Popen(
            [
                self.postgres.bin("pgbench"),
                *("--no-vacuum", f"--client={clients}", f"--time={seconds}", f"--rate={rate}"),
                self.postgres.dsn(DATABASE),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    @property
    def writing(self) -> bool:
        """Whether pgbench is at work."""
        return self._pgbench is not None and self._pgbench.poll() is None

    def transactions(self) -> tuple[int, float]:
        """Wait for pgbench to end; return how many transactions it committed, and how many a second."""
        assert self._pgbench is not None
        said, _ = self._pgbench.communicate(timeout=_FOREVER)
        count = re.search(r"number of transactions actually processed: (\d+)", said)
        rate = re.search(r"tps = ([\d.]+)", said)
        if count is None or rate is None:
            raise NeedsOperator(f"pgbench failed in {self.name}: {said.strip()[-300:]}", hint="Run the demo again.")
        return int(count[1]), float(rate[1])

    def stop_writing(self) -> None:
        """End pgbench, if it is at work."""
        if self._pgbench is not None and self.writing:
            self._pgbench.kill()
            self._pgbench.communicate()

    def log_position(self) -> str:
        """Return the end of the source's log, an LSN."""
        return self.postgres.psql("SELECT pg_current_wal_insert_lsn()", DATABASE)

    def confirmed(self) -> str:
        """Return the LSN up to which the source may discard its log: all before it is acknowledged."""
        return self.postgres.psql(
            "SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = 'headrace'", DATABASE
        )

    def behind(self, lsn: str) -> int:
        """Return how many bytes of log up to the LSN are not confirmed yet; 0 when all are."""
        return max(0, int(self.postgres.psql(f"SELECT '{lsn}'::pg_lsn - '{self.confirmed()}'::pg_lsn", DATABASE)))

    def _initialise(self, steps: str, scale: int) -> None:
        done = subprocess.run(
            [self.postgres.bin("pgbench"), "-i", "-q", "-I", steps, "-s", str(scale), self.postgres.dsn(DATABASE)],
            check=False,
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            raise NeedsOperator(
                f"pgbench could not fill {self.name}: {done.stderr.strip()[-300:]}", hint="Run the demo again."
            )
