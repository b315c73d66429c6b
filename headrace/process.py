"""Processes on their machine: what this one may have open, gives back and takes; how an edge or a bridge runs, and is held; and
what a JVM is started with.

Systems give a process 1,024 descriptors by themselves and let it have more; Kafka's clients and a few hundred sources need more.
The allocator of glibc has an arena for each thread and keeps there what was freed. With large batches once in each lane, in the
receiver and in Kafka's threads, a bridge came to 710 MB of which it used less than 440 at any one time. Prometheus has
`process_…` by its own library.

Spark's and Kafka's jars are in `HEADRACE_JARS`, in the set-up of a checkout, or in the user's own data folder. The DAG file has
the same list and imports nothing of ours. A JVM maps the classes in an archive, and neither reads nor verifies them again (JEP
350). Where the archive does not fit, because Java or the jars are others, the JVM starts without it. `make setup` makes Spark's
and Kafka's (infra/release/java_build.py).

An edge or a bridge runs until it ends, or until SIGTERM or SIGINT; with `--hold` it stays up when only a person can go on, for
supervisors that start a process again whatever its exit code is, as Kubernetes does. What is held does nothing but answer: it is
alive and not ready, and metrics and status give the reason. It ends on a signal, with the exit code that it would have had.
"""

import ctypes
import errno
import logging
import os
import re
import resource
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headrace import __version__
from headrace.errors import ConfigurationError, CorruptInput, NeedsOperator, ReplicationError
from headrace.status.answer import Answer, Health, SourceStatus

if TYPE_CHECKING:
    from headrace.findings import Finding
    from headrace.metrics.collector import HeldCollector

_log = logging.getLogger(__name__)

_FIX = (
    "Raise the limit of open files: LimitNOFILE= of a systemd unit, ulimits of a container, or 'ulimit -n' in a shell."
)


def raise_open_files() -> None:
    """Let this process have as many descriptors as the system lets it have."""
    # A system may refuse what it has as its limit, and a sandbox the question.
    with suppress(ValueError, OSError):
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def open_file_reason(error: OSError) -> str:
    """Return the reason of an error, with what to do where the limit was met."""
    words = error.strerror or str(error)
    return f"{words}. {_FIX}" if error.errno in {errno.EMFILE, errno.ENFILE} else words


def examine_open_files(needed: int) -> "Iterator[Finding]":
    """Check whether a process with this user's limit may have so many descriptors, about."""
    from headrace.findings import Finding

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < needed:
        yield Finding("open files", "warning", f"{hard:,} at most, where about {needed:,} may be needed", _FIX)
    else:
        shown = "no limit" if hard == resource.RLIM_INFINITY else f"{hard:,} at most"
        yield Finding("open files", "ok", f"{shown}, about {needed:,} may be needed")


#: Settings of `mallopt`, by the numbers that glibc's malloc.h has for them.
_MMAP_THRESHOLD, _ARENA_MAX = -3, -8
#: From so many bytes on, what is allocated has pages of its own, which are given back.
_LARGE = 1 << 20
_ARENAS = 2


def give_back_freed() -> None:
    """Have large blocks given back when they are freed, and few arenas; nothing happens where the C library is another one."""
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_MMAP_THRESHOLD, _LARGE)
        mallopt(_ARENA_MAX, _ARENAS)


#: The processor's share is a mean over at least this many seconds.
_LEAST_SECONDS = 10.0


class ProcessUse:
    """Measured when it is read; any thread may."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, processor: Callable[[], float] = time.process_time
    ) -> None:
        self._clock, self._processor = clock, processor
        # When the present mean began, the processor's seconds by then, and the mean before it; None before it was read first.
        self._began: tuple[float, float, float | None] | None = None

    def begin(self) -> None:
        """Let the mean begin now, and not when it is read first."""
        self._began = (self._clock(), self._processor(), None)

    @property
    def cpu_cores(self) -> float | None:
        """How many processor cores were busy of late; None in the first seconds."""
        if self._began is None:
            self.begin()
            return None
        began, seconds, mean = self._began
        now, spent = self._clock(), self._processor()
        if now - began >= _LEAST_SECONDS:
            mean = round((spent - seconds) / (now - began), 4)
            self._began = (now, spent, mean)
        return mean

    @property
    def memory_bytes(self) -> int | None:
        """Resident memory; None where the system does not report it."""
        try:
            return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except (OSError, ValueError, IndexError):
            return None


#: Of this process.
PROCESS = ProcessUse()


def jar_folder() -> Path:
    """Return the folder that holds, or will hold, a folder of jars for each purpose."""
    if folder := os.environ.get("HEADRACE_JARS"):
        return Path(folder).absolute()
    checkout = Path(__file__).resolve().parents[1]
    if (checkout / "pyproject.toml").exists():
        return checkout / ".setup" / "jars"
    # An installed package: `headrace jars` fetches them.
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(data) / "headrace" / "jars"


def class_archive(jars: list[Path]) -> Path:
    """Return where the archive of these jars is, whether there is one or not."""
    return jars[0].parent / "classes.jsa"


def jvm_options(jars: list[Path]) -> list[str]:
    """Return the JVM's options that use the archive; none while there is none."""
    archive = class_archive(jars)
    return [f"-XX:SharedArchiveFile={archive}", "-Xlog:cds*=off"] if archive.exists() else []


def jvm_options_to_archive(archive: Path) -> list[str]:
    """Return the JVM's options that make an archive when it ends."""
    return [f"-XX:ArchiveClassesAtExit={archive}", "-Xlog:cds*=off"]


#: The state of every source of a part that is held.
STATE = "needs an operator"
_LOOK_SECONDS = 0.2


def run_part(
    part: str,
    work: Callable[[], None],
    stop: Callable[[], None],
    *,
    sources: Sequence[str],
    listen: str | None,
    hold: bool,
    reload: Callable[[], None] | None = None,
) -> None:
    """Run a part; raise what ends it.

    Args:
        part: `edge` or `bridge`.
        work: serves until `stop` is called.
        stop: called on SIGTERM and SIGINT by a signal handler: it takes no lock (headrace/waiting.py).
        sources: the names of the part's sources.
        listen: where metrics, health and status are answered; None for nowhere.
        reload: called on SIGHUP, from the main thread between any two of its steps; without it SIGHUP ends the process.
        hold: whether to stay up after an error that only a person can pass, until a signal.
    """
    is_stopping = False

    def on_signal(_number: int, _frame: object) -> None:
        nonlocal is_stopping
        is_stopping = True
        stop()

    raise_open_files()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)
    if reload is not None:
        signal.signal(signal.SIGHUP, lambda _number, _frame: reload())
    try:
        work()
    except (NeedsOperator, CorruptInput) as error:
        if hold and not is_stopping:
            _hold(HeldService(part, sources, error), listen, lambda: is_stopping)
        raise


def _hold(service: "HeldService", listen: str | None, is_stopping: Callable[[], bool]) -> None:
    from headrace.metrics.endpoint import Endpoint

    error = service.error
    _log.error("%s. %s", error.message, error.hint)
    _log.error("not ready, and held until it is stopped; the exit code will be %d", error.exit_code)
    endpoint = None
    try:
        if listen is not None:
            try:
                endpoint = Endpoint(listen, service)
            except ConfigurationError as problem:
                _log.error("%s: nobody can see the reason but in this log", problem.message)
        while not is_stopping():
            time.sleep(_LOOK_SECONDS)
    finally:
        if endpoint is not None:
            endpoint.stop()


class HeldService:
    """Implements `headrace.metrics.endpoint.Served` for a part that an error has ended."""

    def __init__(self, part: str, sources: Sequence[str], error: ReplicationError) -> None:
        self.error = error
        self._part = part
        self._sources = sources

    @property
    def reason(self) -> str:
        """A short name for the kind of error, which stays the same in later releases: `needs-operator`."""
        return re.sub(r"(?<!^)(?=[A-Z])", "-", type(self.error).__name__).lower()

    @cached_property
    def collector(self) -> "HeldCollector":
        """What Prometheus reads; its library is imported only for that."""
        from headrace.metrics.collector import HeldCollector

        prefix = f"headrace_{self._part}"
        return HeldCollector(prefix, self._sources, STATE, self.reason, self.error.exit_code)

    def live(self) -> Health:
        """Report that a restart would not help."""
        return Health(well=True, reason="held: only an operator can go on")

    def ready(self) -> Health:
        """Report why it does nothing."""
        error = self.error
        text = f"{STATE} (exit code {error.exit_code}): {error.message}. {error.hint}".rstrip()
        return Health(well=False, reason=text)

    def status(self) -> Answer:
        """Report every source as waiting for an operator."""
        text = f"{self.error.message}. {self.error.hint}".rstrip()
        return Answer(
            part=self._part,
            running=True,
            version=__version__,
            ready=False,
            reason=f"{STATE} (exit code {self.error.exit_code}), held until it is stopped",
            sources=[SourceStatus(source=source, state=STATE, reason=text) for source in self._sources],
        )


HOLD = click.option(
    "--hold",
    is_flag=True,
    help="When only an operator can go on, stay up, not ready, and show why, instead of ending; a signal ends it with the exit "
    "code that it would have had. For supervisors that start a process again whatever its exit code is.",
)
