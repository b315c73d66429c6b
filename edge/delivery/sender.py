"""Keeps the edge connected to the interconnect, from a thread of its own (edge/delivery/link.py carries each connection).

Guarantees that each attempt starts with everything unaccepted to be sent again; that attempts go round all addresses and are
spread by jittered back-off; that what an operator has to fix ends the edge, and everything else does not: a limit of a router may
pass by itself, and a user that its policy does not know is refused with the same words.
"""

import itertools
import logging
import threading

from edge.delivery.link import Connection
from edge.delivery.outbox import Outbox
from edge.observability.figures import Figures
from headrace.backoff import Backoff
from headrace.configuration.edge import Interconnect
from headrace.errors import ConfigurationError, NotConnected, ReplicationError

_log = logging.getLogger(__name__)

#: The pause before the next of several addresses is tried, in seconds.
_NEXT_SECONDS = 0.1


class Sender:
    """A thread that keeps a link to `cdc/<source>` and sends what the outbox holds."""

    def __init__(self, interconnect: Interconnect, source: str, outbox: Outbox, figures: Figures) -> None:
        self._interconnect = interconnect
        self._source = source
        self._outbox = outbox
        self._figures = figures
        self._stopping = threading.Event()
        self._connection: Connection | None = None
        self._thread = threading.Thread(target=self._run, name="sender", daemon=True)
        outbox.wake_sender = self._wake

    def start(self) -> None:
        """Start to connect and to send."""
        self._thread.start()

    def stop(self, seconds: float) -> None:
        """Close the link and end the thread, waiting at most `seconds`; what is unsettled stays unacknowledged."""
        self._stopping.set()
        if (connection := self._connection) is not None:
            connection.close()
        if self._thread.is_alive():
            self._thread.join(seconds)

    def _wake(self) -> None:
        if (connection := self._connection) is not None:
            connection.wake()

    def _run(self) -> None:
        try:
            self._keep_connected()
        except Exception as error:  # noqa: BLE001 - whatever it is, the capturing thread raises it.
            self._outbox.fail(error)

    def _keep_connected(self) -> None:
        """Go from address to address, with a pause that grows after each round through all of them."""
        backoff = Backoff(first=0.2, longest=10.0)
        urls = itertools.cycle(self._interconnect.urls)
        failures = 0
        while not self._stopping.is_set():
            flowed, problem = self._connect(next(urls), first=self._figures.interconnect_connections == 0)
            if problem is None:
                continue
            if not isinstance(problem, NotConnected):
                raise problem
            if flowed:
                backoff.reset()
                failures = 0
            failures += 1
            self._figures.interconnect_problem = problem.message
            pause = backoff.pause() if failures % len(self._interconnect.urls) == 0 else _NEXT_SECONDS
            _log.warning("%s; trying again in %.1f s%s", problem.message, pause, problem.hint and f". {problem.hint}")
            self._stopping.wait(pause)

    def _connect(self, url: str, *, first: bool) -> tuple[bool, ReplicationError | None]:
        """Carry one connection to its end; return whether it ever had credit, and why it ended."""
        try:
            connection = Connection(self._interconnect, url, self._source, self._outbox, self._figures)
        except ConfigurationError as error:
            if first:
                raise
            # Files are replaced one after the other: soon they fit each other again.
            return False, NotConnected(error.message, hint=error.hint)
        self._connection = connection
        try:
            problem = connection.carry(self._stopping)
        finally:
            self._connection = None
            self._figures.interconnect_connected = self._figures.credit = 0
            self._figures.credit_wait.given()
            self._outbox.lost()
        return connection.flowed, problem
