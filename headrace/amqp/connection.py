"""A connection out to an interconnect, from the attempt to connect to its end, and what keeps one open until it is stopped.

`Connection` is the base of senders and receivers. A subclass attaches its links in `attach`, handles their events as a handler of
Proton's (`on_link_flow`, `on_delivery` ...), and does in `woken` what other threads asked for. Used once: after its end, the
connector makes another. All methods run in the thread that calls `run`, except `wake` and `close`.

The connector, in a thread of its own, guarantees that attempts go through all addresses in turn and are spread by jittered
back-off; that each begins with a new connection: a receiver that lost its connection in the middle of a message cannot go on with
it.
"""

import itertools
import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

from headrace import doors
from headrace.amqp.errors import Reasons, Role, hide_password
from headrace.amqp.security import CertificateWatch, client_trust, close_silent, credentials, is_answered
from headrace.amqp.transport import Event, Handler, Loop
from headrace.configuration.sections import Client
from headrace.errors import ConfigurationError, NotConnected, ReplicationError
from headrace.waiting import Backoff

#: An attempt that is not answered after so long, in seconds, is given up.
ATTEMPT_SECONDS = 15.0
#: How long the other side may take to answer a close, in seconds.
_CLOSE_SECONDS = 1.0


class Connection(Handler):  # type: ignore[misc]
    """A connection; `run` carries it to its end.

    Raises ConfigurationError when the certificates or the user cannot be used.
    """

    def __init__(self, settings: Client, url: str, name: str, role: Role, *, frame_bytes: int | None = None) -> None:
        super().__init__()
        #: The address, `amqp://host:port` or `amqps://host:port`.
        self.url = url
        self.reasons = Reasons(role, url, settings)
        #: Whether the connection served its purpose; until then, attempts come more seldom each time.
        self.worked = False
        #: Proton's connection, once the attempt has begun.
        self.connection: Any = None
        self._certificates = CertificateWatch(settings)
        self._credentials = credentials(settings, url)
        self._trusted = client_trust(settings) if url.startswith("amqps:") else None
        self._frame_bytes = frame_bytes
        self._problem: ReplicationError | None = None
        #: Whether it is being closed from here.
        self.is_ending = False
        self._closing = False
        # Last: it holds descriptors, also of one that could not be made.
        self.loop = Loop(self, name)

    def run(self, stopping: threading.Event) -> ReplicationError | None:
        """Connect, and serve the links until the connection ends; return why it ended, None when it was closed from here."""
        try:
            if not stopping.is_set():
                self.loop.run()
        except OSError as error:
            self.note(self.reasons.unreachable(error))
        finally:
            self.loop.close()
            self.connection = self._trusted = None
            self.ended()
        return self._problem

    def wake(self) -> None:
        """Have `woken` called; from any thread."""
        self.loop.wake()

    def close(self) -> None:
        """Close the connection; from any thread."""
        self._closing = True
        self.loop.wake()

    # For subclasses.

    def attach(self) -> None:
        """Attach links, by `self.loop` to `self.connection`; called when the attempt begins, before any answer."""

    def woken(self) -> None:
        """Do what other threads asked for."""

    def close_links(self) -> None:
        """Close links before the connection is closed from here, where that matters."""

    def ended(self) -> None:
        """Forget links and connection, of which nothing is left."""

    @property
    def is_answered(self) -> bool:
        """Whether the other side has answered; an attempt that is not answered in time is given up."""
        return is_answered(self.connection)

    def note(self, problem: ReplicationError) -> None:
        """Keep why it ends; the first reason counts, and none when it is closed on request."""
        if self._problem is None and not self._closing:
            self._problem = problem

    def end(self, problem: ReplicationError | None) -> None:
        """Close links and connection, because of a problem or on request."""
        if problem is not None:
            self.note(problem)
        if not self.is_ending and self.connection is not None:
            self.is_ending = True
            self._certificates.stop()
            self.close_links()
            self.connection.close()
            self.loop.after(_CLOSE_SECONDS, self.loop.stop)

    def refused(self, _event: Event, error: Exception) -> None:
        """End: the other side sent what cannot be processed."""
        doors.AMQP.refuse(error, hide_password(self.url))
        self.end(self.reasons.unreadable())

    # What the loop calls.

    def on_begin(self) -> None:
        """Start to connect."""
        self.connection = self.loop.connect(
            self.url, trusted=self._trusted, credentials=self._credentials, frame_bytes=self._frame_bytes
        )
        self.attach()
        self.loop.after(ATTEMPT_SECONDS, self._give_up)
        self._certificates.start(self.loop.after, lambda: self.end(self.reasons.renewed()))

    def on_wake(self) -> None:
        """Do what was asked for, or close."""
        if self._closing:
            self.end(None)
        else:
            self.woken()

    def on_link_remote_close(self, event: Event) -> None:
        """End: the link was refused, or is lost."""
        link = event.link
        address = (link.target if link.is_sender else link.source).address
        self.end(self.reasons.link_closed(address, link.remote_condition))

    def on_session_remote_close(self, event: Event) -> None:
        """End: the links are lost."""
        self.end(self.reasons.session_closed(event.session.remote_condition))

    def on_connection_remote_close(self, event: Event) -> None:
        """End: the connection was refused, or is lost."""
        self.end(self.reasons.connection_closed(event.connection.remote_condition))

    def on_transport_error(self, event: Event) -> None:
        """Note why the transport ended; `on_transport_closed` follows."""
        self.note(self.reasons.lost(event.transport.condition, opened=is_answered(event.connection)))
        close_silent(event.transport)

    def on_transport_closed(self, event: Event) -> None:
        """End the loop."""
        if not self.is_ending:
            self.note(self.reasons.closed_silently(opened=is_answered(event.connection)))
        self.loop.stop()

    def _give_up(self) -> None:
        if not self.is_answered:
            self.end(self.reasons.unanswered(ATTEMPT_SECONDS))


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
