"""Proton's engine, run by a loop of ours: timers, wake-ups, connections in and out. The one module that imports Proton.

A `Loop` runs over a handler, which decides everything: its methods `on_...`, and those of its `handlers`, are called with the
events of that name. An event that nobody handles costs a look at its number: Proton's own loop makes a dozen objects of each,
and asks all connections at each turn. Everything runs in the loop's thread, but for `Loop.wake`. The names that other modules
need of Proton are imported from here.
"""

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any
from urllib.parse import urlsplit

from cproton import pn_ssl_domain_set_protocols
from cproton_ffi import lib
from proton import (
    SSL,
    Collector,
    Condition,
    Connection,
    Delivery,
    Endpoint,
    EventType,
    Handler,
    Link,
    Message,
    ProtonException,
    Session,
    SSLException,
    Transport,
    symbol,
)
from proton import Event as ProtonEvent
from proton import SSLDomain as ProtonDomain
from proton.handlers import EndpointStateHandler

from headrace.amqp.polling import READ, Polling
from headrace.amqp.sockets import Acceptor, Address, Socket, Sockets, number_of
from headrace.errors import ReplicationError
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
    "symbol",
]

# Proton's own lines are for --verbose: what matters of them is logged here, in our words.
logging.getLogger("proton").addFilter(lambda _record: logging.getLogger().isEnabledFor(logging.DEBUG))

#: A peer that is silent for so long is gone, in seconds.
IDLE_SECONDS = 10.0
#: Versions of TLS that are spoken.
_PROTOCOLS = "TLSv1.2 TLSv1.3"
_PORTS = {"amqp": 5672, "amqps": 5671}


class SSLDomain(ProtonDomain):  # type: ignore[misc]
    """Proton's settings of TLS, from version 1.2 on: left alone it takes 1.0 and 1.1 as well."""

    def __init__(self, mode: int) -> None:
        super().__init__(mode)
        self._check(pn_ssl_domain_set_protocols(self._domain, _PROTOCOLS))


class Event(ProtonEvent):  # type: ignore[misc]
    """An event, whose objects are made when they are first looked at; valid while it is handled."""

    def __init__(self, impl: Any, number: int) -> None:
        self._impl = impl
        self._type = EventType.TYPES[number]

    @cached_property
    def connection(self) -> Any:
        """The connection that it is about, or that what it is about belongs to; None for a transport without one."""
        return Connection.wrap(lib.pn_event_connection(self._impl))

    @cached_property
    def session(self) -> Any:
        """The session, or None."""
        return Session.wrap(lib.pn_event_session(self._impl))

    @cached_property
    def link(self) -> Any:
        """The link, or None."""
        return Link.wrap(lib.pn_event_link(self._impl))

    @cached_property
    def delivery(self) -> Any:
        """The delivery, or None."""
        return Delivery.wrap(lib.pn_event_delivery(self._impl))

    @cached_property
    def transport(self) -> Any:
        """The transport, or None where the connection has none."""
        return Transport.wrap(lib.pn_event_transport(self._impl))

    @property
    def context(self) -> Any:
        """What it is about."""
        return self.delivery or self.link or self.session or self.connection or self.transport


class Loop:
    """One run over a handler, whose `on_begin` comes first; any thread can wake it: `on_wake` is then called.

    What the handler raises for an event does not end the loop: the handler's `refused` is called with it, where there is one.
    Proton makes Python's values of what came when they are first looked at, so any event may raise. Used once; call `close` after
    its end.
    """

    def __init__(self, handler: Handler, name: str) -> None:
        self._handler = handler
        self._name = name
        self._collector = Collector()
        self._polling = Polling()
        #: Those of the connections.
        self.sockets = Sockets(self._polling, self._handle_events)
        #: What to call with each type of event, by its number.
        self._methods: dict[int, list[Callable[[Event], None]]] = {}
        #: What was connected out last.
        self._connection: Any = None
        self._wakeup = Wakeup()
        self._lock = threading.Lock()
        self._woken = self._closed = self._stopped = False

    def run(self) -> None:
        """Run until it is stopped; raise OSError when the address to connect to cannot be resolved or reached."""
        handlers = list(_with_children(self._handler))
        for number, kind in EventType.TYPES.items():
            if methods := [method for each in handlers if (method := getattr(each, kind.method, None)) is not None]:
                self._methods[number] = methods
        self._polling.watch(self._wakeup.fileno(), READ, self._wake_up)
        if (begin := getattr(self._handler, "on_begin", None)) is not None:
            begin()
        self._process()
        while not self._stopped:
            self._polling.wait()
            self._process()

    def connect(
        self,
        url: str,
        *,
        trusted: SSLDomain | None,
        credentials: Mapping[str, Any],
        frame_bytes: int | None = None,
    ) -> Any:
        """Start to connect, and return the connection; once lost, it is not made again.

        Args:
            url: `amqp://host:port` or `amqps://host:port`.
            trusted: who is trusted, for an amqps address.
            credentials: who connects (headrace/amqp/security.py).
            frame_bytes: the largest frame to accept; Proton's default when None.

        Raises OSError when the address cannot be resolved or reached.
        """
        parts = urlsplit(url)
        address = Address(parts.hostname or "", parts.port or _PORTS[parts.scheme])
        connection = self._connection = Connection()
        connection.collect(self._collector)
        connection.container, connection.hostname, connection.url = self._name, address.host, address
        if "user" in credentials:
            connection.user, connection.password = credentials["user"], credentials["password"]
        transport = Transport()
        sasl = transport.sasl()
        sasl.allow_insecure_mechs = True
        if mechanisms := credentials.get("allowed_mechs"):
            sasl.allowed_mechs(mechanisms)
        transport.bind(connection)
        transport.idle_timeout = IDLE_SECONDS
        if parts.scheme == "amqps":
            SSL(transport, trusted).peer_hostname = address.host
        if frame_bytes is not None:
            transport.max_frame_size = frame_bytes
        connection.open()

        def failed(error: OSError) -> None:
            transport.condition = Condition(error.strerror or type(error).__name__)

        Socket(self.sockets, connection, transport).connect(address, failed)
        return connection

    def listen(self, host: str, port: int) -> Acceptor:
        """Accept connections, once the loop runs; raise OSError when the address is not available."""
        acceptor = Acceptor(
            self._polling, host, port, lambda sock, address: self._accept(sock, address, acceptor.domain)
        )
        return acceptor

    def attach_sender(self, connection: Any, address: str, name: str) -> Any:
        """Attach a sender to an address, whose deliveries stay unsettled until their outcome; return its link."""
        link = _session_of(connection).sender(name)
        return _attach(link, link.target, address)

    def attach_receiver(self, connection: Any, address: str, name: str) -> Any:
        """Attach a receiver to an address, which has the credit that `flow` gives it and no more; return its link."""
        link = _session_of(connection).receiver(name)
        return _attach(link, link.source, address)

    def after(self, seconds: float, step: Callable[[], None]) -> None:
        """Take a step after some seconds; never when the loop has ended before."""
        self._polling.at(time.monotonic() + seconds, step)

    def stop(self) -> None:
        """End the run."""
        self._stopped = True

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

        The ring from Proton's C objects to the handler and back is seen by no collector. Unbroken, every attempt to connect
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
        self._collector.release()
        self.sockets.close()
        self._polling.close()
        self._methods.clear()

    def _accept(self, sock: socket.socket, address: Address, domain: SSLDomain | None) -> None:
        connection, transport = Connection(), Transport(Transport.SERVER)
        connection.collect(self._collector)
        connection.url = address
        if domain is not None:
            transport.ssl(domain)
        transport.bind(connection)
        Socket(self.sockets, connection, transport, sock)

    def _wake_up(self, _reading: bool, _writing: bool) -> None:
        self._wakeup.clear()
        # Before the handler looks: calls from now on notify again.
        self._woken = False
        self._handler.on_wake()

    def _process(self) -> None:
        """Handle all events, and write what came of them, which may be the cause of more."""
        self._handle_events()
        while self.sockets.flush():
            self._handle_events()

    def _handle_events(self) -> None:
        collector, methods = self._collector._impl, self._methods  # noqa: SLF001 - as above.
        while impl := lib.pn_collector_peek(collector):
            number = lib.pn_event_type(impl)
            if number == lib.PN_TRANSPORT:
                self.sockets.touch(number_of(lib.pn_event_transport(impl)))
            elif number in methods:
                self._handle(Event(impl, number), methods[number])
            if number == lib.PN_TRANSPORT_CLOSED:
                transport = lib.pn_event_transport(impl)
                self.sockets.drop(number_of(transport))
                lib.pn_transport_unbind(transport)
            lib.pn_collector_pop(collector)

    def _handle(self, event: Event, methods: list[Callable[[Event], None]]) -> None:
        try:
            for method in methods:
                method(event)
        except (ReplicationError, OSError):
            # Raised on purpose: not about what came.
            raise
        except Exception as error:
            if not hasattr(self._handler, "refused"):
                raise
            self._handler.refused(event, error)


def _with_children(handler: Any) -> Iterator[Any]:
    yield handler
    for each in getattr(handler, "handlers", ()):
        yield from _with_children(each)


def _session_of(connection: Any) -> Any:
    """Return the session of a connection, which has one for all its links."""
    session = connection.session_head(0)
    if session is None:
        session = connection.session()
        session.open()
    return session


def _attach(link: Any, terminus: Any, address: str) -> Any:
    """Attach a link to an address of the other side, with an outcome for each delivery; return it.

    A queue is asked for: without that Artemis makes an unknown address a topic, and what is sent early is lost.
    """
    terminus.address = address
    terminus.capabilities.put_object(symbol("queue"))
    link.snd_settle_mode, link.rcv_settle_mode = Link.SND_UNSETTLED, Link.RCV_FIRST
    link.open()
    return link
