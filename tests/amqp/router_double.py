"""A router as the bridge sees one when it connects out: it listens, lets receivers attach, and sends them what it was given."""

from collections.abc import Sequence
from typing import Any

from headrace.amqp.sockets import number_of
from headrace.amqp.transport import Condition, Delivery, Message
from tests.amqp.peer import Listener


class Router(Listener):
    """Sends messages by address to whoever receives from there, as credit allows; keeps the outcomes in order."""

    def __init__(self, messages: dict[str, Sequence[Message]], *, forbidden: str = "") -> None:
        super().__init__(prefetch=0, auto_settle=True)
        self._messages = messages
        self._forbidden = forbidden
        self._sent = dict.fromkeys(messages, 0)
        self._connections: list[Any] = []
        #: `accepted`, `released` ... by address, in the order in which they came.
        self.outcomes: dict[str, list[str]] = {address: [] for address in messages}
        #: How often somebody connected, and what a receiver asked of its source.
        self.connected = 0
        self.users: list[str] = []
        self.capabilities: list[str] = []
        self.start()

    def cut(self) -> None:
        """Drop every connection without a word."""
        self.do(self._cut)

    def _cut(self) -> None:
        for connection in self._connections:
            self.loop.sockets.all[number_of(connection.transport._impl)]._socket.shutdown(2)
        self._connections.clear()

    def stop(self) -> None:
        self._acceptor.close()
        for connection in self._connections:
            connection.close()
        self.loop.after(0.5, self.loop.stop)

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
