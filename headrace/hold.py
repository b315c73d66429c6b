"""Runs an edge or a bridge until it ends, or until SIGTERM or SIGINT; with `--hold` it stays up when only a person can go on.

For supervisors that start a process again whatever its exit code is, as Kubernetes does. What is held does nothing but answer:
it is alive and not ready, and metrics and status give the reason. It ends on a signal, with the exit code that it would have had.
Called by the `run` of both.
"""

import logging
import re
import signal
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import click

from headrace import __version__
from headrace.errors import ConfigurationError, CorruptInput, NeedsOperator, ReplicationError
from headrace.metrics.endpoint import Endpoint
from headrace.process import raise_open_files
from headrace.status.answer import Answer, Health, SourceStatus

if TYPE_CHECKING:
    from headrace.metrics.collector import HeldCollector

_log = logging.getLogger(__name__)

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
