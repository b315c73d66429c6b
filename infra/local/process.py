"""One server's operating-system process: launched, found again from its record, ended or killed.

Guarantees that a process id is never trusted without its start time, so that a recycled one is never signalled, and
that a server which is not detached ends with its owner (infra/local/guardian.py). Assumes Linux. Used by the
server modules of infra/local.
"""

import json
import os
import pwd
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from headrace.errors import NeedsOperator
from infra.local import guardian

_LOG_BYTES = 10_000_000


class Process:
    """The process of one server, known by a record on disk that any other process can read.

    `end_signal` is what ends it when its owner is gone.
    """

    def __init__(self, record: Path, log: Path, *, end_signal: signal.Signals, detached: bool) -> None:
        self.record = record
        self.log = log
        self.end_signal = end_signal
        self.detached = detached
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The id of the running process; None when it does not run."""
        process = self._find()
        return process.pid if process else None

    def launch(
        self,
        command: Sequence[str | Path],
        *,
        folder: Path,
        environment: Mapping[str, str],
        account: pwd.struct_passwd | None = None,
    ) -> None:
        """Start the command, as the account if one is given, its output appended to the log."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        if self.log.exists() and self.log.stat().st_size > _LOG_BYTES:
            self.log.replace(f"{self.log}.1")
        line = [str(part) for part in command]
        with self.log.open("ab") as output:
            if self.detached:
                self._child = subprocess.Popen(
                    line,
                    cwd=folder,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                    user=account.pw_uid if account else None,
                    group=account.pw_gid if account else None,
                    extra_groups=[] if account else None,
                )
                pid = self._child.pid
            else:
                ids = (account.pw_uid, account.pw_gid) if account else (-1, -1)
                arguments = [str(it) for it in (os.getpid(), int(self.end_signal), *ids, folder)]
                self._child = subprocess.Popen(
                    [sys.executable, "-I", "-S", guardian.__file__, *arguments, *line],
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=output,
                    start_new_session=True,
                )
                assert self._child.stdout is not None
                with self._child.stdout as answer:
                    pid = int(answer.readline() or 0)
        if not pid:
            raise NeedsOperator(f"{line[0]} cannot be started.", hint=f"Read the end of {self.log}.")
        self._remember(pid)

    def wait_until(self, ready: Callable[[], bool], seconds: float) -> bool:
        """Wait until the server is ready; return False if it ended instead, raise NeedsOperator when time is up."""
        deadline = time.monotonic() + seconds
        while not ready():
            if self._find() is None:
                return False
            if time.monotonic() > deadline:
                self.kill()
                raise NeedsOperator(
                    f"A server did not answer within {seconds:.0f} seconds of its start.",
                    hint=f"Read the end of {self.log}.",
                )
            time.sleep(0.02)
        return True

    def listens_on(self, port: int) -> bool:
        """Return whether it is this process that listens on the TCP port."""
        process = self._find()
        try:
            connections = process.net_connections("tcp") if process else []
        except psutil.NoSuchProcess:
            return False
        return any(it.status == psutil.CONN_LISTEN and it.laddr.port == port for it in connections)

    def end(self, how: signal.Signals, seconds: float) -> None:
        """Signal the process and wait until it is gone; kill it when time is up. Nothing happens if it does not run."""
        if (process := self._find()) is not None:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(how)
            if not _wait_gone([process], seconds):
                self.kill()
        self._forget()

    def kill(self) -> None:
        """Kill the process and all its descendants, as a crash would."""
        if (process := self._find()) is not None:
            with suppress(psutil.NoSuchProcess):
                # Stopped first, so that it starts no more of them meanwhile.
                process.suspend()
                family = [*process.children(recursive=True), process]
                for member in family:
                    with suppress(psutil.NoSuchProcess):
                        member.kill()
                _wait_gone(family, 30)
        self._forget()

    def _find(self) -> psutil.Process | None:
        if self._child is not None:
            # Collects its exit status, if there is one.
            self._child.poll()
        try:
            record = json.loads(self.record.read_text())
            process = psutil.Process(record["pid"])
            # The kernel's notion of when it booted, from which start times are counted, can move by a second.
            same = abs(process.create_time() - record["started"]) < 2
        except (OSError, ValueError, KeyError, TypeError, psutil.NoSuchProcess):
            return None
        return process if same and not _is_gone(process) else None

    def _remember(self, pid: int) -> None:
        try:
            started = psutil.Process(pid).create_time()
        except psutil.NoSuchProcess:
            return
        fresh = self.record.with_suffix(".new")
        fresh.write_text(json.dumps({"pid": pid, "started": started}))
        fresh.replace(self.record)

    def _forget(self) -> None:
        self.record.unlink(missing_ok=True)
        if self._child is not None:
            try:
                self._child.wait(5)
            except subprocess.TimeoutExpired:
                # Its server is beyond our record: the kernel ends it with its guardian.
                self._child.kill()
                self._child.wait()
            self._child = None


def size(log: Path) -> int:
    """Return the log's size in bytes; 0 if there is none."""
    try:
        return log.stat().st_size
    except FileNotFoundError:
        return 0


def read_since(log: Path, before: int) -> str:
    """Return what was written to the log since it had `before` bytes, the last 20,000 bytes of it at most."""
    now = size(log)
    if not now:
        return ""
    with log.open("rb") as file:
        # A smaller log is a new one: the old was rolled over.
        file.seek(max(before if before <= now else 0, now - 20_000))
        return file.read().decode(errors="replace").strip()


def tail(log: Path, lines: int = 15) -> str:
    """Return the last lines of the log, or nothing if there is none."""
    return "\n".join(read_since(log, 0).splitlines()[-lines:])


def _is_gone(process: psutil.Process) -> bool:
    # In a container whose first process collects nobody, the dead stay as zombies.
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _wait_gone(family: Sequence[psutil.Process], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not all(_is_gone(member) for member in family):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True
