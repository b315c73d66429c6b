"""AMQP 1.0, by Proton: what the receiver's thread does for each event. The one module of the bridge that imports Proton.

Nothing is accepted by itself and credit is given by hand. One link per source is alive: the newest. The same `Peer` answers
edges that connect, and attaches to a router or broker that the bridge connects out to. Everything here runs in the receiver's
thread, but for `Loop.wake`.
"""

import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from proton import Condition, Delivery, Handler, Message, ProtonException, symbol
from proton.handlers import EndpointStateHandler
from proton.reactor import ApplicationEvent, AtLeastOnce, Container, EventInjector, LinkOption

from bridge.address import PREFIX, refusal, shown
from bridge.delivery import Accept, Outcome, Reject
from bridge.feeds import Feed, Feeds
from bridge.inbox import Inbox
from headrace.configuration.bridge import Interconnect

_log = logging.getLogger(__name__)
# Proton's own lines are for --verbose: what matters of them is said here, in our words.
logging.getLogger("proton").addFilter(lambda _record: logging.getLogger().isEnabledFor(logging.DEBUG))

#: A peer that is silent for so long is gone, in seconds.
_IDLE_TIMEOUT = 10.0
_FRAME_BYTES = 64 * 1024
#: A larger message is refused before it is read, in bytes: ordinary batches have 64 kB.
_LARGEST_MESSAGE = 64 * 1024 * 1024
_PARTING_SECONDS = 1.0
_ATTACH_AGAIN_SECONDS = 5.0


class Loop:
    """One run of Proton's loop over a peer, which any thread can wake."""

    def __init__(self, peer: "Peer", name: str) -> None:
        self._peer = peer
        self._container = Container(peer, container_id=name)
        self._injector = EventInjector()
        self._container.selectable(self._injector)
        self._lock = threading.Lock()
        self._woken = False
        self._over = False
        peer.container, peer.injector, peer.awake = self._container, self._injector, self._awake

    def listen(self, host: str, port: int) -> int:
        """Accept connections, once the loop runs, and return the port; raise OSError when the address cannot be had."""
        acceptor = self._container.acceptor(host, port)
        self._peer.acceptor = acceptor
        return int(acceptor._selectable.getsockname()[1])  # noqa: SLF001 - Proton has no public way to ask.

    def connect(self, interconnect: Interconnect) -> None:
        """Connect out, once the loop runs; a connection that is lost ends the loop."""
        user, password = interconnect.user, interconnect.password
        self._container.connect(
            interconnect.url,
            reconnect=False,
            heartbeat=_IDLE_TIMEOUT,
            max_frame_size=_FRAME_BYTES,
            allowed_mechs="PLAIN" if user else "ANONYMOUS",
            # Without TLS a password crosses the wire as it is: the choice of amqp:// is the operator's.
            allow_insecure_mechs=True,
            **({"user": user} if user else {}),
            **({"password": password.reveal()} if password else {}),
        )

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

    def wake(self) -> None:
        """Have the peer do the commands that wait, soon: once for all of them."""
        with self._lock:
            if not self._woken and not self._over:
                self._woken = True
                self._injector.trigger(ApplicationEvent("wake"))

    def _awake(self) -> None:
        with self._lock:
            self._woken = False


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
        self.feeds = Feeds(inboxes, interconnect.credit, _settle, self._later)
        self._url = interconnect.url
        self._sources = inboxes
        self._name = name
        self._refused: dict[str, tuple[str, str]] = {}
        self._message = Message()
        self._connections: list[Any] = []
        self._attached = 0
        self._parting = False

    def on_wake(self, _event: Any) -> None:
        """Do what other threads asked for."""
        self.awake()
        while self.commands:
            self.commands.popleft()()

    def refuse(self, source: str, condition: str, description: str) -> None:
        """Close a source's link, and every one that comes, for good."""
        self._refused[source] = (condition, description)
        feed = self.feeds.of(source)
        if feed is not None:
            self._close(feed, condition, description)

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

    def _later(self, seconds: float, action: Callable[[], None]) -> None:
        self.container.schedule(seconds, _Timer(action))

    # Connections.

    def on_connection_bound(self, event: Any) -> None:
        """Set what must be set before the first frame."""
        event.transport.idle_timeout = _IDLE_TIMEOUT
        event.transport.max_frame_size = _FRAME_BYTES

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
        _log.warning("interconnect: connection lost: %s", _text(event.transport.condition))

    def on_transport_closed(self, event: Any) -> None:
        """Forget the links of a connection that is gone."""
        gone = event.connection
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
        reason = refusal(link, self._sources, self._refused)
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
            _log.warning("link refused: %s: %s", *reason)
            link.condition = Condition(*reason)
            link.close()
            return
        source = getattr(link, "fed", None)
        # A link without a source of its own is about to be closed by the other side.
        if source is None or (self._url is not None and link.remote_source.address is None):
            return
        former = self.feeds.of(source)
        if former is not None:
            self._close(former, "amqp:link:stolen", f"a newer link for {source} was attached")
        _log.info("%s: link up, from %s", source, link.connection.remote_container or "a nameless container")
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
        options = [AtLeastOnce(), _Queue()]
        link = self.container.create_receiver(self._connections[0], address, name=name, options=options)
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
        feed.link.condition = Condition(condition, description)
        feed.link.close()

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
                delivery.update(Delivery.RELEASED)
                delivery.settle()

    def _decode(self, data: bytes) -> tuple[Any, str, bytes]:
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


def _settle(delivery: Any, outcome: Outcome) -> None:
    if isinstance(outcome, Accept):
        delivery.update(Delivery.ACCEPTED)
    elif isinstance(outcome, Reject):
        delivery.local.condition = Condition(outcome.condition, outcome.description)
        delivery.update(Delivery.REJECTED)
    else:
        delivery.update(Delivery.RELEASED)
    delivery.settle()


class _Queue(LinkOption):  # type: ignore[misc]
    """Ask a broker for a queue: without it Artemis makes an unknown address a topic, and what is sent early is gone."""

    def apply(self, link: Any) -> None:
        link.source.capabilities.put_object(symbol("queue"))


class _Timer(Handler):  # type: ignore[misc]
    """Does something when a timer ends."""

    def __init__(self, action: Callable[[], None]) -> None:
        super().__init__()
        self._action = action

    def on_timer_task(self, _event: Any) -> None:
        self._action()


def _text(condition: Any) -> str:
    return f"{condition.name}: {condition.description}" if condition is not None else "no reason given"
