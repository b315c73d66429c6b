"""Peers of an edge that misbehave as routers do: each listens on a free port of this machine."""

from typing import Any

from headrace.amqp.transport import Condition
from tests.amqp.peer import Listener


class Quiet(Listener):
    """Lets everybody connect and attach, and gives credit when it is asked to."""

    def __init__(self) -> None:
        self._link: Any = None
        super().__init__(prefetch=0, auto_accept=False)
        self.start()

    def grant(self, credit: int) -> None:
        """Give credit."""
        self.do(lambda: self._link.flow(credit))

    def on_link_opening(self, event: Any) -> None:
        if (event.link.remote_target.address or "").startswith("cdc/"):
            self._link = event.link
            event.link.target.copy(event.link.remote_target)


class Crowded(Quiet):
    """Closes every connection as a router does whose policy knows no such user, or whose limit is reached."""

    def __init__(self) -> None:
        #: How many were refused.
        self.refused = 0
        super().__init__()

    def on_connection_opened(self, event: Any) -> None:
        self.refused += 1
        event.connection.condition = Condition("amqp:resource-limit-exceeded", "connection disallowed by local policy")
        event.connection.close()


class Refusing(Quiet):
    """Refuses every link: answers the attach without a target, and then closes it with the reason."""

    def on_link_opening(self, event: Any) -> None:
        """Leave the target out."""

    def on_link_opened(self, event: Any) -> None:
        event.link.condition = Condition("amqp:unauthorized-access", "link disallowed by local policy")
        event.link.close()
