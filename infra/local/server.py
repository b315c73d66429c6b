"""What every server of infra/local is: a process in a folder, on a port that it keeps, that starts, answers, stops and crashes.

Guarantees that `start` returns when the server answers on a port of its own and raises otherwise, with the server's last lines;
that the port stays the same; and that the server ends with its owner unless it is detached (infra/local/process.py). A kind of
server defines how it is made, launched and queried. infra/local/stack.py knows servers by nothing else.

Ports are free TCP ports on 127.0.0.1. They lie below the range from which the kernel takes the local end of outgoing connections.
Otherwise, while a server is down, some client's connection (even one to that very server, which then talks to itself) can take
its port. A free port may be taken before the server binds it: the server's start then fails and is tried with another.

PostgreSQL refuses to run as root, so root runs it as an ordinary account that exists: `postgres`, else `nobody`. A server's home
is `<folder>/home`. Where that account cannot reach it (a folder under /root, say), or where its name is too long for a Unix
socket in it, `<folder>/home` is a link to a folder `/var/tmp/headrace-HASH`, which remembers the folder it belongs to and is
removed with it, or swept once that is gone.
"""

import contextlib
import fcntl
import hashlib
import logging
import os
import pwd
import random
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

from headrace.errors import NeedsOperator
from infra.local.process import Process, read_since, size

#: A Unix socket's path has at most 107 bytes; PostgreSQL adds `/.s.PGSQL.65535.lock`.
_LONGEST = 107 - 20
_ELSEWHERE = Path("/var/tmp")  # noqa: S108 - folders in it are made for one owner and checked.
_BELONGS_TO = "belongs-to"
_LOWEST = 10240
_KEPT = "port"
_OUTGOING = Path("/proc/sys/net/ipv4/ip_local_port_range")


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


class PortTaken(Exception):  # noqa: N818 - a state, caught by whoever picked the port.
    """The server could not bind its port: another process has it."""


def start_on_port(start: Callable[[int], None], *, kept: int, what: str) -> None:
    """Start a server on the port that it has kept, or on a free one if it has none (0).

    `start` raises PortTaken if it cannot have the port. Raises NeedsOperator if another process has the kept one.
    """
    for _ in range(10):
        try:
            start(kept or free_port())
        except PortTaken:
            if kept and not is_free(kept):
                raise NeedsOperator(
                    f"{what} cannot listen on its port {kept}: another process has it.",
                    hint="Stop what listens there, or delete the server's folder to start again.",
                ) from None
        else:
            return
    raise NeedsOperator(f"{what} found no free port on 127.0.0.1.", hint="See what takes them: ss -ltnp")


def keep_port(folder: Path, port: int) -> None:
    """Note the port of a server that has no other place for it, in its folder."""
    (folder / _KEPT).write_text(str(port))


def kept_port(folder: Path) -> int:
    """Return the port that was noted last; 0 if none was."""
    with suppress(OSError, ValueError):
        return int((folder / _KEPT).read_text())
    return 0


def free_port() -> int:
    """Return a port that could be bound a moment ago; raise OSError if there is none."""
    try:
        highest = int(_OUTGOING.read_text().split()[0]) - 1
    except (OSError, ValueError, IndexError):
        highest = 32767
    for _ in range(200 if highest > _LOWEST + 1000 else 0):
        port = random.randint(_LOWEST, highest)  # noqa: S311 - nothing secret.
        if is_free(port):
            return port
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def is_free(port: int) -> bool:
    """Return whether the port can be bound now, by a server that may reuse the addresses of closed connections."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


_log = logging.getLogger(__name__)


class Server(ABC):
    """One server in a folder. Without `port` it picks a free one at its first start and keeps it."""

    #: What it is, in one word, and what messages call it.
    kind: ClassVar[str]
    #: Who may do everything there, without a password; empty where there are no users.
    user: ClassVar[str] = ""
    name: ClassVar[str]
    #: How long it may take to answer and to end, in seconds.
    start_seconds: ClassVar[float] = 90.0
    stop_seconds: ClassVar[float] = 60.0
    #: What it prints when another process has its port.
    port_taken: ClassVar[tuple[str, ...]] = ("Address already in use",)
    #: What ends it when its owner is gone.
    end_signal: ClassVar[signal.Signals] = signal.SIGKILL

    def __init__(self, folder: Path, *, port: int | None, log: Path | None, detached: bool) -> None:
        self.folder = folder.absolute()
        #: The file that it logs to.
        self.log = log or self.folder / f"{self.kind}.log"
        self._wanted_port = port
        self._process = Process(
            self.folder / "process.json", self._output, end_signal=self.end_signal, detached=detached
        )

    @property
    def port(self) -> int:
        """The TCP port for clients on 127.0.0.1; 0 before the first start, unless one was given."""
        return self._wanted_port or self._kept_port()

    @property
    def address(self) -> str:
        """Host and port."""
        return f"127.0.0.1:{self.port}"

    @property
    @abstractmethod
    def version(self) -> str:
        """The server's version."""

    @property
    def pid(self) -> int | None:
        """The server's process id; None when it does not run."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the server runs."""
        return self.pid is not None

    def start(self) -> None:
        """Start the server, made if need be, and wait until it answers; do nothing if it runs.

        Raises NeedsOperator if it cannot start; the message ends with what the server printed.
        """
        if self.running:
            return
        self._make()
        start_on_port(self._start_on, kept=self.port, what=f"{self.name} in {self.folder}")
        _log.debug("%s: %s listens on %s", self.kind, self.folder.name, self.address)

    def stop(self) -> None:
        """Stop the server and wait until it is gone; do nothing if it does not run."""
        self._process.end(signal.SIGTERM, self.stop_seconds)

    def kill(self) -> None:
        """Kill every process of the server at once, as a crash of the machine would."""
        self._process.kill()

    def restart(self) -> None:
        """Stop the server if it runs, and start it."""
        self.stop()
        self.start()

    def delete(self) -> None:
        """Kill the server if it runs, and remove all that it holds."""
        self.kill()
        remove_home(self.folder)
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def _output(self) -> Path:
        """Where what it prints goes."""
        return self.log

    @abstractmethod
    def _make(self) -> None:
        """Make what the server needs to start, where it is not there yet."""

    @abstractmethod
    def _kept_port(self) -> int:
        """Return the port that it was launched on last; 0 if it never was."""

    @abstractmethod
    def _launch(self, port: int) -> None:
        """Launch the server's process, which is to listen on the port, and keep the port."""

    @abstractmethod
    def _is_ready(self, port: int) -> bool:
        """Return whether it is this server that answers."""

    def _start_on(self, port: int) -> None:
        before = size(self.log)
        self._launch(port)
        if self._process.wait_until(lambda: self._is_ready(port), self.start_seconds):
            return
        output = read_since(self.log, before)
        if self._output != self.log:
            output = f"{output}\n{read_since(self._output, 0)}".strip()
        if any(words in output for words in self.port_taken):
            raise PortTaken
        raise NeedsOperator(
            f"{self.name} in {self.folder} ended while it started. Its last words:\n{output[-1500:]}",
            hint=f"Read the end of {self.log}.",
        )
