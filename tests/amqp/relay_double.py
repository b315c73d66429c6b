"""A router or broker as a sending bridge sees one: it listens, takes senders, and gives credit and outcomes as the test says."""

import os
import threading
from typing import Any

from proton import Condition
from proton.handlers import MessagingHandler
from proton.reactor import ApplicationEvent, Container, EventInjector

from tests.amqp.branch import OUTCOMES


class Relay(MessagingHandler):
    """Keeps (address, id, outcome) of what came, in order."""

    def __init__(self, *, forbidden: str = "", credit: int = 20) -> None:
        super().__init__(prefetch=0, auto_accept=False)
        self.came: list[tuple[str, str, str]] = []
        self.attached: list[str] = []
        self.capabilities: list[str] = []
        #: An address that is refused; and what is done with the next messages, before they are accepted.
        self.forbidden = forbidden
        self.next: list[str] = []
        self._credit = credit
        self._links: list[Any] = []
        self._container = Container(self)
        self._acceptor = self._container.acceptor("127.0.0.1", 0)
        self.port = self._acceptor._selectable.getsockname()[1]
        self._injector = EventInjector()
        self._container.selectable(self._injector)
        self._thread = threading.Thread(target=self._container.run, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"amqp://127.0.0.1:{self.port}"

    def accepted(self, address: str) -> list[str]:
        """Return the ids that were accepted of an address, by their first copies, in order."""
        return list(
            dict.fromkeys(number for each, number, outcome in list(self.came) if (each, outcome) == (address, "accept"))
        )

    def cut(self) -> None:
        """Drop every connection."""
        self._injector.trigger(ApplicationEvent("cut"))

    def detach(self) -> None:
        """Close every link without an error, as a router does after a policy violation."""
        self._injector.trigger(ApplicationEvent("detach"))

    def close(self) -> None:
        self._injector.trigger(ApplicationEvent("end"))
        self._thread.join(60)
        assert not self._thread.is_alive(), "the relay does not end"
        for end in self._injector.pipe:
            os.close(end)
        self._container.stop_events()

    def on_link_opening(self, event: Any) -> None:
        link = event.link
        link.source.copy(link.remote_source)
        if link.is_sender:
            # Of a source, for which nothing comes here.
            return
        self.attached.append(link.remote_target.address)
        capabilities = link.remote_target.capabilities
        if capabilities.next():
            self.capabilities.append(str(capabilities.get_object()))
        if link.remote_target.address != self.forbidden:
            link.target.copy(link.remote_target)

    def on_link_opened(self, event: Any) -> None:
        link = event.link
        if link.is_sender:
            return
        if link.remote_target.address == self.forbidden:
            link.condition = Condition("amqp:unauthorized-access", "the policy does not allow it")
            link.close()
            return
        self._links.append(link)
        link.flow(self._credit)

    def on_message(self, event: Any) -> None:
        delivery, link = event.delivery, event.link
        outcome = self.next.pop(0) if self.next else "accept"
        self.came.append((link.target.address, event.message.id, outcome))
        if outcome != "silence":
            delivery.update(OUTCOMES[outcome])
            delivery.settle()
            link.flow(1)

    def on_cut(self, _event: Any) -> None:
        for link in self._links:
            transport = link.connection.transport
            if transport is not None:
                transport.close_tail()
                transport.close_head()
        self._links.clear()

    def on_detach(self, _event: Any) -> None:
        for link in self._links:
            link.close()
        self._links.clear()

    def on_end(self, _event: Any) -> None:
        self._acceptor.close()
        self._injector.close()
        self.on_cut(None)
        self._container.stop()
