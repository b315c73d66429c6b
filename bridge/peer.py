"""What the receiver's thread does for each event of AMQP: connections, links, deliveries.

One link per source is alive: the newest. A link is its source's own by the client's certificate. The same `Peer` answers edges
that connect, and attaches to a router or broker that the bridge connects out to. Everything here runs in the receiver's thread.
"""

import logging
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from bridge.address import PREFIX, refusal, shown
from bridge.amqp import (
    FRAME_BYTES,
    IDLE_TIMEOUT,
    Decoder,
    EndpointStateHandler,
    Handler,
    after,
    close,
    identity,
    peer_of,
    receive,
    release,
    send_off,
    server_trust,
    settle,
)
from bridge.feeds import Feed, Feeds
from bridge.guests import Guests, Seldom
from bridge.identities import Identities
from bridge.inbox import Inbox
from headrace.certificates import files, words
from headrace.configuration.bridge import Interconnect
from headrace.errors import ConfigurationError

_log = logging.getLogger(__name__)

#: A larger message is refused before it is read, in bytes: ordinary batches have 64 kB.
_LARGEST_MESSAGE = 64 * 1024 * 1024
_PARTING_SECONDS = 1.0
_ATTACH_AGAIN_SECONDS = 5.0
#: How often it is looked whether the certificates were renewed, and who has stayed too long, in seconds.
CERTIFICATE_SECONDS = 30.0
_TIDY_SECONDS = 1.0


class Peer(Handler):  # type: ignore[misc]
    """What the receiver's thread does for each event of Proton's."""

    def __init__(self, interconnect: Interconnect, inboxes: Mapping[str, Inbox], name: str) -> None:
        super().__init__()
        self.handlers = [EndpointStateHandler(False, self)]
        self.commands: deque[Callable[[], None]] = deque()
        self.container: Any = None
        self.injector: Any = None
        self.acceptor: Any = None
        self.awake: Callable[[], None] = lambda: None
        self.on_connected: Callable[[], None] = lambda: None
        self.feeds = Feeds(inboxes, interconnect.credit, settle, self._later)
        self.guests = Guests(send_off)
        self._interconnect = interconnect
        self._identities = Identities(
            interconnect.identities, demanded=interconnect.listen is not None and _tls(interconnect)
        )
        self._url: str | None = None
        self._tls: Any = None
        self._stamp = files.stamp(interconnect)
        self._stranger = Seldom(_log.warning)
        self._refusal = Seldom(_log.warning)
        self._sources = inboxes
        self._name = name
        self._refused: dict[str, tuple[str, str]] = {}
        self._decode = Decoder()
        self._connections: list[Any] = []
        self._attached = 0
        self._parting = False

    def attend(self, acceptor: Any) -> None:
        """Answer who comes through the acceptor; raise ConfigurationError when the certificates are of no use."""
        self.acceptor = acceptor
        if _tls(self._interconnect):
            self._tls = server_trust(self._interconnect)
            acceptor.set_ssl_domain(self._tls)
            self._later(CERTIFICATE_SECONDS, self._renew)
        self._later(_TIDY_SECONDS, self._tidy)

    def reach(self, url: str) -> None:
        """Attach to the sources' addresses at this interconnect."""
        self._url = url
        self._stamp = files.stamp(self._interconnect)
        if _tls(self._interconnect):
            self._later(CERTIFICATE_SECONDS, self._renew)

    def on_wake(self, _event: Any) -> None:
        """Do what other threads asked for."""
        self.awake()
        while self.commands:
            self.commands.popleft()()

    def refuse(self, source: str, condition: str, description: str) -> None:
        """Close a source's link, and every one that comes, until it is admitted."""
        self._refused[source] = (condition, description)
        feed = self.feeds.of(source)
        if feed is not None:
            self._close(feed, condition, description)

    def admit(self, source: str) -> None:
        """Take a source's links again; where the bridge connected out, attach to its address."""
        self._refused.pop(source, None)
        if self._url is not None and self.feeds.of(source) is None:
            self._attach(source)

    def part(self) -> None:
        """Close everything; the loop ends when all have answered, or do not in time."""
        self._parting = True
        self.feeds.forbid_all()
        if self.acceptor is not None:
            self.acceptor.close()
        for connection in list(self._connections):
            connection.close()
        self.injector.close()
        self._later(_PARTING_SECONDS if self._connections else 0.0, self.container.stop)

    def drop_all(self) -> None:
        """Forget all links: their connections are gone."""
        for feed in self.feeds.all():
            self.feeds.drop(feed)
        self._connections.clear()

    def _tidy(self) -> None:
        if not self._parting:
            self.guests.tidy()
            self._later(_TIDY_SECONDS, self._tidy)

    def _renew(self) -> None:
        """Use certificates that were renewed: for those who come, or by connecting anew."""
        stamp = files.stamp(self._interconnect)
        if self._parting:
            return
        if stamp != self._stamp:
            if self._url is not None:
                _log.info("the certificates for %s were renewed: connecting anew", shown(self._url))
                for connection in self._connections:
                    connection.close()
                return
            try:
                self._tls = server_trust(self._interconnect)
            except ConfigurationError as error:
                # Files are replaced one after the other: soon they fit each other again.
                _log.warning("the former certificates stay in use: %s", error.message)
            else:
                self.acceptor.set_ssl_domain(self._tls)
                self._stamp = stamp
                _log.info("the certificates were renewed: who connects from now on is shown the new ones")
        self._later(CERTIFICATE_SECONDS, self._renew)

    def _later(self, seconds: float, action: Callable[[], None]) -> None:
        after(self.container, seconds, action)

    # Connections.

    def on_connection_bound(self, event: Any) -> None:
        """Set what must be set before the first frame."""
        event.transport.idle_timeout = IDLE_TIMEOUT
        event.transport.max_frame_size = FRAME_BYTES
        if self._url is None:
            self.guests.came(_key(event.connection), event.connection)
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
            for source in self._sources:
                self._attach(source)

    def on_connection_error(self, event: Any) -> None:
        """Say why the other side closed the connection."""
        _log.error("interconnect: connection closed by the other side: %s", _text(event.connection.remote_condition))

    def on_session_closing(self, event: Any) -> None:
        """Give up a connection whose session is closed: its links are gone without a word."""
        event.connection.close()

    on_session_error = on_session_closing

    def on_transport_error(self, event: Any) -> None:
        """Say why the connection was lost."""
        said = _text(event.transport.condition)
        if self._url is not None:
            explained = words.why(self._url, self._interconnect) if "verify failed" in said else words.meaning(said)
            more = f"{explained} ({said})" if explained else said
            _log.warning("interconnect %s: connection lost: %s", shown(self._url), more)
        elif event.connection is not None:
            if "certificate verify failed" in said:
                said = f"its certificate has expired, or is of none of the authorities in {self._interconnect.authority} ({said})"
            elif words.meaning(said):
                said = f"{words.meaning(said)} ({said})"
            self._stranger("connection from %s lost: %s", peer_of(event.connection), said)

    def on_transport_closed(self, event: Any) -> None:
        """Forget the links of a connection that is gone."""
        gone = event.connection
        self.guests.left(_key(gone))
        for feed in self.feeds.all():
            if feed.link.connection == gone:
                _log.info("%s: link lost", feed.source)
                self.feeds.drop(feed)
        self._connections = [connection for connection in self._connections if connection != gone]
        if self._url is not None or (self._parting and not self._connections):
            # When connecting out, the loop outside makes a fresh container.
            self.injector.close()
            self.container.stop()

    # Links.

    def on_link_opening(self, event: Any) -> None:
        """Someone attaches: take its addresses over, unless it is refused, which a target left empty says."""
        link = event.link
        who = identity(event.transport) if self._identities.demanded else None
        reason = refusal(link, self._sources, self._refused, who, self._identities)
        if reason is not None:
            link.refusal = reason
            return
        link.source.copy(link.remote_source)
        link.target.copy(link.remote_target)
        link.max_message_size = _LARGEST_MESSAGE
        link.fed = link.remote_target.address.removeprefix(PREFIX)

    def on_link_opened(self, event: Any) -> None:
        """Take a link into use, or close it when it was refused."""
        link = event.link
        reason = getattr(link, "refusal", None)
        if reason is not None:
            address = (link.remote_source if link.is_sender else link.remote_target).address
            self._refusal(
                "link to %r from %s, %r, refused: %s: %s",
                str(address or "")[:100],
                peer_of(link.connection),
                identity(event.transport) or "without a certificate",
                *reason,
            )
            close(link, *reason)
            return
        source = getattr(link, "fed", None)
        # A link without a source of its own is about to be closed by the other side.
        if source is None or (self._url is not None and link.remote_source.address is None):
            return
        former = self.feeds.of(source)
        if former is not None:
            self._close(former, "amqp:link:stolen", f"a newer link for {source} was attached")
        _log.info("%s: link up, from %s", source, link.connection.remote_container or "a nameless container")
        self.guests.left(_key(link.connection))
        self.feeds.open(source, link)

    def on_link_error(self, event: Any) -> None:
        """Say why the other side closed a link."""
        said = "%s: link closed by the other side: %s. Check what the interconnect allows this bridge to receive."
        _log.error(said, getattr(event.link, "fed", "?"), _text(event.link.remote_condition))
        self._lost(event.link)

    def on_link_closing(self, event: Any) -> None:
        """Note that the other side closed a link without a reason."""
        _log.info("%s: link closed by the other side", getattr(event.link, "fed", "?"))
        self._lost(event.link)

    def _attach(self, source: str) -> None:
        if source in self._refused or not self._connections or self._parting:
            return
        self._attached += 1
        address = PREFIX + source
        name = f"{self._name}/{address}/{self._attached}"
        link = receive(self.container, self._connections[0], address, name)
        link.fed = source

    def _lost(self, link: Any) -> None:
        source = getattr(link, "fed", None)
        feed = self.feeds.of(source or "")
        if feed is not None and feed.link == link:
            self.feeds.drop(feed)
        if self._url is not None and source is not None:
            self._later(_ATTACH_AGAIN_SECONDS, partial(self._attach, source))

    def _close(self, feed: Feed, condition: str, description: str) -> None:
        self.feeds.drop(feed)
        close(feed.link, condition, description)

    # Deliveries.

    def on_delivery(self, event: Any) -> None:
        """Pass a delivery on to its source once it is complete."""
        link, delivery = event.link, event.delivery
        if not link.is_receiver:
            return
        if delivery.aborted:
            delivery.settle()
        elif delivery.readable and not delivery.partial:
            data = link.recv(delivery.pending)
            link.advance()
            feed = self.feeds.of(getattr(link, "fed", ""))
            if feed is not None and feed.link == link:
                self.feeds.received(feed, delivery, *self._decode(data))
            else:
                # Of a link that a newer one has replaced.
                release(delivery)


def _tls(interconnect: Interconnect) -> bool:
    return interconnect.certificate is not None or interconnect.authority is not None


def _key(connection: Any) -> int:
    # Proton makes a new object for the same connection now and then; its C object stays.
    return hash(connection)


def _text(condition: Any) -> str:
    return f"{condition.name}: {condition.description}" if condition is not None else "no reason given"
