"""A bridge's connection out to a router or broker, over which it attaches to its sources' addresses.

Links are the business of bridge/amqp/links.py. Everything runs in the receiver's thread.
"""

import logging
from collections.abc import Callable
from typing import Any

from bridge.amqp.links import LinkEvents, Links
from bridge.amqp.listener import FRAME_BYTES
from headrace.amqp.connection import Connection
from headrace.amqp.errors import Role, shown
from headrace.amqp.transport import EndpointStateHandler
from headrace.configuration.bridge import Interconnect

_log = logging.getLogger(__name__)

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
        _log.info("connecting to interconnect %s", shown(url))

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
        _log.info("connected to interconnect %s", shown(self.url))
        self.links.attach_by(self)

    def on_link_remote_close(self, _event: Any) -> None:
        """Go on: `on_link_error` and `on_link_closing` follow, and the source's link is attached again."""

    def on_transport_closed(self, event: Any) -> None:
        """Forget the links, and end."""
        self.links.drop(event.connection)
        super().on_transport_closed(event)
