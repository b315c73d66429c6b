"""Keeps the edge connected to the interconnect, from a thread of its own, and sends what the outbox holds.

Guarantees that each connection starts with everything unaccepted to be sent again; that what an operator has to fix ends the
edge, and everything else does not: a limit of a router may pass by itself, and a user that its policy does not know is refused
with the same condition. Addresses and pauses are the connector's (headrace/amqp/connector.py).
"""

from edge.delivery.link import SourceConnection
from edge.delivery.outbox import Outbox
from edge.observability.figures import Figures
from edge.requests.service import RequestService
from headrace.amqp.connector import Connector
from headrace.configuration.edge import Interconnect
from headrace.errors import ReplicationError


class Sender:
    """A thread that keeps a link to `cdc/<source>` and sends what the outbox holds."""

    def __init__(
        self,
        interconnect: Interconnect,
        source: str,
        outbox: Outbox,
        figures: Figures,
        requests: RequestService | None = None,
    ) -> None:
        def connection(url: str) -> SourceConnection:
            return SourceConnection(interconnect, url, source, outbox, figures, requests)

        def note(problem: ReplicationError) -> None:
            figures.interconnect_problem = problem.message

        # What ends it is raised by the capturing thread.
        self._connector = Connector(interconnect.urls, connection, outbox.fail, name="sender")
        self._connector.on_problem = note
        outbox.wake_sender = self._connector.wake
        if requests is not None:
            requests.answers.wake = self._connector.wake

    def start(self) -> None:
        """Start to connect and to send."""
        self._connector.start()

    def stop(self, seconds: float) -> None:
        """Close the link and end the thread, waiting at most `seconds`; what is unsettled stays unacknowledged."""
        self._connector.stop(seconds)
