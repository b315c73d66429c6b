"""A MySQL 9.7 server (LTS) from Debian's packages: fetched, unpacked, made, started, stopped, crashed and started again.

`python -m tests.servers.mysql97`, which `make test-servers` runs, fetches the packages by apt-get from Debian's suite `unstable`
into .setup/mysql97. It installs nothing and needs no root. The packages are pinned by SHA-256: where Debian has newer ones, it
names those that are gone. The server starts by the loader and the libraries of that folder, so it does not depend on the
machine's own. It comes without a client.
"""

import fcntl
import hashlib
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import ClassVar

from headrace.errors import NeedsOperator, ReplicationError
from infra.local.mariadb import BinlogServer
from infra.local.server import readable_copy

_NAME = "mysql-9.7.4"
FOLDER = Path(__file__).parents[2] / ".setup" / "mysql97"
_SOURCE = "deb http://deb.debian.org/debian unstable main\n"
#: The server and the packages of the libraries that it loads: version and SHA-256.
_PACKAGES = {
    "mysql-server-core": ("9.7.4-2", "628d2d7d2dc827507bcae80677a9950766b002bec2c658cb96343d9f324f8660"),
    "libaio1t64": ("0.3.113-10", "90612397d7817113c28c56a42e67116bbfb4f3f857ee1520e0509ac9d8616a72"),
    "libc6": ("2.43-7", "5c71715c51103beb4fbba9fe9f8dff604af6610dfa71c70bff342f54a7860803"),
    "libgcc-s1": ("16.2.0-4", "d251ea642c3795e8723ac2b9eeebe511467ca04590ba70f3d555a7616787d7e3"),
    "libgoogle-perftools4t64": ("2.18.1-2", "dd0b14852c08c483e9ce150b1f42068740483b75ce6b73618667a418654b04f5"),
    "libicu78": ("78.3-2", "dc918ea6cbe7bb6feea43aac3920a86a29dcc5faf4c56d8f0948408f9076d866"),
    "liblz4-1": ("1.10.0-10", "069d0349906af0335de6cb6a4132f0ac45c1e1db0dffffdcb5b1d291f8f6a66f"),
    "liblzma5": ("5.8.4-1", "2dd166f61cb2a32c50f1a4dd3cd34f5f18a4ff97a6ff23665b9a57537fd60625"),
    "libnuma1": ("2.0.19-1+b2", "c4175eb2a991806b5f683f7b2a6a9e444f310058763070b30417e1f1021cf04c"),
    "libprotobuf-lite32t64": ("3.21.12-17", "8ed87b981d1281b38c4e5dc17feedb6866acf996789b51833529dc22d3a4c3b8"),
    "libssl3t64": ("3.6.5-1", "0a0ec84fe860c5c93c74d53cbb071aea0793327a3761b483080e9d7b73c21b37"),
    "libstdc++6": ("16.2.0-4", "cef6654bba1daece0bc0dbe0e3f69fa5a26eb6ba139f3536e6f4806bd787f3e7"),
    "libunwind8": ("1.8.1-0.4", "aee9cb6fd8e298d52c398eabea640e0a49b198d77c0e6df34e69ed97e255b9b3"),
    "libxxhash0": ("0.8.3-2+b2", "3dc2a55daf655f3c07df99b2be4cb7eea6b79089e66407f6739fe40c267907c4"),
    "libzstd1": ("1.5.7+dfsg-4", "93e7930e4c25b918f1dd980cc1c6d4487654a248f5fa71eacb976ed7bbe954bd"),
    "zlib1g": ("1:1.3.dfsg+really1.3.2-4", "8506ce550a81ac14b047608e0df121037d9cbb10c3cc28446f68cf8c1d9d31ce"),
}
#: Names are not resolved, so 127.0.0.1 is not `localhost`.
_ACCOUNTS = """\
create user root@'127.0.0.1';
grant all on *.* to root@'127.0.0.1' with grant option;
"""
_LIBRARIES = Path("lib/x86_64-linux-gnu")


class Mysql97(BinlogServer):
    """One server in a folder; `settings` go to its command line, over ours."""

    kind, name = "mysql", "MySQL"
    program = "sbin/mysqld"
    own_settings: ClassVar = {
        "gtid-mode": "ON",
        "enforce-gtid-consistency": "ON",
        "innodb-redo-log-capacity": "32M",
        "performance-schema": "OFF",
        "secure-file-priv": "",
        # A port of its own, for another protocol.
        "mysqlx": "0",
    }
    #: What this version no longer has.
    left_out: ClassVar = frozenset({"innodb-log-file-size"})

    @property
    def version(self) -> str:
        """The server's version."""
        return _NAME.partition("-")[2]

    def _unpacked(self, account: pwd.struct_passwd | None) -> Path:
        if not (FOLDER / _NAME).exists():
            raise NeedsOperator(f"MySQL 9.7 is not unpacked in {FOLDER}.", hint="make test-servers does it once.")
        return readable_copy(FOLDER, [_NAME], _NAME, account) / _NAME / "usr"

    def _command(self) -> list[str | Path]:
        libraries = self._programs / _LIBRARIES
        loader = libraries / "ld-linux-x86-64.so.2"
        return [loader, "--library-path", str(libraries), self._programs / self.program]

    def _places(self) -> list[str]:
        return [f"--basedir={self._programs}", f"--lc-messages-dir={self._programs / 'share' / 'mysql'}"]

    def _making(self, data: Path) -> list[str | Path]:
        accounts = data.with_name("accounts.sql")
        accounts.write_text(_ACCOUNTS)
        return [
            *self._command(),
            "--no-defaults",
            *self._places(),
            f"--datadir={data}",
            "--initialize-insecure",
            f"--init-file={accounts}",
            "--auto-generate-certs=OFF",
            "--sha256-password-auto-generate-rsa-keys=OFF",
            "--caching-sha2-password-auto-generate-rsa-keys=OFF",
            f"--innodb-redo-log-capacity={self.settings['innodb-redo-log-capacity']}",
        ]


def unpack() -> None:
    """Fetch and unpack the server; do nothing if it is there.

    Raises NeedsOperator if there is no apt-get, or Debian does not have the pinned packages any more.
    """
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (FOLDER / _NAME).exists():
            return
        with tempfile.TemporaryDirectory(prefix=".unpacking-", dir=FOLDER) as folder:
            root = Path(folder) / "root"
            for package in _fetched(Path(folder)):
                subprocess.run(["dpkg", "-x", package, root], check=True)
            root.chmod(0o755)
            root.rename(FOLDER / _NAME)


def _fetched(folder: Path) -> list[Path]:
    """Return the packages, downloaded into a folder and compared with their digests."""
    if not shutil.which("apt-get") or not shutil.which("dpkg"):
        raise NeedsOperator("MySQL 9.7 is fetched by apt-get, which this machine does not have.", hint="Use Debian.")
    for part in ("state/lists/partial", "cache/archives/partial", "parts", "packages"):
        (folder / part).mkdir(parents=True)
    (folder / "parts" / "unstable.list").write_text(_SOURCE)
    options = [
        f"Dir::State={folder / 'state'}", f"Dir::Cache={folder / 'cache'}", "Dir::Etc::sourcelist=/dev/null",
        f"Dir::Etc::sourceparts={folder / 'parts'}",
        # The account that downloads otherwise cannot write here.
        *(["APT::Sandbox::User=root"] if os.geteuid() == 0 else []),
    ]  # fmt: skip
    apt = ["apt-get", "-qq", *(word for option in options for word in ("-o", option))]
    wanted = [f"{name}={version}" for name, (version, _) in _PACKAGES.items()]
    for words in (["update"], ["download", *wanted]):
        done = subprocess.run([*apt, *words], cwd=folder / "packages", capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise _moved(" ".join(done.stderr.split())[-1500:])
    digests = {digest: name for name, (_, digest) in _PACKAGES.items()}
    packages = sorted((folder / "packages").glob("*.deb"))
    others = [path.name for path in packages if hashlib.sha256(path.read_bytes()).hexdigest() not in digests]
    if others or len(packages) != len(digests):
        raise _moved(f"other contents than pinned: {', '.join(others) or 'too few packages'}")
    return packages


def _moved(reason: str) -> NeedsOperator:
    return NeedsOperator(
        f"the pinned packages of MySQL 9.7 cannot be fetched from Debian's suite unstable: {reason}",
        hint=f"Where versions are not found, Debian has newer ones: pin those in {Path(__file__).name}, and run the tests.",
    )


if __name__ == "__main__":
    try:
        unpack()
    except ReplicationError as error:
        sys.exit(f"headrace: {error.message}\nWhat to do: {error.hint}")
