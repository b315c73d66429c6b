"""What every server of infra/local is: a process in a folder, on a port that it keeps, that starts, answers, stops and crashes.

Guarantees that `start` returns when the server answers on a port of its own and raises otherwise, with the server's last lines;
that the port stays the same; and that the server ends with its owner unless it is detached (infra/local/process.py). A kind of
server defines how it is made, launched and queried. infra/local/stack.py knows servers by nothing else.

Ports are free TCP ports on 127.0.0.1. They lie below the range from which the kernel takes the local end of outgoing
connections. Otherwise, while a server is down, some client's connection (even one to that very server, which then talks to
itself) can take its port. A free port may be taken before the server binds it: the server's start then fails and is tried with
another.
"""

import logging
import random
import shutil
import signal
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

from headrace.errors import NeedsOperator
from infra.local.home import remove_home
from infra.local.process import Process, read_since, size

_LOWEST = 10240
_KEPT = "port"
_OUTGOING = Path("/proc/sys/net/ipv4/ip_local_port_range")


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
