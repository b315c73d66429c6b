"""Writers that never give up: PostgreSQL's own pgbench (TPC-B), begun again whenever the server goes away under it.

The bank has a tenth of pgbench's accounts: enough for a transaction of many batches when they are made, and for rows that nobody
touches again.
"""

import subprocess
import threading
from contextlib import closing
from pathlib import Path

import psycopg2

ACCOUNTS = 10_000
_TELLERS = 10
#: pgbench's own TPC-B, on fewer accounts.
_TRANSFER = f"""
\\set aid random(1, {ACCOUNTS})
\\set tid random(1, {_TELLERS})
\\set delta random(-5000, 5000)
BEGIN;
UPDATE pgbench_accounts SET abalance = abalance + :delta WHERE aid = :aid;
SELECT abalance FROM pgbench_accounts WHERE aid = :aid;
UPDATE pgbench_tellers SET tbalance = tbalance + :delta WHERE tid = :tid;
UPDATE pgbench_branches SET bbalance = bbalance + :delta WHERE bid = 1;
INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES (:tid, 1, :aid, :delta, CURRENT_TIMESTAMP);
END;
"""
#: What its tables hold at first, in one transaction.
ROWS = f"""
BEGIN;
INSERT INTO pgbench_branches (bid, bbalance) VALUES (1, 0);
INSERT INTO pgbench_tellers (tid, bid, tbalance) SELECT n, 1, 0 FROM generate_series(1, {_TELLERS}) AS n;
INSERT INTO pgbench_accounts (aid, bid, abalance, filler) SELECT n, 1, 0, '' FROM generate_series(1, {ACCOUNTS}) AS n;
COMMIT;
"""


class Workload:
    """pgbench against one database until `stop`."""

    def __init__(self, pgbench: Path, dsn: str, *, log: Path) -> None:
        self._pgbench = str(pgbench)
        self._dsn = dsn
        self._log = log
        #: Transactions in a second, of four clients.
        self.rate = 25
        self._script = log.with_suffix(".sql")
        self._stopping = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread: threading.Thread | None = None
        #: How often the server went away under it.
        self.broken = 0

    def make_tables(self) -> None:
        """Make the tables and their keys, which are there when the first row is captured."""
        subprocess.run(
            [self._pgbench, "-i", "-q", "-I", "dtp", self._dsn], check=True, capture_output=True, timeout=300
        )
        # Without a key, and without this, `edge init` leaves it out.
        with closing(psycopg2.connect(self._dsn)) as connection, connection, connection.cursor() as cursor:
            cursor.execute("ALTER TABLE pgbench_history REPLICA IDENTITY FULL")

    def start(self) -> None:
        """Write from now on."""
        self._script.write_text(_TRANSFER)
        options = ["-n", "-c", "4", "-j", "1", "-T", "600", "-R", str(self.rate), "-f", str(self._script)]
        self._stopping.clear()
        self._thread = threading.Thread(target=self._run, args=(options,), daemon=True, name="workload")
        self._thread.start()

    def stop(self) -> None:
        """Write no more; returns when nothing more can be committed."""
        self._stopping.set()
        if self._process is not None:
            self._process.terminate()
        if self._thread is not None:
            self._thread.join(60)

    def _run(self, options: list[str]) -> None:
        with self._log.open("ab") as log:
            while not self._stopping.is_set():
                self._process = subprocess.Popen(
                    [self._pgbench, *options, self._dsn], stdin=subprocess.DEVNULL, stdout=log, stderr=log
                )
                if self._stopping.is_set():
                    self._process.terminate()
                self._process.wait()
                if not self._stopping.wait(0.1):
                    self.broken += 1
