"""Keeps a connection to an interconnect open, in a thread of its own: from address to address, until it is stopped.

Guarantees that attempts go through all addresses in turn and are spread by jittered back-off; that each begins with a new
connection: a receiver that lost its connection in the middle of a message cannot go on with it.
"""

import itertools
import logging
import threading
from collections.abc import Callable, Sequence

from headrace.amqp.connection import Connection
from headrace.errors import ConfigurationError, NotConnected, ReplicationError
from headrace.waiting import Backoff

_log = logging.getLogger(__name__)

#: The pause before the next of several addresses is tried, in seconds.
_NEXT_SECONDS = 0.1


class Connector:
    """A thread that makes one connection after another, each to the next of the addresses.

    Args:
        urls: the addresses, which lead to the same place.
        make: returns a new connection to one of them; raises ConfigurationError when certificates or user cannot be used.
        failed: called, in the thread, with what ends it: certificates or a user that cannot be used before any connection
            worked, what an operator has to fix unless `tolerant`, and what nobody expected.
        name: the thread's.
        tolerant: whether it goes on trying when an operator has to act.
    """

    def __init__(
        self,
        urls: Sequence[str],
        make: Callable[[str], Connection],
        failed: Callable[[Exception], None],
        *,
        name: str,
        tolerant: bool = False,
    ) -> None:
        self._urls = urls
        self._make = make
        self._failed = failed
        self._tolerant = tolerant
        self._stopping = threading.Event()
        self._connection: Connection | None = None
        self._worked = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        #: Called with each problem that ended a connection and is tried again, before the pause.
        self.on_problem: Callable[[ReplicationError], None] = lambda _problem: None

    def start(self) -> None:
        """Start to connect."""
        self._thread.start()

    def stop(self, seconds: float) -> None:
        """Close the connection, and wait at most `seconds` for the end of the thread."""
        self._stopping.set()
        if (connection := self._connection) is not None:
            connection.close()
        if self._thread.is_alive():
            self._thread.join(seconds)

    def wake(self) -> None:
        """Have the connection's `woken` called, if there is one now; from any thread."""
        if (connection := self._connection) is not None:
            connection.wake()

    def _run(self) -> None:
        try:
            self._keep_connected()
        except Exception as error:  # noqa: BLE001 - its owner ends with it.
            self._failed(error)

    def _keep_connected(self) -> None:
        backoff, failures = Backoff(first=0.2, longest=10.0), 0
        urls = itertools.cycle(self._urls)
        while not self._stopping.is_set():
            worked, problem = self._connect(next(urls))
            if problem is None:
                continue
            if not self._tolerant and not isinstance(problem, NotConnected):
                raise problem
            if worked:
                backoff.reset()
                failures = 0
            failures += 1
            self.on_problem(problem)
            pause = backoff.pause() if failures % len(self._urls) == 0 else _NEXT_SECONDS
            _log.warning("%s; trying again in %.1f s%s", problem.message, pause, problem.hint and f". {problem.hint}")
            self._stopping.wait(pause)

    def _connect(self, url: str) -> tuple[bool, ReplicationError | None]:
        """Carry one connection to its end; return whether it worked, and why it ended."""
        try:
            connection = self._make(url)
        except NotConnected as error:
            # The command that prints the password failed: it may pass.
            return False, error
        except ConfigurationError as error:
            if not self._worked:
                raise
            # Files are replaced one after the other: soon they fit each other again.
            return False, NotConnected(error.message, hint=error.hint)
        self._connection = connection
        try:
            problem = connection.run(self._stopping)
        finally:
            self._connection = None
            self._worked = self._worked or connection.worked
        return connection.worked, problem
