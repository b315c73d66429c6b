"""What the receiver's thread does for each event of AMQP: connections, and through them links (bridge/amqp/links.py).

The same `Peer` answers edges that connect, and connects out to a router or broker. Everything here runs in the receiver's thread.
"""

import logging
from collections import deque
from collections.abc import Callable, Collection
from typing import Any

from bridge.amqp.authorization import shown
from bridge.amqp.certificate_reloader import CertificateReloader
from bridge.amqp.identities import Identities
from bridge.amqp.links import Links
from bridge.amqp.pending_connections import PendingConnections, key
from bridge.amqp.transport import (
    FRAME_BYTES,
    IDLE_TIMEOUT,
    SILENT,
    EndpointStateHandler,
    Handler,
    abort,
    after,
    peer_of,
)
from bridge.rate_limited_log import RateLimitedLog
from headrace.certificates import words
from headrace.configuration.bridge import Interconnect

_log = logging.getLogger(__name__)

_PARTING_SECONDS = 1.0
#: How often it is looked who has stayed too long, in seconds.
_TIDY_SECONDS = 1.0


class Peer(Handler):  # type: ignore[misc]
    """What the receiver's thread does for each event of Proton's."""

    def __init__(self, interconnect: Interconnect, sources: Collection[str], name: str) -> None:
        super().__init__()
        self.handlers = [EndpointStateHandler(False, self)]
        self.commands: deque[Callable[[], None]] = deque()
        self.container: Any = None
        self.injector: Any = None
        self.acceptor: Any = None
        self.awake: Callable[[], None] = lambda: None
        self.on_connected: Callable[[], None] = lambda: None
        self.pending = PendingConnections(abort)
        self._interconnect = interconnect
        self._reloader = CertificateReloader(interconnect, self._later)
        self._identities = Identities(
            interconnect.identities, demanded=interconnect.listen is not None and self._reloader.has_tls
        )
        self.links = Links(
            name,
            sources,
            credit=interconnect.credit,
            identities=self._identities,
            pending=self.pending,
            later=self._later,
        )
        self._url: str | None = None
        self._stranger = RateLimitedLog(_log.warning)
        self._name = name
        self._connections: list[Any] = []
        self._parting = False

    def attend(self, acceptor: Any) -> None:
        """Answer who comes through the acceptor; raise ConfigurationError when the certificates are of no use."""
        self.acceptor = acceptor
        self._reloader.apply(acceptor)
        self._later(_TIDY_SECONDS, self._tidy)

    def reach(self, url: str) -> None:
        """Attach to the sources' addresses at this interconnect."""
        self._url = url
        self._reloader.watch(self._connect_anew)

    def on_wake(self, _event: Any) -> None:
        """Do what other threads asked for."""
        self.awake()
        while self.commands:
            self.commands.popleft()()

    def part(self) -> None:
        """Close everything; the loop ends when all have answered, or do not in time."""
        self._parting = True
        self._reloader.end()
        self.links.part()
        if self.acceptor is not None:
            self.acceptor.close()
        for connection in list(self._connections):
            connection.close()
        self.injector.close()
        self._later(_PARTING_SECONDS if self._connections else 0.0, self.container.stop)

    def drop_all(self) -> None:
        """Forget all links: their connections are gone."""
        self.links.drop_all()
        self._connections.clear()

    def _tidy(self) -> None:
        if not self._parting:
            self.pending.expire()
            self._later(_TIDY_SECONDS, self._tidy)

    def _connect_anew(self) -> None:
        _log.info("the certificates for %s were renewed: connecting anew", shown(self._url))
        for connection in self._connections:
            connection.close()

    def _later(self, seconds: float, action: Callable[[], None]) -> None:
        after(self.container, seconds, action)

    # Connections.

    def on_connection_bound(self, event: Any) -> None:
        """Set what must be set before the first frame."""
        event.transport.idle_timeout = IDLE_TIMEOUT
        event.transport.max_frame_size = FRAME_BYTES
        if self._url is None:
            self.pending.add(key(event.connection), event.connection)
            # Proton would let in who skips SASL, and offer ANONYMOUS beside EXTERNAL.
            event.transport.require_auth(self._identities.demanded)
            event.transport.sasl().allowed_mechs("EXTERNAL" if self._identities.demanded else "ANONYMOUS")

    def on_connection_opening(self, event: Any) -> None:
        """Say who we are."""
        event.connection.container = self._name

    def on_connection_opened(self, event: Any) -> None:
        """Attach to the sources' addresses when we connected out."""
        self._connections.append(event.connection)
        self.on_connected()
        if self._url is not None:
            _log.info("connected to interconnect %s", shown(self._url))
            self.links.attach_by(self.container, event.connection)

    def on_connection_error(self, event: Any) -> None:
        """Say why the other side closed the connection."""
        _log.error("interconnect: connection closed by the other side: %s", _text(event.connection.remote_condition))

    def on_session_closing(self, event: Any) -> None:
        """Give up a connection whose session is closed: its links are gone without a word."""
        event.connection.close()

    on_session_error = on_session_closing

    def on_transport_error(self, event: Any) -> None:
        """Log why the connection was lost."""
        said = _text(event.transport.condition)
        if SILENT in said:
            # Proton would wait as long again until a close is written that nobody reads.
            event.transport.close_head()
        # OpenSSL has the same reasons for a handshake that failed and for a connection that was up.
        meaning = "" if event.connection in self._connections else words.meaning(said)
        if self._url is not None:
            explained = words.why(self._url, self._interconnect) if "verify failed" in said else meaning
            more = f"{explained} ({said})" if explained else said
            _log.warning("interconnect %s: connection lost: %s", shown(self._url), more)
        elif event.connection is not None:
            if "certificate verify failed" in said:
                said = f"its certificate has expired, or is of none of the authorities in {self._interconnect.authority} ({said})"
            elif meaning:
                said = f"{meaning} ({said})"
            self._stranger("connection from %s lost: %s", peer_of(event.connection), said)

    def on_transport_closed(self, event: Any) -> None:
        """Forget the links of a connection that is gone."""
        gone = event.connection
        self.pending.remove(key(gone))
        self.links.drop(gone)
        self._connections = [connection for connection in self._connections if connection != gone]
        if self._url is not None or (self._parting and not self._connections):
            # When connecting out, the loop outside makes a fresh container.
            self.injector.close()
            self.container.stop()

    # Links.

    def on_link_opening(self, event: Any) -> None:
        """Someone attaches."""
        if event.transport is not None:
            self.links.opening(event.link, event.transport)

    def on_link_opened(self, event: Any) -> None:
        """A link is up from both sides."""
        # Without a transport the connection was lost in the meantime, and the links of it were dropped already.
        if event.transport is not None:
            self.links.opened(event.link, event.transport)

    def on_link_error(self, event: Any) -> None:
        """The other side closed a link, and says why."""
        self.links.closing(event.link, _text(event.link.remote_condition))

    def on_link_closing(self, event: Any) -> None:
        """The other side closed a link without a reason."""
        self.links.closing(event.link, "")

    def on_delivery(self, event: Any) -> None:
        """Something came."""
        self.links.delivered(event.link, event.delivery)


def _text(condition: Any) -> str:
    return f"{condition.name}: {condition.description}" if condition is not None else "no reason given"
