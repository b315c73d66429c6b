"""A region of the demo on PostgreSQL, and PostgreSQL's own pgbench writing to it."""

import re
import subprocess
from pathlib import Path

from headrace.errors import NeedsOperator
from infra.local import files
from infra.local.demo.region import Region
from infra.local.postgres import Postgres

_FOREVER = 3600


class Bank(Region):
    """A bank: TPC-B's accounts, tellers, branches and history."""

    database = "bank"
    workload = "pgbench's TPC-B"

    def __init__(self, name: str, folder: Path, postgres: Postgres, *, interconnect: str, detached: bool) -> None:
        super().__init__(name, folder, detached=detached)
        self.postgres = postgres
        files.edge(
            self.edge_file,
            source=self.source,
            postgres=postgres,
            database=self.database,
            interconnect=interconnect,
        )
        self._pgbench: subprocess.Popen[str] | None = None

    def make_tables(self) -> None:
        """Make the database with TPC-B's empty tables."""
        self.postgres.create_database(self.database)
        self._initialise("dtp", 1)

    def fill(self, scale: int) -> None:
        """Make 100,000 accounts for each unit of scale."""
        self._initialise("g", scale)

    def write(self, *, clients: int, seconds: int, rate: int) -> None:
        """Start TPC-B transactions; returns at once."""
        self._pgbench = subprocess.Popen(
            [
                self.postgres.bin("pgbench"),
                *("--no-vacuum", f"--client={clients}", f"--time={seconds}", f"--rate={rate}"),
                self.postgres.dsn(self.database),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def transactions(self) -> tuple[int, float]:
        """Wait for pgbench to end; return how many transactions it committed, and in how many seconds."""
        assert self._pgbench is not None
        said, _ = self._pgbench.communicate(timeout=_FOREVER)
        count = re.search(r"number of transactions actually processed: (\d+)", said)
        rate = re.search(r"tps = ([\d.]+)", said)
        if count is None or rate is None:
            raise NeedsOperator(f"pgbench failed in {self.name}: {said.strip()[-300:]}", hint="Run the demo again.")
        return int(count[1]), int(count[1]) / float(rate[1])

    def stop_writing(self) -> None:
        """End pgbench, if it is at work."""
        if self._pgbench is not None and self._pgbench.poll() is None:
            self._pgbench.kill()
            self._pgbench.communicate()

    def log_position(self) -> str:
        """Return the end of the source's log, an LSN."""
        return self.postgres.psql("SELECT pg_current_wal_insert_lsn()", self.database)

    def confirmed(self) -> str:
        """Return the LSN up to which the source may discard its log: all before it is acknowledged."""
        return self.postgres.psql(
            "SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = 'headrace'", self.database
        )

    def has_confirmed(self, position: str) -> bool:
        """Say whether all of the log before an LSN is acknowledged."""
        behind = self.postgres.psql(f"SELECT '{position}'::pg_lsn - '{self.confirmed()}'::pg_lsn", self.database)
        return int(behind) <= 0

    def _initialise(self, steps: str, scale: int) -> None:
        done = subprocess.run(
            [self.postgres.bin("pgbench"), "-i", "-q", "-I", steps, "-s", str(scale), self.postgres.dsn(self.database)],
            check=False,
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            raise NeedsOperator(
                f"pgbench could not fill {self.name}: {done.stderr.strip()[-300:]}", hint="Run the demo again."
            )
