"""A part as a subprocess, supervised as systemd would: started again when it ends unasked, given up when it asks for a person.

It guarantees that the process is gone after `stop` and when the test's own process ends, however it ends, and that what a part
said last is at hand when a test fails.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from infra.local import guardian

#: Exit codes with which a part asks for a person: starting it again could only hide that.
_FOR_A_PERSON = {2, 3, 4}
_PAUSE_SECONDS = 0.2


class Supervised:
    """One command that is kept running."""

    def __init__(
        self, name: str, command: Sequence[str], *, log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.log = log
        #: How often it was started again.
        self.restarts = 0
        #: The exit code with which it asked for a person.
        self.gave_up: int | None = None
        #: What is run at the next start; another release's command can take its place.
        self.program, *self._arguments = command
        self._environment = {**os.environ, **(environment or {})}
        self._stopping = threading.Event()
        #: The running process's id; 0 when there is none.
        self.pid = 0
        self._started = threading.Event()
        self._watcher: threading.Thread | None = None
        self._code = 0

    def start(self) -> None:
        """Start the process and keep it running."""
        self._stopping.clear()
        self._started.clear()
        self._watcher = threading.Thread(target=self._watch, daemon=True, name=f"supervise {self.name}")
        self._watcher.start()
        self._started.wait(60)

    def kill(self) -> None:
        """Kill the process with SIGKILL; it is started again as after any crash."""
        self._signal(signal.SIGKILL)

    def stop_at_once(self) -> None:
        """Kill the process with SIGKILL, and do not start it again."""
        self._stopping.set()
        self._signal(signal.SIGKILL)
        if self._watcher is not None:
            self._watcher.join(60)

    def stop(self, seconds: float = 90) -> int:
        """Ask the process to end, and return its exit code; it is not started again."""
        self._stopping.set()
        if self._watcher is None:
            return 0
        self._signal(signal.SIGTERM)
        self._watcher.join(seconds)
        if self._watcher.is_alive():
            self._signal(signal.SIGKILL)
            self._watcher.join(60)
            raise AssertionError(f"{self.name} did not end within {seconds} s of SIGTERM:\n{self.tail()}")
        return self._code

    def check(self) -> None:
        """Fail when the part asked for a person."""
        if self.gave_up is not None:
            raise AssertionError(f"{self.name} ended with exit code {self.gave_up}:\n{self.tail()}")

    def tail(self, lines: int = 30) -> str:
        """Return what the part said last."""
        if not self.log.exists():
            return ""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def _signal(self, number: signal.Signals) -> None:
        # 0 would be everybody in our own group.
        if pid := self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def _watch(self) -> None:
        owner = [str(it) for it in (os.getpid(), int(signal.SIGTERM), -1, -1, Path.cwd())]
        command = [sys.executable, "-I", "-S", guardian.__file__, *owner, self.program, *self._arguments]
        while True:
            with self.log.open("ab") as log:
                process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, env=self._environment
                )
            assert process.stdout is not None
            with process.stdout as answer:
                self.pid = int(answer.readline() or 0)
            self._started.set()
            if self._stopping.is_set():
                self._signal(signal.SIGTERM)
            self._code = process.wait()
            self.pid = 0
            if self._stopping.is_set():
                return
            if self._code in _FOR_A_PERSON:
                self.gave_up = self._code
                return
            self.restarts += 1
            self._stopping.wait(_PAUSE_SECONDS)
            if self._stopping.is_set():
                return
