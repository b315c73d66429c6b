"""Peers of an edge that misbehave as routers do: each listens on a free port of this machine."""

import os
import threading
from typing import Any

from proton import Condition
from proton.handlers import MessagingHandler
from proton.reactor import ApplicationEvent, Container, EventInjector

from headrace.amqp.transport import Sockets


class Peer(MessagingHandler):
    """Lets everybody connect and attach; gives no credit."""

    def __init__(self) -> None:
        super().__init__(prefetch=0, auto_accept=False)
        self._container = Container(self)
        # Proton's own handler fails where a connection ends when its time has come.
        self._container.global_handler.base = Sockets()
        self._acceptor = self._container.acceptor("127.0.0.1", 0)
        self.port = self._acceptor._selectable.getsockname()[1]
        self._injector = EventInjector()
        self._container.selectable(self._injector)
        self._thread = threading.Thread(target=self._container.run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Drop everything, and listen no more."""
        self.trigger("end")
        self._thread.join(60)
        assert not self._thread.is_alive()
        for end in self._injector.pipe:
            os.close(end)

    def trigger(self, name: str) -> None:
        """Have `on_<name>` called in the peer's thread."""
        self._injector.trigger(ApplicationEvent(name))

    def on_end(self, _event: Any) -> None:
        self._acceptor.close()
        self._injector.close()
        self._container.stop()


class Crowded(Peer):
    """Closes every connection as a router does whose policy knows no such user, or whose limit is reached."""

    def __init__(self) -> None:
        #: How many were refused.
        self.refused = 0
        super().__init__()

    def on_connection_opened(self, event: Any) -> None:
        self.refused += 1
        event.connection.condition = Condition("amqp:resource-limit-exceeded", "connection disallowed by local policy")
        event.connection.close()


class Quiet(Peer):
    """Lets a sender attach, and gives credit when it is asked to."""

    def __init__(self) -> None:
        self._link: Any = None
        self._credit = 0
        super().__init__()

    def grant(self, credit: int) -> None:
        """Give credit."""
        self._credit = credit
        self.trigger("grant")

    def on_link_opening(self, event: Any) -> None:
        self._link = event.link
        event.link.target.copy(event.link.remote_target)

    def on_grant(self, _event: Any) -> None:
        self._link.flow(self._credit)


class Refusing(Peer):
    """Refuses every link: answers the attach without a target, and then closes it with the reason."""

    def on_link_opened(self, event: Any) -> None:
        event.link.condition = Condition("amqp:unauthorized-access", "link disallowed by local policy")
        event.link.close()
