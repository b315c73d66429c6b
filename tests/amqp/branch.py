"""A branch's receiver, which keeps what it gets and answers as the test says; real AMQP, in a thread of its own."""

import os
import threading
from collections.abc import Callable
from typing import Any

from proton import Condition, Delivery, SSLDomain
from proton.handlers import MessagingHandler
from proton.reactor import ApplicationEvent, AtLeastOnce, Container, EventInjector

OUTCOMES = {
    "accept": Delivery.ACCEPTED,
    "release": Delivery.RELEASED,
    "modify": Delivery.MODIFIED,
    "reject": Delivery.REJECTED,
}


class Branch(MessagingHandler):
    """Receives from some addresses, each with credit of its own.

    `answer` gets a message and returns an outcome, or "hold", to give it one with `let_go`; everything is accepted without.
    """

    def __init__(
        self,
        urls: list[str] | str,
        *addresses: str,
        answer: Callable[[Any], str] = lambda _message: "accept",
        credit: int = 50,
        tls: SSLDomain | None = None,
        largest: int = 0,
    ) -> None:
        super().__init__(prefetch=0, auto_accept=False)
        #: What came and what became of it: (id, outcome, message), in order.
        self.came: list[tuple[str, str, Any]] = []
        #: Why links were refused.
        self.refused: list[str] = []
        self.attached: list[str] = []
        self._urls = [urls] if isinstance(urls, str) else urls
        self._addresses, self._answer, self._credit, self._tls = addresses, answer, credit, tls
        self._largest = largest
        self._held: list[Any] = []
        self._links: list[Any] = []
        self._container = Container(self)
        self._injector = EventInjector()
        self._container.selectable(self._injector)
        self._closed = False
        self._thread = threading.Thread(target=self._container.run, daemon=True, name="branch")
        self._thread.start()

    def accepted(self, address: str = "") -> list[str]:
        """Return the ids that were accepted, in order, each as often as it was."""
        return [
            number
            for number, outcome, message in list(self.came)
            if outcome == "accept" and address in {"", message.address}
        ]

    def bodies(self, key: str) -> list[bytes]:
        """Return the bodies that were accepted of one key, by their first copies, in order."""
        first = {}
        for number, outcome, message in list(self.came):
            if outcome == "accept" and message.properties.get("key") == key:
                first.setdefault(number, message.body)
        return list(first.values())

    def let_go(self) -> None:
        """Accept what is held, and hold no more."""
        self._injector.trigger(ApplicationEvent("let_go"))

    def give(self, credit: int) -> None:
        """Give each link more credit."""
        self._credit = credit
        self._injector.trigger(ApplicationEvent("give"))

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._injector.trigger(ApplicationEvent("end"))
        self._thread.join(60)
        assert not self._thread.is_alive(), "the branch does not end"
        for end in self._injector.pipe:
            os.close(end)
        self._container.stop_events()

    def on_start(self, event: Any) -> None:
        for url in self._urls:
            connection = event.container.connect(url, ssl_domain=self._tls, heartbeat=10, reconnect=[0.2])
            for address in self._addresses:
                link = event.container.create_receiver(connection, address, options=AtLeastOnce())
                if self._largest:
                    link.max_message_size = self._largest

    def on_link_opened(self, event: Any) -> None:
        if event.link.remote_source.address:
            self.attached.append(event.link.source.address)
            self._links.append(event.link)
            event.link.flow(self._credit)

    def on_link_error(self, event: Any) -> None:
        self.refused.append(str(event.link.remote_condition))
        event.link.close()

    def on_message(self, event: Any) -> None:
        message = event.message
        message.body = bytes(message.body)
        outcome = self._answer(message)
        self.came.append((message.id, outcome, message))
        if outcome == "hold":
            self._held.append((event.delivery, message))
        else:
            self._settle(event.delivery, outcome)

    def _settle(self, delivery: Any, outcome: str) -> None:
        if outcome == "reject":
            delivery.local.condition = Condition("bank:no-such-card", "this branch has no such card")
        link = delivery.link
        delivery.update(OUTCOMES[outcome])
        delivery.settle()
        link.flow(1)

    def on_let_go(self, _event: Any) -> None:
        self._answer = lambda _message: "accept"
        held, self._held = self._held, []
        for delivery, message in held:
            self.came.append((message.id, "accept", message))
            self._settle(delivery, "accept")

    def on_give(self, _event: Any) -> None:
        for link in self._links:
            link.flow(self._credit)

    def on_end(self, _event: Any) -> None:
        self._injector.close()
        self._container.stop()
