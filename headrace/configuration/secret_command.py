"""Secrets that a command prints: `command:aws rds generate-db-auth-token …`. Run without a shell, with a time limit, and seldom.

Guarantees that what the command prints is in no message and no log, nor are its arguments; that threads which need the secret at
the same time run it once; that a command which hangs is killed with its children.
"""

import contextlib
import os
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

from headrace.errors import ConfigurationError, NotConnected

#: Seconds that a command may take, and for which what it printed is used again, unless the file has another number.
TIMEOUT_SECONDS, REFRESH_SECONDS = 10.0, 300.0
_LONGEST = 64 * 1024
_LONGEST_REASON = 200


class SecretCommand:
    """One command of a configuration file; for any thread."""

    def __init__(self, line: str, folder: Path, clock: Callable[[], float] = time.monotonic) -> None:
        """Take a command line, run in the folder of the file; raise ValueError when it is none."""
        try:
            self._words = shlex.split(line)
        except ValueError as error:
            raise ValueError(f"the command of a secret cannot be read: {error}") from error
        if not self._words:
            raise ValueError("'command:' needs a command that prints the secret")
        self._folder = folder
        self._clock = clock
        self._lock = threading.Lock()
        self._value = ""
        self._until = 0.0
        self.timeout_seconds = TIMEOUT_SECONDS
        self.refresh_seconds = REFRESH_SECONDS

    @property
    def name(self) -> str:
        """The program's name, without its arguments, which may say too much."""
        return Path(self._words[0]).name

    def value(self) -> str:
        """Return the secret, from the command or, for `refresh_seconds`, from the last time.

        Raises NotConnected when the command fails or takes too long, which may pass; ConfigurationError when it cannot be run.
        """
        with self._lock:
            if self._clock() >= self._until:
                self._value = self._run()
                self._until = self._clock() + self.refresh_seconds
            return self._value

    def expire(self) -> None:
        """Run the command again the next time."""
        with self._lock:
            self._until = 0.0

    def _run(self) -> str:
        try:
            process = subprocess.Popen(
                self._words,
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise ConfigurationError(
                f"the command {self.name!r} of a secret cannot be run: {error.strerror or error}",
                hint=f"Install {self.name}, or name it with its path. It is run without a shell, as this process's user.",
            ) from error
        try:
            out, err = process.communicate(timeout=self.timeout_seconds)
        except subprocess.TimeoutExpired as error:
            _kill(process)
            raise NotConnected(
                f"the command {self.name!r} of a secret did not end within {self.timeout_seconds:g} s and was killed",
                hint="Run it by hand as this process's user. If it needs longer, raise [commands] timeout_seconds.",
            ) from error
        return self._secret(process.returncode, out, err)

    def _secret(self, code: int, out: bytes, err: bytes) -> str:
        printed = out.decode(errors="replace").strip("\r\n")
        if code == 0 and printed and "\n" not in printed and len(out) <= _LONGEST:
            return printed
        if code:
            wrong = f"ended with exit code {code}{_reason(err, printed)}"
        elif not printed:
            wrong = f"printed nothing{_reason(err, printed)}"
        else:
            wrong = "printed more than one line" if "\n" in printed else "printed more than 64 KiB"
        raise NotConnected(
            f"the command {self.name!r} of a secret {wrong}",
            hint="Run it by hand as this process's user, in the folder of the file: it prints the secret alone, in one line.",
        )


def _reason(err: bytes, printed: str) -> str:
    """Return the last line that the command wrote to its standard error, without what it printed."""
    lines = [line.strip() for line in err.decode(errors="replace").splitlines() if line.strip()]
    if not lines:
        return ""
    last = "".join(each for each in lines[-1] if each.isprintable())
    for word in filter(None, printed.split()):
        last = last.replace(word, "***")
    return f": {last[:_LONGEST_REASON]}"


def _kill(process: "subprocess.Popen[bytes]") -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    try:
        # What it started in a session of its own may hold the pipes: they are not waited for.
        process.communicate(timeout=1.0)
    except subprocess.TimeoutExpired:
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
