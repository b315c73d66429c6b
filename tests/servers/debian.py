"""Servers from Debian's packages: MySQL 9.7 (LTS) and MariaDB 11.8 (LTS), fetched, unpacked, made, started, stopped and crashed.

`python -m tests.servers.debian`, which `make test-servers` runs, fetches the packages by apt-get from Debian's suite `unstable`
into .setup/debian. It installs nothing and needs no root. The packages are pinned by SHA-256: where Debian has newer ones, it
names those that are gone. A server starts by the loader and the libraries of its folder, so it does not depend on the machine's
own. MySQL comes without a client.
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
from infra.local.mariadb import BinlogServer, Mariadb
from infra.local.server import readable_copy

FOLDER = Path(__file__).parents[2] / ".setup" / "debian"
_SOURCE = "deb http://deb.debian.org/debian unstable main\n"
#: The libraries that both servers load, as packages: version and SHA-256.
_OF_BOTH = {
    "libaio1t64": ("0.3.113-10", "90612397d7817113c28c56a42e67116bbfb4f3f857ee1520e0509ac9d8616a72"),
    "libc6": ("2.43-7", "5c71715c51103beb4fbba9fe9f8dff604af6610dfa71c70bff342f54a7860803"),
    "libgcc-s1": ("16.2.0-4", "d251ea642c3795e8723ac2b9eeebe511467ca04590ba70f3d555a7616787d7e3"),
    "libnuma1": ("2.0.19-1+b2", "c4175eb2a991806b5f683f7b2a6a9e444f310058763070b30417e1f1021cf04c"),
    "libssl3t64": ("3.6.5-1", "0a0ec84fe860c5c93c74d53cbb071aea0793327a3761b483080e9d7b73c21b37"),
    "libstdc++6": ("16.2.0-4", "cef6654bba1daece0bc0dbe0e3f69fa5a26eb6ba139f3536e6f4806bd787f3e7"),
    "libzstd1": ("1.5.7+dfsg-4", "93e7930e4c25b918f1dd980cc1c6d4487654a248f5fa71eacb976ed7bbe954bd"),
    "zlib1g": ("1:1.3.dfsg+really1.3.2-4", "8506ce550a81ac14b047608e0df121037d9cbb10c3cc28446f68cf8c1d9d31ce"),
}
#: Each server, by the name of its folder, with its other packages.
_PACKAGES = {
    "mysql-9.7.4": {
        "mysql-server-core": ("9.7.4-2", "628d2d7d2dc827507bcae80677a9950766b002bec2c658cb96343d9f324f8660"),
        "libgoogle-perftools4t64": ("2.18.1-2", "dd0b14852c08c483e9ce150b1f42068740483b75ce6b73618667a418654b04f5"),
        "libicu78": ("78.3-2", "dc918ea6cbe7bb6feea43aac3920a86a29dcc5faf4c56d8f0948408f9076d866"),
        "liblz4-1": ("1.10.0-10", "069d0349906af0335de6cb6a4132f0ac45c1e1db0dffffdcb5b1d291f8f6a66f"),
        "liblzma5": ("5.8.4-1", "2dd166f61cb2a32c50f1a4dd3cd34f5f18a4ff97a6ff23665b9a57537fd60625"),
        "libprotobuf-lite32t64": ("3.21.12-17", "8ed87b981d1281b38c4e5dc17feedb6866acf996789b51833529dc22d3a4c3b8"),
        "libunwind8": ("1.8.1-0.4", "aee9cb6fd8e298d52c398eabea640e0a49b198d77c0e6df34e69ed97e255b9b3"),
        "libxxhash0": ("0.8.3-2+b2", "3dc2a55daf655f3c07df99b2be4cb7eea6b79089e66407f6739fe40c267907c4"),
        **_OF_BOTH,
    },
    "mariadb-11.8.9": {
        "mariadb-client-core": ("1:11.8.9+ds-4", "480ce0bf6c4bb7f6adb53be71a6228bdc98137d7fffbf24e5051b4cd89d9c2db"),
        "mariadb-server-core": ("1:11.8.9+ds-4", "849c5ce5b5293a67647b83dab24b6021d178396f4990ca161b48ccdc2554d6e9"),
        "libbsd0": ("0.12.2-3", "0383e47d704a5e58080606cbcafd2f2aa725702767ccf8b877fb224d04ff38c5"),
        "libcrypt1": ("1:4.5.2+20251210-1", "3ed2cd1666bb12315542f03c892e98d83efb382b7de1747d60d9960899857ed5"),
        "libedit2": ("3.1-20260512-1", "85133718b6f81f44c88c4d95162e4e39af1521fbbd97d108d36294a37076a4cd"),
        "libmd0": ("1.3.0-1", "b93615e08319799bedd98a68643d607b06a7713365f829fb3cae131f8a3b81b1"),
        "libncurses6": ("6.6+20260608-2", "3ee979715749050d4b1fe3bd2bb54a0587d898ee6af54e23af4efb1c3b79de5d"),
        "libpcre2-8-0": ("10.49-1", "854da48a72f55b3f6f20389b58a3e94bddd06dc02b2a9fadd006ccd0048d14ab"),
        "libsystemd0": ("262.1-1", "7fc74653ff64a71e97e0d6d7c0cbb195a62ec0d3a13a7263dd37369494dfcc42"),
        "libtinfo6": ("6.6+20260608-2", "14682d1f6e35df22df0fe1eb2c09418aff0e29e2ea5a7bc0aa1bcd37192ba5a7"),
        "liburing2": ("2.15-1", "e1034703cc586b452f4e7ed39fdeba826e338d7796b45dde3965ab47fa76cb1e"),
        **_OF_BOTH,
    },
}
#: Names are not resolved, so 127.0.0.1 is not `localhost`.
_ACCOUNTS = """\
create user root@'127.0.0.1';
grant all on *.* to root@'127.0.0.1' with grant option;
"""
#: Ahead of the server's own scripts: an account `root` without a password, and none by the machine's accounts.
_BEGINNING = "create database mysql;\nuse mysql;\nset @auth_root_socket = null;"
_SCRIPTS = ("mariadb_system_tables", "mariadb_system_tables_data", "maria_add_gis_sp_bootstrap")


class DebianServer(BinlogServer):
    """One server in a folder, by Debian's packages."""

    #: The folder of its programs: its name and version.
    unpacked: ClassVar[str]

    @property
    def version(self) -> str:
        """The server's version."""
        return self.unpacked.partition("-")[2]

    def _unpacked(self, account: pwd.struct_passwd | None) -> Path:
        if not (FOLDER / self.unpacked).exists():
            raise NeedsOperator(f"{self.unpacked} is not unpacked in {FOLDER}.", hint="make test-servers does it once.")
        return readable_copy(FOLDER, [self.unpacked], self.unpacked, account) / self.unpacked / "usr"

    def _words(self, program: str) -> list[str | Path]:
        libraries = self._programs / "lib/x86_64-linux-gnu"
        return [libraries / "ld-linux-x86-64.so.2", "--library-path", str(libraries), *super()._words(program)]

    def _places(self) -> list[str]:
        return [*super()._places(), f"--lc-messages-dir={self._programs / 'share' / self.kind}"]


class Mysql97(DebianServer):
    """One server in a folder; `settings` go to its command line, over ours."""

    kind, name = "mysql", "MySQL"
    program, unpacked = "sbin/mysqld", "mysql-9.7.4"
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

    def _making(self, data: Path) -> list[str | Path]:
        accounts = data.with_name("accounts.sql")
        accounts.write_text(_ACCOUNTS)
        return [
            *self._words(self.program),
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


class Mariadb118(DebianServer, Mariadb):
    """One server in a folder; `settings` go to its command line, over ours."""

    program, unpacked = "sbin/mariadbd", "mariadb-11.8.9"

    def _making(self, data: Path) -> list[str | Path]:
        # As mariadb-install-db does it, which would start the server by the machine's own libraries.
        data.mkdir()
        if self._account:
            os.chown(data, self._account.pw_uid, self._account.pw_gid)
        tables = data.with_name("tables.sql")
        scripts = [(self._programs / "share/mariadb" / f"{name}.sql").read_text() for name in _SCRIPTS]
        tables.write_text("\n".join([_BEGINNING, *scripts]))
        return [
            "/bin/sh", "-c", 'tables="$1"; shift; exec "$@" < "$tables"', "sh", tables,
            *self._words(self.program),
            "--no-defaults",
            "--bootstrap",
            *self._places(),
            f"--datadir={data}",
            f"--innodb-log-file-size={self.settings['innodb-log-file-size']}",
        ]  # fmt: skip


def unpack() -> None:
    """Fetch and unpack the servers; do nothing if they are there.

    Raises NeedsOperator if there is no apt-get, or Debian does not have the pinned packages any more.
    """
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        missing = [name for name in _PACKAGES if not (FOLDER / name).exists()]
        if not missing:
            return
        with tempfile.TemporaryDirectory(prefix=".unpacking-", dir=FOLDER) as folder:
            wanted = {package: pin for name in missing for package, pin in _PACKAGES[name].items()}
            packages = _fetched(Path(folder), wanted)
            for name in missing:
                root = Path(folder) / name
                for package in _PACKAGES[name]:
                    subprocess.run(["dpkg", "-x", packages[package], root], check=True)
                root.chmod(0o755)
                root.rename(FOLDER / name)


def _fetched(folder: Path, wanted: dict[str, tuple[str, str]]) -> dict[str, Path]:
    """Return the packages by their names, downloaded into a folder and compared with their digests."""
    if not shutil.which("apt-get") or not shutil.which("dpkg"):
        raise NeedsOperator("the servers are fetched by apt-get, which this machine does not have.", hint="Use Debian.")
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
    versions = [f"{name}={version}" for name, (version, _) in wanted.items()]
    for words in (["update"], ["download", *versions]):
        done = subprocess.run([*apt, *words], cwd=folder / "packages", capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise _moved(" ".join(done.stderr.split())[-1500:])
    packages = {path.name.partition("_")[0]: path for path in (folder / "packages").glob("*.deb")}
    for name, (_, digest) in wanted.items():
        if name not in packages or hashlib.sha256(packages[name].read_bytes()).hexdigest() != digest:
            raise _moved(f"{name} has other contents than pinned")
    return packages


def _moved(reason: str) -> NeedsOperator:
    return NeedsOperator(
        f"the pinned packages cannot be fetched from Debian's suite unstable: {reason}",
        hint=f"Where versions are not found, Debian has newer ones: pin those in {Path(__file__).name}, and run the tests.",
    )


if __name__ == "__main__":
    try:
        unpack()
    except ReplicationError as error:
        sys.exit(f"headrace: {error.message}\nWhat to do: {error.hint}")
