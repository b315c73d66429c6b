"""Secrets by reference: `env:NAME`, `file:PATH` or `command:PROGRAM …`, followed when they are needed and never printed.

A command runs without a shell, with a time limit, and its output is kept for a while; a token for OAUTHBEARER is one of those.
"""

import base64
import binascii
import contextlib
import json
import logging
import os
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

from headrace.errors import ConfigurationError, NotConnected, ReplicationError


class Secret:
    """A reference to a secret. Its text forms show the reference, never the secret; of a command only the program."""

    def __init__(self, reference: str, folder: Path | None = None) -> None:
        """Take a reference; a relative file is looked for in the folder, or where the process runs when there is none."""
        kind, _, name = reference.partition(":")
        if kind not in {"env", "file", "command"} or not name:
            raise ValueError(
                "a secret is given as 'env:NAME', 'file:PATH' or 'command:PROGRAM ARGUMENTS', never in the file itself"
            )
        self._kind = kind
        self._name = name
        self._folder = folder or Path()
        #: What prints it; None for one that is read.
        self.command = SecretCommand(name, self._folder) if kind == "command" else None

    def __repr__(self) -> str:
        """Show the reference."""
        return f"Secret({self.reference})"

    def __eq__(self, other: object) -> bool:
        """Whether both are the same reference."""
        return isinstance(other, Secret) and (self._kind, self._name) == (other._kind, other._name)

    def __hash__(self) -> int:
        """Hash the reference."""
        return hash((self._kind, self._name))

    @property
    def reference(self) -> str:
        """The reference, as the file has it; a command without its arguments."""
        return f"command:{self.command.name}" if self.command is not None else f"{self._kind}:{self._name}"

    @property
    def stamp(self) -> tuple[int, int, int] | None:
        """What changes whenever the file does; None for what is in none, or is not there."""
        try:
            status = (self._folder / self._name).stat() if self._kind == "file" else None
        except OSError:
            return None
        return None if status is None else (status.st_ino, status.st_mtime_ns, status.st_size)

    def reveal(self) -> str:
        """Return the secret as it is now.

        Raises ConfigurationError when the reference leads nowhere, and NotConnected when a command fails or takes too long.
        """
        if self.command is not None:
            return self.command.value()
        if self._kind == "env":
            if self._name not in os.environ:
                raise ConfigurationError(
                    f"environment variable {self._name} is not set",
                    hint=f"Set {self._name}, or name another reference.",
                )
            return os.environ[self._name]
        try:
            return (self._folder / self._name).read_text(encoding="utf-8").rstrip("\r\n")
        except OSError as error:
            raise ConfigurationError(
                f"secret file {self._folder / self._name} cannot be read: {error.strerror}"
            ) from error

    def expire(self) -> None:
        """Have a command run again the next time."""
        if self.command is not None:
            self.command.expire()


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
        """The program's name, without its arguments, which may reveal too much."""
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


_log = logging.getLogger(__name__)

#: A token whose end is not known is fetched again after so long, in seconds.
_UNKNOWN_SECONDS = 300.0
_PARTS = 3


def expires_at(token: str) -> float | None:
    """Return when a JWT ends, in seconds since 1970; None when it has no such time."""
    parts = token.split(".")
    if len(parts) != _PARTS:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        return float(claims["exp"])
    except (binascii.Error, ValueError, KeyError, TypeError):
        return None


def callback(token: Secret) -> Callable[[str], tuple[str, float]]:
    """Return what librdkafka calls, in a thread of its own, when it needs a token: with the token and its end."""

    def fetch(_settings: str) -> tuple[str, float]:
        try:
            text = token.reveal()
            ends = expires_at(text)
            if ends is not None and ends <= time.time():
                # One that was kept too long: the command, or whoever writes the file, has a newer one.
                token.expire()
                text = token.reveal()
                ends = expires_at(text)
        except ReplicationError as error:
            # The client asks again after ten seconds, and its connections stay meanwhile.
            _log.warning("the token for Kafka could not be obtained: %s. %s", error.message, error.hint)
            raise
        return text, time.time() + _UNKNOWN_SECONDS if ends is None else ends

    return fetch
