"""A part of Headrace as a process of its own, exactly as an operator starts it: `headrace edge run --config FILE`."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from headrace.errors import NeedsOperator
from infra.local.process import Process, tail

_PATIENCE = 30.0


def headrace(*arguments: str, accept: tuple[int, ...] = (0,)) -> str:
    """Run a headrace command and return what it printed; raise NeedsOperator with its words when it fails."""
    done = subprocess.run(
        [*_command(), *arguments],
        check=False,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    if done.returncode not in accept:
        said = (done.stderr or done.stdout).strip()[-1500:]
        raise NeedsOperator(f"'headrace {' '.join(arguments)}' ended with {done.returncode}:\n{said}")
    return done.stdout


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
        self._process.end(signal.SIGTERM, _PATIENCE)

    def check(self) -> None:
        """Raise NeedsOperator, with what the process printed last, when it has ended."""
        if self._process.pid is None:
            raise NeedsOperator(f"{self.name} has ended:\n{tail(self.log)}", hint=f"Read {self.log}.")


def _command() -> list[str]:
    return [sys.executable, "-m", "headrace"]
