"""Where a server's files live so that the account which runs it can reach them.

PostgreSQL refuses to run as root, so root runs it as an ordinary account that exists: `postgres`, else `nobody`. A
server's home is `<folder>/home`. Where that account cannot reach it (a folder under /root, say), or where its name is too
long for a Unix socket in it, `<folder>/home` is a link to a folder `/var/tmp/headrace-HASH`, which remembers the
folder it belongs to and is removed with it, or swept once that is gone. Used by infra/local/{server,postgres,mariadb}.py.
"""

import contextlib
import fcntl
import hashlib
import os
import pwd
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from headrace.errors import NeedsOperator

#: A Unix socket's path has at most 107 bytes; PostgreSQL adds `/.s.PGSQL.65535.lock`.
_LONGEST = 107 - 20
_ELSEWHERE = Path("/var/tmp")  # noqa: S108 - folders in it are made for one owner and checked.
_BELONGS_TO = "belongs-to"


def ordinary_account() -> pwd.struct_passwd | None:
    """Return the account that root runs servers as; None when we are not root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise NeedsOperator(
        "PostgreSQL refuses to run as root, and there is no account 'postgres' or 'nobody' to run it as.",
        hint="Run as an ordinary user, or add one: useradd --system postgres.",
    )


def make_home(folder: Path, account: pwd.struct_passwd | None) -> Path:
    """Return the home in the folder, made if need be and owned by the account."""
    folder.mkdir(parents=True, exist_ok=True)
    home = folder / "home"
    if home.is_symlink() or not home.exists():
        home.unlink(missing_ok=True)
        if len(bytes(home.absolute())) <= _LONGEST and can_reach(folder, account):
            home.mkdir()
        else:
            home.symlink_to(_make_elsewhere(folder, account))
    home = home.resolve()
    home.chmod(0o755)
    if account:
        os.chown(home, account.pw_uid, account.pw_gid)
    return home


def remove_home(folder: Path) -> None:
    """Remove the home and what is in it, wherever it is."""
    home = folder / "home"
    target = home.resolve()
    shutil.rmtree(target, ignore_errors=True)
    if home.is_symlink():
        home.unlink()


def readable_copy(root: Path, parts: Sequence[str], name: str, account: pwd.struct_passwd | None) -> Path:
    """Return the root, or where the account cannot reach the parts in it a copy of them, made once per machine.

    The parts keep their places relative to each other, since programs find their libraries so. Raises NeedsOperator if
    the copy is somebody else's.
    """
    if all(can_reach(root / part, account) for part in parts):
        return root
    copy = _ELSEWHERE / f"headrace-{name}"
    lock = os.open(_ELSEWHERE / f".headrace-{os.geteuid()}.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    with os.fdopen(lock) as lock_file:
        fcntl.flock(lock_file, fcntl.LOCK_EX)
        if not copy.exists():
            partial = Path(tempfile.mkdtemp(prefix=".headrace-", dir=_ELSEWHERE))
            for part in parts:
                shutil.copytree(root / part, partial / part, symlinks=True)
            partial.chmod(0o755)
            partial.rename(copy)
    return _check_owner(copy, {os.geteuid()})


def run_as(
    account: pwd.struct_passwd | None,
    command: Sequence[str | Path],
    *,
    folder: Path,
    environment: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder to its end, as the account if one is given, and return what it printed."""
    return subprocess.run(
        command,
        cwd=folder,
        env=environment,
        user=account.pw_uid if account else None,
        group=account.pw_gid if account else None,
        extra_groups=[] if account else None,
        check=False,
        capture_output=True,
        text=True,
    )


def can_reach(folder: Path, account: pwd.struct_passwd | None) -> bool:
    """Return whether the account may enter the folder and read it."""
    if account is None:
        return os.access(folder, os.R_OK | os.X_OK)
    # Asked of the kernel, which knows about access lists too.
    test = ["/bin/sh", "-c", 'test -x "$1" && test -r "$1"', "sh", str(folder.absolute())]
    return run_as(account, test, folder=Path("/")).returncode == 0


def _make_elsewhere(folder: Path, account: pwd.struct_passwd | None) -> Path:
    _sweep()
    digest = hashlib.sha256(bytes(folder.absolute())).hexdigest()[:12]
    home = _ELSEWHERE / f"headrace-{digest}"
    try:
        home.mkdir()
        (home / _BELONGS_TO).write_text(str(folder.absolute()))
    except FileExistsError:
        # Everybody may make folders there: one that is not ours is never taken for a home.
        _check_owner(home, {os.geteuid(), account.pw_uid if account else os.geteuid()})
    return home


def _sweep() -> None:
    for home in _ELSEWHERE.glob("headrace-*"):
        note = home / _BELONGS_TO
        with contextlib.suppress(OSError):
            if not home.is_symlink() and note.stat().st_uid == os.geteuid() and not Path(note.read_text()).exists():
                shutil.rmtree(home, ignore_errors=True)


def _check_owner(folder: Path, owners: set[int]) -> Path:
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid not in owners or status.st_mode & 0o022:
        raise NeedsOperator(
            f"{folder} is not ours, or others may write to it, so it is not used.",
            hint="Find out who made it and remove it.",
        )
    return folder
