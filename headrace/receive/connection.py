"""A connection that receives from one address; what comes goes to the inbox, outcomes come back by ticket.

Everything runs in the connection's thread but `settle`. Nothing is accepted by itself. What has no outcome when the connection
ends is sent again by the other side.
"""

import itertools
import logging
from collections import deque
from collections.abc import Callable
from typing import Any

from headrace import doors
from headrace.amqp.connection import Connection
from headrace.amqp.errors import Role, shown
from headrace.amqp.links import Arriving, Outcome, Reject, settle
from headrace.configuration.sections import Client
from headrace.errors import CorruptInput, NeedsOperator
from headrace.receive.inbox import Inbox, Waiting
from headrace.receive.message import decode

_log = logging.getLogger(__name__)

_ROLE = Role(
    "receiver",
    "receive from",
    if_not_found="Check the address, and [deliveries.NAME] address in the bridge's file.",
)
_numbers = itertools.count(1)
#: The largest message that is received, in bytes: Kafka's records are smaller.
_LARGEST_MESSAGE = 256 << 20


class Receiving(Connection):
    """One connection with one link."""

    def __init__(
        self, settings: Client, url: str, address: str, inbox: Inbox, credit: int, attached: Callable[[], None]
    ) -> None:
        super().__init__(settings, url, f"headrace-receive/{address}", _ROLE)
        self._address = address
        self._inbox = inbox
        self._credit = credit
        #: Called when the other side has accepted the attach.
        self._attached = attached
        self._link: Any = None
        self._arriving = Arriving(_LARGEST_MESSAGE)
        self._unsettled: dict[int, Any] = {}
        self._outcomes: deque[tuple[int, Outcome]] = deque()

    def settle(self, ticket: int, outcome: Outcome) -> None:
        """Settle a delivery; from any thread."""
        self._outcomes.append((ticket, outcome))
        self.wake()

    def attach(self) -> None:
        """Attach to the address."""
        # A name of its own for each process: a bridge would take two of one name for one.
        self._link = self.loop.attach_receiver(self.connection, self._address, f"{self._address}/{next(_numbers)}")
        self._link.flow(self._credit)

    def woken(self) -> None:
        """Give outcomes, and the credit of what they are for again."""
        while self._outcomes:
            ticket, outcome = self._outcomes.popleft()
            delivery = self._unsettled.pop(ticket, None)
            if delivery is not None:
                settle(delivery, outcome)
                self._link.flow(1)

    def close_links(self) -> None:
        """Give the outcomes that wait, and close the link: what has none is sent again."""
        self.woken()
        if self._link is not None:
            self._link.close()

    def ended(self) -> None:
        """Forget what was unsettled."""
        self._unsettled.clear()
        self._link = None

    # What Proton calls.

    def on_link_remote_open(self, event: Any) -> None:
        """Note that the other side accepted the attach; an answer without a source is the first half of a refusal."""
        if event.link.remote_source.address:
            self.worked = True
            self._attached()
            _log.info("receiving from %s at %s", self._address, shown(self.url))

    def on_delivery(self, event: Any) -> None:
        """Take a message in once it is complete."""
        link, delivery = event.link, event.delivery
        if delivery.aborted:
            self._arriving.drop()
            delivery.settle()
            link.flow(1)
        elif delivery.readable:
            try:
                data = self._arriving.read(link, delivery)
            except CorruptInput as error:
                doors.MEMORY.refuse(error, self._address)
                self.end(NeedsOperator(f"{self._address} at {shown(self.url)}: {error.message}"))
                return
            if data is not None:
                self._take(link, delivery, data)

    def _take(self, link: Any, delivery: Any, data: bytes) -> None:
        """Take a message in, or reject it."""
        message = decode(data)
        if message is None:
            settle(delivery, Reject("amqp:decode-error", "this is no AMQP message with a body of bytes or text"))
            link.flow(1)
            return
        ticket = next(_numbers)
        self._unsettled[ticket] = delivery
        self._inbox.put(Waiting(self, ticket, message))
