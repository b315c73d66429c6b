"""The data directory of a PostgreSQL cluster: made, configured, and its lock file read.

Guarantees that a data directory is complete or absent, and that a lock file which a crash left behind neither stops the
next start nor lets two servers have one directory. Lines of the lock file (postmaster.pid) as PostgreSQL writes it:
process id, data directory, start time, port, socket directory, listen address, shared memory key and id, state. Used by
infra/local/postgres.py.
"""

import ctypes
import os
import pwd
import re
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import psutil

from headrace.errors import NeedsOperator
from infra.local.home import run_as

_SETTINGS = "headrace.conf"
_IPC_RMID = 0
#: The first release with locales of its own.
_BUILTIN_LOCALES = 17


def make(data: Path, initdb: Path, account: pwd.struct_passwd | None, release: int) -> None:
    """Make the directory: UTF-8, superuser `postgres`, clients on this machine trusted; raise NeedsOperator if it fails."""
    partial = data.with_name("data.partial")
    shutil.rmtree(partial, ignore_errors=True)
    options = ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync", "--no-instructions", "--locale=C"]
    if release >= _BUILTIN_LOCALES:
        # Built into PostgreSQL: the same on every machine.
        options += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
    done = run_as(
        account,
        [initdb, *options, "-D", partial],
        folder=partial.parent,
        environment=environment(),
    )
    if done.returncode != 0:
        said = " ".join(done.stderr.split())
        raise NeedsOperator(f"initdb failed in {partial}: {said}", hint="Check disk space and permissions.")
    with (partial / "postgresql.conf").open("a") as file:
        file.write(f"\ninclude = '{_SETTINGS}'\n")
    partial.rename(data)


def copy(data: Path, basebackup: Path, dsn: str, account: pwd.struct_passwd | None) -> None:
    """Make the directory a copy of a running server's, for a standby of it; raise NeedsOperator if it fails."""
    partial = data.with_name("data.partial")
    shutil.rmtree(partial, ignore_errors=True)
    done = run_as(
        account,
        [basebackup, "-D", partial, "-d", dsn, "--checkpoint=fast", "--wal-method=stream", "--no-sync"],
        folder=partial.parent,
        environment=environment(),
    )
    if done.returncode != 0:
        raise NeedsOperator(
            f"pg_basebackup failed in {partial}: {' '.join(done.stderr.split())}", hint="Is the primary up?"
        )
    # The primary's port is not ours.
    (partial / _SETTINGS).unlink()
    (partial / "standby.signal").touch()
    if account:
        os.chown(partial / "standby.signal", account.pw_uid, account.pw_gid)
    partial.rename(data)


def configure(data: Path, settings: Mapping[str, str]) -> None:
    """Write the settings that the next start uses; ALTER SYSTEM still goes over them."""
    lines = [f"{name} = '{value.replace(chr(39), chr(39) * 2)}'\n" for name, value in sorted(settings.items())]
    (data / _SETTINGS).write_text("".join(lines))


def port(data: Path) -> int:
    """Return the port that was configured last; 0 if none was."""
    with suppress(OSError):
        if found := re.search(r"^port = '(\d+)'$", (data / _SETTINGS).read_text(), re.MULTILINE):
            return int(found[1])
    return 0


def is_ready(data: Path, pid: int | None) -> bool:
    """Say whether the server with this process id accepts connections, as pg_ctl finds out."""
    # After a crash the file may still be the last server's, which was ready once.
    return _lock_line(data, 0) == str(pid) and _lock_line(data, 7) == "ready"


def check_lock_file(data: Path) -> None:
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


def remove_shared_memory(data: Path) -> None:
    """Remove the System V segment of a killed server, which the kernel would keep until it restarts."""
    with suppress(IndexError, ValueError):
        segment = int(_lock_line(data, 6).split()[1])
        ctypes.CDLL(None).shmctl(segment, _IPC_RMID, None)


def environment() -> dict[str, str]:
    """Return our environment without libpq's variables, which mean other servers."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PG")}


def _lock(data: Path) -> Path:
    return data / "postmaster.pid"


def _lock_line(data: Path, index: int) -> str:
    with suppress(OSError, IndexError):
        return _lock(data).read_text().splitlines()[index].strip()
    return ""
