"""The receiver: a thread that speaks AMQP 1.0 for all sources, and what their threads may ask of it.

It listens for edges, or connects out to a router or broker, by several addresses in turn, and does so again, with growing
pauses, when that is lost. Sources talk to it by tickets, from their own threads; it is woken once for all that waits. Made,
started and stopped by the bridge.

A bridge's connection out to a router or broker, over which it attaches to its sources' addresses.

Links are the business of bridge/amqp/links.py. Everything runs in the receiver's thread.
"""

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Any

from bridge.amqp.authorization import Identities
from bridge.amqp.connections import PendingConnections
from bridge.amqp.links import LinkEvents, Links
from bridge.amqp.listener import FRAME_BYTES, Listener
from bridge.amqp.request_links import Received
from bridge.deliveries.outbox import Outbox
from bridge.model.delivery import Granted, Outcome
from bridge.requests.pending import PendingRequests
from headrace.amqp.connection import Connection, Connector
from headrace.amqp.errors import Role, hide_password
from headrace.amqp.security import abort
from headrace.amqp.transport import EndpointStateHandler, Loop
from headrace.configuration.bridge import Interconnect
from headrace.errors import ConfigurationError, ReplicationError

_ROLE = Role("bridge", "receive from")


class Outgoing(LinkEvents, Connection):
    """One such connection, from the attempt to its end."""

    def __init__(
        self, interconnect: Interconnect, url: str, links: Links, name: str, connected: Callable[[bool], None]
    ) -> None:
        LinkEvents.__init__(self, links)
        Connection.__init__(self, interconnect, url, name, _ROLE, frame_bytes=FRAME_BYTES)
        self.handlers = [EndpointStateHandler(False, self)]
        #: Called when it is up, and when it is not any more.
        self._connected = connected
        _log.info("connecting to interconnect %s", hide_password(url))

    def attach(self) -> None:
        """Do what was asked for while there was no connection; links are attached once the other side has answered."""
        self.loop.wake()

    def on_wake(self) -> None:
        """Do what other threads asked for, then close if that was asked for."""
        LinkEvents.on_wake(self)
        Connection.on_wake(self)

    def ended(self) -> None:
        """Forget all links."""
        self._connected(False)
        self.links.drop_all()

    def on_connection_opened(self, _event: Any) -> None:
        """Attach to the sources' addresses."""
        self.worked = True
        self._connected(True)
        _log.info("connected to interconnect %s", hide_password(self.url))
        self.links.attach_by(self)

    def on_link_remote_close(self, _event: Any) -> None:
        """Go on: `on_link_error` and `on_link_closing` follow, and the source's link is attached again."""

    def on_transport_closed(self, event: Any) -> None:
        """Forget the links, and end."""
        self.links.drop(event.connection)
        super().on_transport_closed(event)


_log = logging.getLogger(__name__)


class Receiver:
    """Takes deliveries to the sources' inboxes and outcomes back; implements `Deliverer`."""

    def __init__(self, interconnect: Interconnect, sources: Collection[str], name: str) -> None:
        self._interconnect = interconnect
        self._name = name
        self._identities = Identities(
            interconnect.identities,
            demanded=interconnect.listen is not None
            and (interconnect.certificate is not None or interconnect.authority is not None),
        )
        #: Connections without a link in use yet.
        self.pending = PendingConnections(abort)
        self.links = Links(
            name,
            sources,
            credit=interconnect.credit,
            identities=self._identities,
            pending=self.pending,
            later=self._later,
        )
        #: The loop of the present connection, or of all that were accepted.
        self._loop: Loop | None = None
        self._listener: Listener | None = None
        self._thread = threading.Thread(target=self._listen, name="receiver", daemon=True)
        self._connector = Connector(interconnect.urls, self._connection, self._failed, name="receiver", tolerant=True)
        #: An unexpected error; the bridge ends with it.
        self.failure: BaseException | None = None
        #: The port that edges connect to; 0 when the bridge connects out.
        self.port = 0
        #: Whether edges can connect, or the interconnect that is connected out to answers.
        self.connected = False

    def start(self) -> None:
        """Start to listen, or to connect out; raise ConfigurationError when the address cannot be listened on."""
        if self._interconnect.listen is None:
            self._connector.start()
            return
        host, _, port = self._interconnect.listen.rpartition(":")
        host = host or "0.0.0.0"
        self._listener = Listener(self._interconnect, self._identities, self.links, self.pending, self._name)
        self._loop = self._listener.loop
        try:
            self.port = self._listener.listen(host, int(port))
        except OSError as error:
            raise ConfigurationError(
                f"cannot listen on {self._interconnect.listen}: {error.strerror or error}",
                hint="Choose another address in [interconnect] listen, or stop who has it.",
            ) from error
        self._set_connected(True)
        _log.info("listening for edges on %s:%s", host, self.port)
        if self._interconnect.certificate is None and not host.startswith("127."):
            _log.warning("the interconnect has no TLS and takes whoever reaches the port: see docs/security.md")
        # For what was asked for before.
        self._loop.wake()
        self._thread.start()

    def stop(self, seconds: float) -> None:
        """Send the outcomes given until now, close all links, and end within `seconds`."""
        self._call(self.links.part)
        if self._listener is not None:
            self._call(self._listener.close)
        self._connector.stop(seconds)
        if self._thread.is_alive():
            self._thread.join(seconds)

    def settle(self, outcomes: list[tuple[int, Outcome]]) -> None:
        """Settle deliveries by ticket; a ticket whose link is gone is passed over."""
        if outcomes:
            self._call(partial(self.links.credit.settle, outcomes))

    def grant(self, session: Granted) -> None:
        """Let the source's edge send to a session."""
        self._call(partial(self.links.credit.grant, session))

    def revoke(self, session: Granted) -> None:
        """Give the session's edge no credit beyond what it has."""
        self._call(partial(self.links.credit.revoke, session))

    def deliver(self, outboxes: Sequence[Outbox]) -> None:
        """Send what these outboxes have, from the start on."""
        self.links.deliveries.outboxes = outboxes

    def send(self, outbox: Outbox, addresses: Iterable[str]) -> None:
        """Send what an outbox has for some addresses."""
        # Otherwise all of it is sent with the next connection.
        if self.connected:
            self._call(partial(self.links.deliveries.send, outbox, list(addresses)))

    def carry(self, pending: PendingRequests, received: Received) -> None:
        """Carry requests to edges from the start on; `received` takes parts of answers in, in the receiver's thread."""
        self.links.requests.carry(pending, received)

    def send_requests(self, addresses: list[str], sources: list[str]) -> None:
        """Send requests that wait for some addresses, and be there for the answers of some sources."""
        # Otherwise all of it is sent with the next connection.
        if self.connected:
            self._call(partial(self.links.requests.send, addresses, sources))

    def settle_answer(self, ticket: int, outcome: Outcome) -> None:
        """Settle a part of an answer."""
        self._call(partial(self.links.requests.settle, ticket, outcome))

    def refuse(self, source: str, condition: str, description: str) -> None:
        """Close the source's link, and any that comes later, with an error that the edge can show."""
        self._call(partial(self.links.refuse, source, condition, description))

    def admit(self, source: str) -> None:
        """Take the source's links again that `refuse` closed."""
        self._call(partial(self.links.admit, source))

    def use(self, sources: Collection[str], interconnect: Interconnect) -> None:
        """Go on with the sources of a changed file, and with who may send for them."""
        # First, so that links are judged by it.
        self._identities.use(interconnect.identities)
        self._call(partial(self.links.use, sources))

    def _call(self, command: Callable[[], None]) -> None:
        """Have a command done in the receiver's thread; between two connections it waits for the next."""
        self.links.commands.append(command)
        loop = self._loop
        if loop is not None:
            loop.wake()

    def _later(self, seconds: float, action: Callable[[], None]) -> None:
        if self._loop is not None:
            self._loop.after(seconds, action)

    def _listen(self) -> None:
        try:
            if self._listener is not None:
                self._listener.run()
        except Exception as error:  # noqa: BLE001 - the bridge ends with it.
            self._failed(error)

    def _connection(self, url: str) -> Outgoing:
        connection = Outgoing(self._interconnect, url, self.links, self._name, self._set_connected)
        self._loop = connection.loop
        return connection

    def _set_connected(self, connected: bool) -> None:
        self.connected = connected

    def _failed(self, error: Exception) -> None:
        if not isinstance(error, ReplicationError):
            _log.error("unexpected error", exc_info=error)
        self.failure = error
