"""One connection out to an interconnect, from the attempt to connect to its end; the base of senders and receivers.

A subclass attaches its links in `attach`, handles their events as a handler of Proton's (`on_link_flow`, `on_delivery` ...), and
does in `woken` what other threads asked for. Used once: after its end, the connector (headrace/amqp/connector.py) makes another.
All methods run in the thread that calls `run`, except `wake` and `close`.
"""

import threading
from typing import Any

from headrace import doors
from headrace.amqp.errors import Reasons, Role, shown
from headrace.amqp.peer import close_silent, is_answered
from headrace.amqp.security import CertificateWatch, client_trust, credentials
from headrace.amqp.transport import Event, Handler, Loop
from headrace.configuration.sections import Client
from headrace.errors import ReplicationError

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
        self.loop = Loop(self, name)
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
        doors.AMQP.refuse(error, shown(self.url))
        self.end(self.reasons.unreadable())

    # What Proton calls.

    def on_reactor_init(self, _event: Event) -> None:
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
