"""Loads in a warm process: how a load is requested from a running `headrace lake serve`, which has a JVM, and what it answers.

Over a socket of this machine, in a folder of the server's user alone. A request is a line of JSON; the answer is lines of
progress, empty ones while there is none, and a last one with the report; a load that goes on has a line for each report. Whoever
closes the connection cancels the load, and the server closes it once that has ended. Used by the server, the command and
Airflow's tasks, which import neither Spark nor the lake's file for it.
"""

import logging
import os
import socket
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import Any, Literal

import msgspec

from headrace.errors import NeedsOperator, ReplicationError

_log = logging.getLogger(__name__)

#: The socket's name in its folder.
_SOCKET = "socket"
#: Seconds for which a server may let a client wait to be connected.
_CONNECT_SECONDS = 5.0
#: Seconds after which a server sends an empty line, and after which one that sent nothing is taken for dead. The end of a load
#: that was broken off is waited for as long.
HEARTBEAT_SECONDS = 5.0
_SILENT_SECONDS = 30.0
#: Where Linux has the folders that a process holds: such a path is short, as that of a socket must be, and is that very folder.
_HELD = Path("/proc/self/fd")


class Request(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A load of a stream, as `headrace lake load` and its Airflow tasks have it."""

    #: Path of the lake's file; a server has one.
    config: str
    stream: str
    only: Literal["bronze", "silver"] | None = None
    #: Of silver the tables of one group, `2/4`.
    group: str | None = None
    accept_gap: bool = False
    #: Whether tables that stopped are an error.
    check: bool = True
    #: Whether the report is for a terminal.
    styled: bool = False
    #: Of a load that goes on until its sender goes: seconds from one load of silver to the next.
    every: int | None = None


def request_of(arguments: Sequence[str]) -> Request:
    """Return the request for what these arguments of submit.py say."""
    stopped = "--report-stopped"
    words = [word for word in arguments[1:] if word != stopped]
    given = dict(zip(words[::2], words[1::2], strict=True))
    return msgspec.convert(
        {
            "stream": arguments[0],
            "config": given["--config"],
            "only": given.get("--step"),
            "group": given.get("--group"),
            "check": stopped not in arguments,
        },
        Request,
    )


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """What a load ended with."""

    message: str
    hint: str = ""
    exit_code: int


class Progress(msgspec.Struct, frozen=True, kw_only=True, tag="progress"):
    """How far a step is."""

    step: str
    done: int
    todo: int


class Answer(msgspec.Struct, frozen=True, kw_only=True, tag="answer"):
    """The end of a load, or of one that goes on what it did last."""

    goes_on: bool = False
    report: dict[str, Any] | None = None
    #: The report as the command prints it.
    text: str = ""
    failure: Failure | None = None
    #: Why the server does not load this; a process of its own may.
    refused: str = ""

    def check(self) -> None:
        """Raise the error with which the load ended, with its exit code."""
        if self.failure is not None:
            error = ReplicationError(self.failure.message, hint=self.failure.hint)
            error.exit_code = self.failure.exit_code
            raise error


OnProgress = Callable[[str, int, int], None]
OnReport = Callable[[Answer], None]


@contextmanager
def hold(folder: Path) -> Iterator[tuple[int, str]]:
    """Hold the folder open; give its descriptor and the path of the socket in it.

    Raises OSError when there is no such folder, and NeedsOperator when it is open to another user, who could answer.
    """
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        status = os.fstat(held)
        if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
            raise NeedsOperator(
                f"{folder} is not a folder of this user alone, so nothing is loaded by way of it",
                hint="[serve] loads names a folder that 'headrace lake serve' makes itself (rights 0700).",
            )
        yield held, str((_HELD / str(held) if _HELD.exists() else folder) / _SOCKET)
    finally:
        os.close(held)


def connect(folder: Path) -> socket.socket | None:
    """Return a connection to the server; None where nobody listens."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(_CONNECT_SECONDS)
        with hold(folder) as (_, path):
            connection.connect(path)
        connection.settimeout(_SILENT_SECONDS)
    except (OSError, NeedsOperator) as error:
        connection.close()
        if isinstance(error, NeedsOperator):
            _log.warning("%s", error.message)
        return None
    return connection


def load(
    connection: socket.socket, request: Request, on_progress: OnProgress, on_report: OnReport | None = None
) -> Answer | None:
    """Let the server load; None where it refuses, ends or is silent before it answers: then a process of its own can load.

    `on_report` receives what a load did that goes on. Raises what both raise. Assumes that the caller closes the connection,
    however this ends.
    """
    for answer in _answers(connection, request):
        if isinstance(answer, Progress):
            on_progress(answer.step, answer.done, answer.todo)
        elif answer.goes_on:
            assert on_report is not None, "only a request of one that goes on has such an answer"
            on_report(answer)
        elif answer.refused:
            _log.warning("the server does not load %s: %s", request.stream, answer.refused)
            return None
        else:
            return answer
    return None


def _answers(connection: socket.socket, request: Request) -> Iterator[Progress | Answer]:
    """Yield what the server answers, as long as it can be read."""
    try:
        # A server that refuses may have answered and gone before it has all of the request.
        with suppress(ConnectionError):
            connection.sendall(msgspec.json.encode(request) + b"\n")
        with connection.makefile("rb") as lines:
            for line in lines:
                if line != b"\n":
                    yield msgspec.json.decode(line, type=Progress | Answer)
        _log.warning("the server ended before the load of %s did", request.stream)
    except (OSError, msgspec.DecodeError) as error:
        _log.warning("the server broke off the load of %s (%s)", request.stream, type(error).__name__)
        _await_end(connection)


def _await_end(connection: socket.socket) -> None:
    """Cancel a load and wait a while for its end, so that the next one need not compete with it.

    A server that is frozen ends none. One that goes on behind another load adds nothing: Delta takes each of its commits only if
    it is the next one, so it ends with an error (tests/integration/lake/test_lake_writers.py).
    """
    until = monotonic() + _SILENT_SECONDS
    with suppress(OSError):
        connection.shutdown(socket.SHUT_WR)
        while (left := until - monotonic()) > 0:
            connection.settimeout(left)
            if not connection.recv(65_536):
                return
