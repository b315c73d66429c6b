"""AMQP 1.0, by Proton: connections, certificates and messages. The one module of the bridge that imports Proton.

A `Loop` runs Proton over a peer (bridge/amqp/connections.py), which decides everything; the functions need Proton. Nothing is
accepted by itself and credit is given by hand. Everything here runs in the receiver's thread, but for `Loop.wake`.
"""

import logging
import os
import threading
from collections.abc import Callable
from typing import Any, Protocol

from proton import Condition, Delivery, Handler, Message, ProtonException, SSLDomain, SSLException, symbol
from proton._reactor import Acceptor
from proton.handlers import EndpointStateHandler, IOHandler
from proton.reactor import ApplicationEvent, AtLeastOnce, Container, EventInjector, LinkOption

from bridge.amqp.delivery import Accept, Outcome, Reject
from bridge.rate_limited_log import RateLimitedLog
from headrace.certificates import files
from headrace.configuration.bridge import Interconnect
from headrace.polling import Polled

__all__ = [
    "Decoder",
    "EndpointStateHandler",
    "Handler",
    "Loop",
    "Sockets",
    "abort",
    "after",
    "client_trust",
    "close",
    "identity",
    "peer_of",
    "receive",
    "release",
    "server_trust",
    "settle",
]

_log = logging.getLogger(__name__)
# Proton's own lines are for --verbose: what matters of them is said here, in our words.
logging.getLogger("proton").addFilter(lambda _record: logging.getLogger().isEnabledFor(logging.DEBUG))

#: A peer that is silent for so long is gone, in seconds.
IDLE_TIMEOUT = 10.0
#: What Proton calls such a peer in the condition of its transport.
SILENT = "local-idle-timeout"
FRAME_BYTES = 64 * 1024
#: Connections that wait to be accepted.
_BACKLOG = 256


class ConnectionHandlerPort(Protocol):
    """What a loop needs of its peer."""

    container: Any
    injector: Any
    awake: Callable[[], None]

    def attend(self, acceptor: Any) -> None:
        """Answer who comes through the acceptor."""

    def reach(self, url: str) -> None:
        """Attach to the sources' addresses at this interconnect."""


class Loop:
    """One run of Proton's loop over a peer, which any thread can wake."""

    def __init__(self, peer: ConnectionHandlerPort, name: str) -> None:
        self._peer = peer
        self._container = Container(peer, container_id=name)
        # Its own TLS contexts, which hold the system's authorities, are not used: 1.6 MB.
        self._container.ssl = None
        self._container.global_handler.base = Sockets()
        self._injector = EventInjector()
        self._container.selectable(self._injector)
        self._lock = threading.Lock()
        self._woken = False
        self._over = False
        self._connection: Any = None
        peer.container, peer.injector, peer.awake = self._container, self._injector, self._awake

    def listen(self, host: str, port: int) -> int:
        """Accept connections, once the loop runs, and return the port.

        Raises OSError when the address cannot be had, ConfigurationError when the certificates are of no use.
        """
        acceptor = _Acceptor(self._container, host, port)
        socket = acceptor._selectable  # noqa: SLF001 - Proton has no public way to ask.
        socket.listen(_BACKLOG)
        self._peer.attend(acceptor)
        return int(socket.getsockname()[1])

    def connect(self, interconnect: Interconnect, url: str) -> None:
        """Connect out, once the loop runs; a connection that is lost ends the loop.

        Raises ConfigurationError when the certificates are of no use.
        """
        user, password = interconnect.user, interconnect.password
        mechanism = "PLAIN" if user else "EXTERNAL" if interconnect.certificate else "ANONYMOUS"
        self._connection = self._container.connect(
            url,
            reconnect=False,
            heartbeat=IDLE_TIMEOUT,
            max_frame_size=FRAME_BYTES,
            ssl_domain=client_trust(interconnect) if url.startswith("amqps:") else None,
            allowed_mechs=mechanism,
            # PLAIN is offered over TLS only: the file is refused otherwise.
            allow_insecure_mechs=True,
            **({"user": user} if user else {}),
            **({"password": password.reveal()} if password else {}),
        )
        self._peer.reach(url)

    def run(self) -> None:
        """Run until everything is closed; raise OSError when the address to connect to cannot be had."""
        self.wake()
        try:
            self._container.run()
        finally:
            with self._lock:
                self._over = True
                # Proton never closes the injector's pipe.
                for end in self._injector.pipe:
                    os.close(end)
            self._let_go()

    def wake(self) -> None:
        """Have the peer do the commands that wait, soon: once for all of them."""
        with self._lock:
            if not self._woken and not self._over:
                self._woken = True
                self._injector.trigger(ApplicationEvent("wake"))

    def _let_go(self) -> None:
        """Break the rings from Proton's C objects to the container and back, which no collector sees.

        Otherwise every attempt to connect leaves its buffers and its TLS context behind, and a long outage fills the memory.
        """
        if self._connection is not None:
            self._connection._attrs.clear()  # noqa: SLF001 - there is no public way.
            self._connection = None
        self._container.stop_events()

    def _awake(self) -> None:
        with self._lock:
            self._woken = False


class Sockets(Polled, IOHandler):  # type: ignore[misc]
    """Proton's reads and writes, for any number of descriptors."""


def settle(delivery: Any, outcome: Outcome) -> None:
    """Tell the other side what became of a delivery."""
    if isinstance(outcome, Accept):
        delivery.update(Delivery.ACCEPTED)
    elif isinstance(outcome, Reject):
        delivery.local.condition = Condition(outcome.condition, outcome.description)
        delivery.update(Delivery.REJECTED)
    else:
        delivery.update(Delivery.RELEASED)
    delivery.settle()


class _Acceptor(Acceptor):  # type: ignore[misc]
    """Accepts connections, and bears with a moment in which it cannot."""

    def on_selectable_readable(self, event: Any) -> None:
        try:
            super().on_selectable_readable(event)
        except OSError as error:
            _no_room("a connection could not be accepted: %s", error.strerror or error)


_no_room = RateLimitedLog(_log.error)


def client_trust(interconnect: Interconnect) -> SSLDomain:
    """Return whom to trust, by name, and who we are, read from the files now; raise ConfigurationError if they are of no use."""
    domain = _trust(interconnect, SSLDomain.MODE_CLIENT)
    domain.set_peer_authentication(SSLDomain.VERIFY_PEER_NAME)
    return domain


def server_trust(interconnect: Interconnect) -> SSLDomain:
    """Return who we are, and whose clients to let in, read from the files now; raise ConfigurationError as above."""
    domain = _trust(interconnect, SSLDomain.MODE_SERVER)
    domain.set_peer_authentication(SSLDomain.VERIFY_PEER, str(interconnect.authority))
    return domain


def _trust(interconnect: Interconnect, mode: int) -> SSLDomain:
    for warning in files.examine(interconnect):
        _log.warning("%s", warning)
    domain = SSLDomain(mode)
    try:
        if interconnect.authority is not None:
            domain.set_trusted_ca_db(str(interconnect.authority))
        if interconnect.certificate is not None:
            domain.set_credentials(str(interconnect.certificate), str(interconnect.key), None)
    except SSLException as error:
        raise files.unusable(interconnect) from error
    return domain


def identity(transport: Any) -> str | None:
    """Return the common name of the other side's certificate, which was checked."""
    return transport.ssl().get_cert_common_name() if transport.authenticated and transport.encrypted else None


def peer_of(connection: Any) -> str:
    """Return the address of the other side of a connection that came."""
    url = getattr(connection, "url", None)
    return f"{url.host}:{url.port}" if url is not None else "?"


def abort(connection: Any, reason: str) -> None:
    """Close a connection at once: there may be nobody who would answer a farewell."""
    transport = connection.transport
    _log.debug("connection from %s sent off: %s", peer_of(connection), reason)
    if transport is not None:
        transport.close_tail()
        transport.close_head()


class _Queue(LinkOption):  # type: ignore[misc]
    """Ask a broker for a queue: without it Artemis makes an unknown address a topic, and what is sent early is gone."""

    def apply(self, link: Any) -> None:
        link.source.capabilities.put_object(symbol("queue"))


class Decoder:
    """Takes AMQP messages apart; used again and again, as making one costs more than using it."""

    def __init__(self) -> None:
        self._message = Message()

    def __call__(self, data: bytes) -> tuple[Any, str, bytes]:
        """Return properties, content encoding and body; nothing that a batch decodes from when it is no AMQP message."""
        message = self._message
        try:
            message.decode(data)
            body = message.body
            # Binary is a view into memory that Proton frees.
            body = bytes(body) if isinstance(body, bytes | memoryview | bytearray) else b""
            return message.properties, str(message.content_encoding or ""), body
        except (ProtonException, UnicodeDecodeError, ValueError):
            _log.debug("a message could not be decoded", exc_info=True)
            return None, "", b""


def receive(container: Any, connection: Any, address: str, name: str) -> Any:
    """Attach a receiver of unsettled deliveries, and return its link."""
    return container.create_receiver(connection, address, name=name, options=[AtLeastOnce(), _Queue()])


def close(link: Any, condition: str, description: str) -> None:
    """Close a link with a reason."""
    link.condition = Condition(condition, description)
    link.close()


def release(delivery: Any) -> None:
    """Give a delivery back."""
    delivery.update(Delivery.RELEASED)
    delivery.settle()


def after(container: Any, seconds: float, action: Callable[[], None]) -> None:
    """Do something after some seconds."""
    container.schedule(seconds, _Timer(action))


class _Timer(Handler):  # type: ignore[misc]
    """Does something when a timer ends."""

    def __init__(self, action: Callable[[], None]) -> None:
        super().__init__()
        self._action = action

    def on_timer_task(self, _event: Any) -> None:
        self._action()
