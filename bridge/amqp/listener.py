"""Accepts connections, of edges that connect to a bridge without a router between: TLS, who is let in, and their ends.

Links are the business of bridge/amqp/links.py. Everything runs in the receiver's thread.
"""

import logging
from typing import Any

from bridge.amqp.authorization import Identities
from bridge.amqp.connections import OpenConnections, PendingConnections, key
from bridge.amqp.links import LinkEvents, Links
from headrace import doors
from headrace.amqp import transport
from headrace.amqp.errors import described
from headrace.amqp.security import CertificateWatch, abort, close_silent, name_of, peer_of, server_trust
from headrace.amqp.transport import Acceptor, Condition, EndpointStateHandler, Loop
from headrace.certificates import files
from headrace.configuration.bridge import Interconnect
from headrace.logs import RateLimitedLog

_log = logging.getLogger(__name__)

FRAME_BYTES = 64 * 1024
#: Seconds that edges may take to answer a close.
_CLOSE_SECONDS = 1.0
#: Seconds between two checks for connections that stay pending for too long.
_EXPIRE_SECONDS = 1.0
#: Sessions that a connection may have at once, less one; ours have one.
_SESSIONS = 15


class Listener(LinkEvents):
    """What is done for each event of accepted connections."""

    def __init__(
        self, interconnect: Interconnect, identities: Identities, links: Links, pending: PendingConnections, name: str
    ) -> None:
        super().__init__(links)
        self.handlers = [EndpointStateHandler(False, self)]
        self.loop = Loop(self, name)
        self._name = name
        self._interconnect = interconnect
        self._identities = identities
        self._pending = pending
        self._certificates = CertificateWatch(interconnect)
        self._lost = RateLimitedLog(_log.warning)
        self._connections = OpenConnections(pending, abort, self._have_come_again)
        self._acceptor: Acceptor | None = None
        self._closing = False

    def listen(self, host: str, port: int) -> int:
        """Accept connections, once the loop runs, and return the port.

        Raises OSError when the address is not available, ConfigurationError when the certificates are not usable.
        """
        self._acceptor = acceptor = self.loop.listen(host, port)
        if self._certificates.has_files:
            acceptor.set_ssl_domain(server_trust(self._interconnect))
            self._certificates.start(self.loop.after, self._renew)
        self.loop.after(_EXPIRE_SECONDS, self._expire)
        return acceptor.port

    def run(self) -> None:
        """Run until `close`."""
        try:
            self.loop.run()
        finally:
            self.loop.close()

    def close(self) -> None:
        """Close everything; the loop ends when all have answered, or do not in time. Called in the loop's thread."""
        self._closing = True
        self._certificates.stop()
        if self._acceptor is not None:
            self._acceptor.close()
        for connection in self._connections:
            connection.close()
        self.loop.after(_CLOSE_SECONDS if self._connections else 0.0, self.loop.stop)

    def _renew(self) -> None:
        if self._acceptor is not None:
            self._acceptor.set_ssl_domain(server_trust(self._interconnect))
            _log.info("the certificates were renewed: who connects from now on is shown the new ones")

    def _expire(self) -> None:
        if not self._closing:
            self._connections.look(self.links.uses, ends=self._identities.demanded)
            self._pending.expire()
            self.loop.after(_EXPIRE_SECONDS, self._expire)

    def _have_come_again(self, connection: Any) -> None:
        """Close a connection whose other side has to show its certificate again."""
        self.links.drop(connection)
        connection.condition = Condition("amqp:connection:forced", "certificates are looked at again every day")
        connection.close()
        # Whoever does not answer may not send on.
        self.loop.after(_CLOSE_SECONDS, lambda: abort(connection, "it did not answer a close"))

    def refused(self, event: Any, error: Exception) -> None:
        """Close a connection whose other side sent what cannot be processed."""
        connection = event.connection
        doors.AMQP.refuse(error, name_of(connection))
        if connection is not None:
            abort(connection, "it sent what cannot be processed")

    # What Proton calls.

    def on_connection_bound(self, event: Any) -> None:
        """Set what must be set before the first frame."""
        event.transport.idle_timeout = transport.IDLE_SECONDS
        event.transport.max_frame_size = FRAME_BYTES
        event.transport.channel_max = _SESSIONS
        self.loop.sockets.expect(event.transport)
        if not self._pending.add(key(event.connection), event.connection):
            return
        # Proton would let in who skips SASL, and offer ANONYMOUS in addition to EXTERNAL.
        event.transport.require_auth(self._identities.demanded)
        event.transport.sasl().allowed_mechs("EXTERNAL" if self._identities.demanded else "ANONYMOUS")

    def on_connection_opening(self, event: Any) -> None:
        """Name this bridge."""
        event.connection.container = self._name

    def on_connection_opened(self, event: Any) -> None:
        """Note a connection that is up: its handshakes are over."""
        self.loop.sockets.know(event.transport)
        self._connections.add(key(event.connection), event.connection)

    def on_connection_error(self, event: Any) -> None:
        """Log why the other side closed the connection."""
        text = described(event.connection.remote_condition)
        _log.error("interconnect: connection closed by the other side: %s", text)

    def on_session_closing(self, event: Any) -> None:
        """Give up a connection whose session is closed: its links are gone without an event."""
        event.connection.close()

    on_session_error = on_session_closing

    def on_transport_error(self, event: Any) -> None:
        """Log why the connection was lost."""
        text = described(event.transport.condition)
        close_silent(event.transport)
        if event.connection is None:
            return
        # OpenSSL has the same reasons for a handshake that failed and for a connection that was up.
        meaning = "" if key(event.connection) in self._connections else files.meaning(text)
        if "certificate verify failed" in text:
            authority = self._interconnect.authority
            text = f"its certificate has expired, is not valid yet, or is of none of the authorities in {authority} ({text})"
        elif meaning:
            text = f"{meaning} ({text})"
        self._lost("connection from %s lost: %s", peer_of(event.connection), text)

    def on_transport_closed(self, event: Any) -> None:
        """Forget the links of a connection that is gone."""
        gone = event.connection
        self._connections.remove(key(gone))
        self._pending.remove(key(gone))
        self.links.drop(gone)
        if self._closing and not self._connections:
            self.loop.stop()
