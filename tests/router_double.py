"""A router as the bridge sees one when it connects out: it listens, lets receivers attach, and sends them what it was given."""

import os
import threading
from collections.abc import Sequence
from typing import Any

from proton import Condition, Delivery, Message
from proton.handlers import MessagingHandler
from proton.reactor import ApplicationEvent, Container, EventInjector

from headrace.amqp.transport import Sockets


class Router(MessagingHandler):
    """Sends messages by address to whoever receives from there, as credit allows; keeps the outcomes in order."""

    def __init__(self, messages: dict[str, Sequence[Message]], *, forbidden: str = "") -> None:
        super().__init__(prefetch=0, auto_settle=True)
        self._messages = messages
        self._forbidden = forbidden
        self._sent = dict.fromkeys(messages, 0)
        self._links: dict[str, Any] = {}
        self._connections: list[Any] = []
        self._container = Container(self)
        # Ours: Proton's own knows too few descriptors, and fails where a connection ends when its time has come.
        self._container.global_handler.base = Sockets()
        self._acceptor = self._container.acceptor("127.0.0.1", 0)
        self._injector = EventInjector()
        self._container.selectable(self._injector)
        self.port = self._acceptor._selectable.getsockname()[1]
        #: `accepted`, `released` ... by address, in the order in which they came.
        self.outcomes: dict[str, list[str]] = {address: [] for address in messages}
        #: How often somebody connected, and what a receiver asked of its source.
        self.connected = 0
        self.users: list[str] = []
        self.capabilities: list[str] = []
        self._thread = threading.Thread(target=self._container.run, daemon=True)
        self._thread.start()

    def cut(self) -> None:
        """Drop every connection without a word."""
        self._injector.trigger(ApplicationEvent("cut"))

    def close(self) -> None:
        """End."""
        self._injector.trigger(ApplicationEvent("end"))
        self._thread.join(60)
        assert not self._thread.is_alive(), "the router does not end"
        for end in self._injector.pipe:
            os.close(end)

    def on_cut(self, event: Any) -> None:
        for connection in self._connections:
            connection.transport._selectable._delegate.shutdown(2)
        self._connections.clear()

    def on_end(self, event: Any) -> None:
        self._acceptor.close()
        for connection in self._connections:
            connection.close()
        self._injector.close()
        self._container.schedule(0.5, self)

    def on_timer_task(self, event: Any) -> None:
        self._container.stop()

    def on_connection_opened(self, event: Any) -> None:
        self.connected += 1
        self.users.append(event.transport.user)
        self._connections.append(event.connection)

    def on_link_opening(self, event: Any) -> None:
        link = event.link
        if link.remote_source.address != self._forbidden:
            link.source.copy(link.remote_source)
            link.target.copy(link.remote_target)

    def on_link_opened(self, event: Any) -> None:
        link = event.link
        if link.remote_source.address == self._forbidden:
            link.condition = Condition("amqp:unauthorized-access", "not for you")
            link.close()
            return
        capabilities = link.remote_source.capabilities
        if capabilities.next():
            self.capabilities.append(str(capabilities.get_object()))

    def on_sendable(self, event: Any) -> None:
        link = event.sender
        address = link.source.address
        waiting = self._messages.get(address, ())
        while link.credit > 0 and self._sent.get(address, 0) < len(waiting):
            link.send(waiting[self._sent[address]])
            self._sent[address] += 1

    def on_settled(self, event: Any) -> None:
        states = {Delivery.ACCEPTED: "accepted", Delivery.RELEASED: "released", Delivery.REJECTED: "rejected"}
        self.outcomes[event.link.source.address].append(states.get(event.delivery.remote_state, "other"))

    def on_disconnected(self, event: Any) -> None:
        # What was on the way is sent again to the next receiver, as the edge behind a router would.
        for address, outcomes in self.outcomes.items():
            self._sent[address] = len(outcomes)
