"""One region of the demo: a database, the edge next to it, and what writes to it; and the processes of any part.

What differs between engines is in bank.py (PostgreSQL) and pay.py (MariaDB); the demo and its screen know regions by this alone.
"""

import json
import os
import signal
import subprocess
import sys
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar

from headrace.errors import NeedsOperator
from infra.local.process import Process, tail


class Region(ABC):
    """A source of the demo, named after its region."""

    #: The database, and the source's name after the region's.
    database: ClassVar[str]
    #: What writes, in a few words.
    workload: ClassVar[str]

    def __init__(self, name: str, folder: Path, *, detached: bool) -> None:
        self.name = name
        self.source = f"{name}/{self.database}"
        self.edge_file = folder / f"edge-{name}.toml"
        self.edge = Part(f"edge-{name}", ["edge", "run", "--config", str(self.edge_file)], folder, detached=detached)

    def prepare(self, scale: int) -> None:
        """Make the database and its tables, begin to capture, and only then make the rows: all of them are in the log."""
        self.make_tables()
        headrace("edge", "init", "--config", str(self.edge_file))
        self.edge.start()
        self.fill(scale)

    @abstractmethod
    def make_tables(self) -> None:
        """Make the database with empty tables."""

    @abstractmethod
    def fill(self, scale: int) -> None:
        """Make the rows that are there before anybody writes."""

    @abstractmethod
    def write(self, *, clients: int, seconds: int, rate: int) -> None:
        """Start transactions: so many clients, for so long, so many a second; returns at once."""

    @abstractmethod
    def transactions(self) -> tuple[int, float]:
        """Wait for the writers to end; return how many transactions they committed, and in how many seconds."""

    @abstractmethod
    def stop_writing(self) -> None:
        """End the writers, if they are at work."""

    @abstractmethod
    def log_position(self) -> str:
        """Return the end of the source's log, as its own tools write it."""

    @abstractmethod
    def confirmed(self) -> str:
        """Return the place before which all of the log is acknowledged."""

    @abstractmethod
    def has_confirmed(self, position: str) -> bool:
        """Return whether all of the log before a place is acknowledged."""


_STOP_SECONDS = 30.0


def headrace(*arguments: str, accept: tuple[int, ...] = (0,)) -> str:
    """Run a headrace command and return what it printed; raise NeedsOperator with its words when it fails."""
    process = subprocess.run(
        [*_command(), *arguments],
        check=False,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    if process.returncode not in accept:
        output = (process.stderr or process.stdout).strip()[-1500:]
        raise NeedsOperator(f"'headrace {' '.join(arguments)}' ended with {process.returncode}:\n{output}")
    return process.stdout


def headrace_json(*arguments: str, accept: tuple[int, ...] = (0,)) -> Any:
    """Run a headrace command with --json and return what it prints."""
    return json.loads(headrace(*arguments, "--json", accept=accept))


class Part:
    """An edge or a bridge that runs until it is stopped."""

    def __init__(self, name: str, arguments: list[str], folder: Path, *, detached: bool) -> None:
        self.name = name
        self.log = folder / "logs" / f"{name}.log"
        self._arguments = arguments
        self._folder = folder
        self._process = Process(folder / f"{name}.json", self.log, end_signal=signal.SIGTERM, detached=detached)

    def start(self) -> None:
        """Start the process."""
        environment = os.environ | {"HEADRACE_LOG_FORMAT": "text"}
        self._process.launch([*_command(), *self._arguments], folder=self._folder, environment=environment)

    def stop(self) -> None:
        """Ask the process to end, and wait until it is gone."""
        self._process.end(signal.SIGTERM, _STOP_SECONDS)

    def check(self) -> None:
        """Raise NeedsOperator, with what the process printed last, when it has ended."""
        if self._process.pid is None:
            raise NeedsOperator(f"{self.name} has ended:\n{tail(self.log)}", hint=f"Read {self.log}.")


def _command() -> list[str]:
    return [sys.executable, "-m", "headrace"]
