"""Proton's loop: sockets, timers, wake-ups, connections in and out. The one module of the project that imports Proton.

A `Loop` runs Proton over a handler, which decides everything. Everything here runs in the loop's thread, but for `Loop.wake`. The
names that other modules need of Proton are imported from here.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

from cproton import pn_ssl_domain_set_protocols
from proton import (
    Condition,
    Connection,
    Delivery,
    Endpoint,
    Event,
    Handler,
    Link,
    Message,
    ProtonException,
    Session,
    SSLException,
    Transport,
    symbol,
)
from proton import SSLDomain as ProtonDomain
from proton._reactor import Acceptor as ProtonAcceptor
from proton.handlers import EndpointStateHandler, IOHandler
from proton.reactor import AtLeastOnce, Container, LinkOption

from headrace.amqp.polling import Polled
from headrace.errors import ReplicationError
from headrace.logs import RateLimitedLog
from headrace.process import open_file_reason
from headrace.waiting import Wakeup

__all__ = [
    "Acceptor",
    "Condition",
    "Delivery",
    "Endpoint",
    "EndpointStateHandler",
    "Event",
    "Handler",
    "Loop",
    "Message",
    "ProtonException",
    "SSLDomain",
    "SSLException",
    "Sockets",
    "symbol",
]

_log = logging.getLogger(__name__)
# Proton's own lines are for --verbose: what matters of them is logged here, in our words.
logging.getLogger("proton").addFilter(lambda _record: logging.getLogger().isEnabledFor(logging.DEBUG))

#: A peer that is silent for so long is gone, in seconds.
IDLE_SECONDS = 10.0
#: Connections that wait to be accepted.
_BACKLOG = 256
#: Writes in a row, of up to a frame each, before something else has its turn.
_WRITES = 256
#: Versions of TLS that are spoken.
_PROTOCOLS = "TLSv1.2 TLSv1.3"


class SSLDomain(ProtonDomain):  # type: ignore[misc]
    """Proton's settings of TLS, from version 1.2 on: left alone it takes 1.0 and 1.1 as well."""

    def __init__(self, mode: int) -> None:
        super().__init__(mode)
        self._check(pn_ssl_domain_set_protocols(self._domain, _PROTOCOLS))


class Loop:
    """One run of Proton's loop over a handler, which any thread can wake: its `on_wake` is then called.

    What the handler raises for an event of a peer's does not end the loop: the handler's `refused` is called with it. Used once;
    call `close` after its end.
    """

    def __init__(self, handler: Handler, name: str) -> None:
        self._container = _Guarded(handler, name)
        # Its own TLS contexts, which hold the system's authorities, are not used: 1.6 MB.
        self._container.ssl = None
        self._container.global_handler.base = self.sockets = Sockets()
        self._connection: Any = None
        self._wakeup = Wakeup()
        self._lock = threading.Lock()
        self._woken = self._closed = False
        self._container.selectable(_Waker(self._wakeup.fileno, lambda: self._wake_up(handler)))

    def run(self) -> None:
        """Run until it is stopped; raise OSError when the address to connect to cannot be resolved or reached."""
        self._container.run()

    def connect(
        self,
        url: str,
        *,
        trusted: SSLDomain | None,
        credentials: Mapping[str, object],
        frame_bytes: int | None = None,
    ) -> Any:
        """Start to connect, and return the connection; once lost, it is not made again.

        Args:
            url: `amqp://host:port` or `amqps://host:port`.
            trusted: who is trusted, for an amqps address.
            credentials: who connects (headrace/amqp/security.py).
            frame_bytes: the largest frame to accept; Proton's default when None.
        """
        self._connection = self._container.connect(
            url,
            reconnect=False,
            heartbeat=IDLE_SECONDS,
            ssl_domain=trusted,
            max_frame_size=frame_bytes,
            **credentials,
        )
        return self._connection

    def listen(self, host: str, port: int) -> "Acceptor":
        """Accept connections, once the loop runs; raise OSError when the address is not available."""
        return Acceptor(self._container, host, port)

    def attach_sender(self, connection: Any, address: str, name: str) -> Any:
        """Attach a sender to an address, whose deliveries stay unsettled until their outcome; return its link."""
        return self._container.create_sender(connection, address, name=name, options=[AtLeastOnce(), _Queue()])

    def attach_receiver(self, connection: Any, address: str, name: str) -> Any:
        """Attach a receiver to an address, which has the credit that `flow` gives it and no more; return its link."""
        return self._container.create_receiver(connection, address, name=name, options=[AtLeastOnce(), _Queue()])

    def after(self, seconds: float, step: Callable[[], None]) -> None:
        """Take a step after some seconds; never when the loop has ended before."""
        self._container.schedule(seconds, _Timer(step))

    def stop(self) -> None:
        """End the run."""
        self._container.stop()

    def wake(self) -> None:
        """Have the handler's `on_wake` called, soon, and once for several calls; from any thread, also after its end."""
        if self._woken:
            # `_wake_up` has not begun, and sees whatever this thread has done before.
            return
        with self._lock:
            if not self._closed:
                self._woken = True
                self._wakeup.notify()

    def close(self) -> None:
        """Release what it holds.

        The ring from Proton's C objects to the container and back is seen by no collector. Unbroken, every attempt to connect
        leaves its buffers and its TLS context behind, and a long outage fills the memory.
        """
        with self._lock:
            self._closed = True
            self._wakeup.close()
        connection, self._connection = self._connection, None
        if connection is not None:
            link = connection.link_head(0)
            while link is not None:
                link._attrs.clear()  # noqa: SLF001 - Proton has no public method for it.
                link = link.next(0)
            connection._attrs.clear()  # noqa: SLF001 - as above.
        self._container.stop_events()
        self.sockets.close()

    def _wake_up(self, handler: Handler) -> None:
        self._wakeup.clear()
        # Before the handler looks: calls from now on notify again.
        self._woken = False
        handler.on_wake()


class _Guarded(Container):  # type: ignore[misc]
    """Gives what its handler raises for an event of a peer's to the handler's `refused`, and goes on; costs other events nothing.

    Proton makes Python's values of what came when they are first looked at: any event may raise.
    """

    def __init__(self, handler: Handler, name: str) -> None:
        super().__init__(handler, container_id=name)
        self._guarded = handler

    def process(self) -> bool:
        """Process events until there are none; as Proton's own, which this runs."""
        while True:
            try:
                return bool(super().process())
            except (ReplicationError, OSError):
                # Raised on purpose, or of a socket: not about what came.
                raise
            except Exception as error:
                event = self._collector.peek()
                is_of_peer = event is not None and isinstance(event.context, _OF_PEERS)
                if not is_of_peer or not hasattr(self._guarded, "refused"):
                    raise
                self._guarded.refused(event, error)
                # What the loop would have done after the handler.
                event.dispatch(self._global_handler)
                self._collector.pop()


_OF_PEERS = (Connection, Session, Link, Delivery, Transport)


class Acceptor(ProtonAcceptor):  # type: ignore[misc]
    """Accepts connections, and tolerates a moment in which it cannot."""

    def __init__(self, container: Container, host: str, port: int) -> None:
        super().__init__(container, host, port)
        self._selectable.listen(_BACKLOG)
        #: The port that is listened on, also where 0 was given.
        self.port = int(self._selectable.getsockname()[1])

    def on_selectable_readable(self, event: Event) -> None:
        """Accept a connection."""
        try:
            super().on_selectable_readable(event)
        except OSError as error:
            _cannot_accept("a connection could not be accepted: %s", open_file_reason(error))


_cannot_accept = RateLimitedLog(_log.error)


class Sockets(Polled, IOHandler):  # type: ignore[misc]
    """Proton's reads and writes, for any descriptor, and a socket is written to at once and until it is full.

    One write each time that a socket takes some again would leave TCP short of data on a long link: it then never learns how much
    the link carries. And to poll first whether a socket takes something costs as much as to write.
    """

    def on_transport(self, event: Event) -> None:
        """Write what is there to be written now."""
        transport = event.transport
        selectable = transport._selectable  # noqa: SLF001 - as in Proton's own handler.
        if selectable and not selectable.is_terminal:
            self._write(transport, selectable)

    def on_selectable_writable(self, event: Event) -> None:
        """Write what is left."""
        selectable = event.selectable
        transport = selectable._transport  # noqa: SLF001 - as above.
        if transport is not None:
            self._write(transport, selectable)

    def _write(self, transport: Any, selectable: Any) -> None:
        """Write what there is, as far as the socket takes it."""
        try:
            for _ in range(_WRITES):
                pending = transport.pending()
                if pending <= 0:
                    break
                transport.pop(selectable.send(transport.peek(pending)))
        except (BlockingIOError, ProtonException):
            # Full; or closed, which the update sees.
            pass
        except OSError:
            transport.close_head()
        self.update(transport, selectable, selectable._reactor.now)  # noqa: SLF001 - as above.


class _Waker:
    """The loop's end of a wake-up; a handler and a descriptor to Proton."""

    #: Proton's handler of sockets passes over what has none.
    _transport = None

    def __init__(self, fileno: Callable[[], int], step: Callable[[], None]) -> None:
        self.fileno = fileno
        self._step = step

    def close(self) -> None:
        """Leave the descriptor to the loop, which closes it when nobody can notify any more."""

    def on_selectable_init(self, event: Event) -> None:
        """Wait until it is readable."""
        event.selectable.reading = True
        event.selectable.update()

    def on_selectable_readable(self, _event: Event) -> None:
        """Take the step."""
        self._step()


class _Timer(Handler):  # type: ignore[misc]
    """Takes a step when its time has come."""

    def __init__(self, step: Callable[[], None]) -> None:
        super().__init__()
        self._step = step

    def on_timer_task(self, _event: Event) -> None:
        """Take the step."""
        self._step()


class _Queue(LinkOption):  # type: ignore[misc]
    """Asks a broker for a queue: without it Artemis makes an unknown address a topic, and what is sent early is lost."""

    def apply(self, link: Any) -> None:
        """Ask on the end of the link that is the broker's."""
        (link.target if link.is_sender else link.source).capabilities.put_object(symbol("queue"))
