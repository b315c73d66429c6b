"""One AMQP 1.0 connection and its link to `cdc/<source>`: what is sent, and what becomes of it.

Guarantees that nothing is sent pre-settled, and that a batch counts as acknowledged by the outcome `accepted` alone: released,
modified, settled without an outcome and everything lost with the link are sent again, in order, from the oldest batch that is
not accepted. A connection is used once: after its end the sender makes another. All of it runs in the sender's thread.

Keeps the edge connected to the interconnect, from a thread of its own, and sends what the outbox holds.
"""

import logging
import time
from collections.abc import Callable
from typing import Any

from edge.delivery.outbox import Outbox
from edge.observability.figures import Figures
from edge.records.batcher import SealedBatch
from edge.requests.links import RequestLinks
from edge.requests.service import RequestService
from headrace.amqp.connection import Connection, Connector
from headrace.amqp.errors import TOO_LARGE, Role, described, hide_password
from headrace.amqp.links import condition_of
from headrace.amqp.security import is_open
from headrace.amqp.transport import Delivery, Endpoint, Event, Message, symbol
from headrace.batch import CONTENT_ENCODING, CONTENT_TYPE
from headrace.configuration.edge import Interconnect
from headrace.errors import NeedsOperator, ReplicationError
from headrace.waiting import Backoff

_log = logging.getLogger(__name__)

#: Every so many returns in a row are worth a warning.
_LASTING = 6
#: How often it is checked whether a link waits for credit, in seconds.
_CREDIT_SECONDS = 2.0
_ROLE = Role(
    "edge",
    "send to",
    if_not_found="Is the source in the bridge's configuration?",
    if_too_large="A router or broker has a smaller limit for messages than this batch: raise its policy's maxMessageSize above "
    "[records] largest_megabytes. Its own log names the connection; the bridge never saw the batch. Nothing is lost.",
)


class SourceConnection(Connection):
    """One connection to the interconnect, from the attempt to connect to its end."""

    def __init__(
        self,
        interconnect: Interconnect,
        url: str,
        source: str,
        outbox: Outbox,
        figures: Figures,
        requests: RequestService | None = None,
    ) -> None:
        super().__init__(interconnect, url, f"headrace-edge {source}", _ROLE)
        self._source = source
        self._address = f"cdc/{source}"
        self._outbox = outbox
        self._figures = figures
        #: Called when the other side first gives credit, in the connection's thread.
        self.on_credit: Callable[[], None] = lambda: None
        #: Whether the other side accepted the attach.
        self.attached = False
        self._credit = figures.credit_wait
        #: Times that sending went back since the acknowledged tail moved, and the pauses after them.
        self._returns = 0
        self._pauses = Backoff(first=0.05, longest=5.0)
        self._link: Any = None
        #: What comes from headquarters; None where nothing may come.
        self._requests = requests
        self._request_links: RequestLinks | None = None

    def attach(self) -> None:
        """Attach to the source's address."""
        # Named for the source, so that it is known in the other side's lists, and the same after every reconnect.
        self._link = self.loop.attach_sender(self.connection, self._address, f"headrace {self._source}")

    @property
    def is_answered(self) -> bool:
        """Whether the link is up; an attempt without one is given up."""
        return is_open(self._link)

    def woken(self) -> None:
        """Send what was put into the outbox, and answers to requests."""
        self._send()
        if self._request_links is not None and not self.is_ending:
            self._request_links.send()

    def close_links(self) -> None:
        """Close the link; what else there is ends with the connection."""
        self._link.close()

    def ended(self) -> None:
        """Have everything sent again that is not accepted."""
        if self._request_links is not None:
            self._request_links.end()
            self._request_links = None
        self._link = None
        self._figures.interconnect_connected = self._figures.credit = 0
        self._credit.given()
        self._outbox.lost()

    # What Proton calls.

    def on_link_remote_open(self, event: Event) -> None:
        """Note that the other side accepted the attach; an answer without a target is the first half of a refusal."""
        if self._is_of_requests(event.link) or not event.link.remote_target.address:
            return
        self.attached = True
        self._credit.attached()
        _log.info("attached to %s at %s", self._address, self.url)
        self.loop.after(_CREDIT_SECONDS, self._look_for_credit)
        if self._requests is not None:
            self._request_links = RequestLinks(self._requests, self._source, self.loop, self.connection)
            self._request_links.attach()

    def on_link_remote_close(self, event: Event) -> None:
        """End, unless it is a link of requests."""
        if self._request_links is not None and self._is_of_requests(event.link):
            self._request_links.closed(event.link)
        else:
            super().on_link_remote_close(event)

    def on_link_flow(self, event: Event) -> None:
        """Send as far as the credit goes."""
        if self._request_links is not None and self._request_links.owns(event.link):
            self._request_links.send()
            return
        if event.link.credit > 0:
            self._credit.given()
        if event.link.credit > 0 and not self.worked:
            self.worked = True
            self._figures.interconnect_connections += 1
            self._figures.interconnect_connected, self._figures.interconnect_problem = 1, ""
            self.on_credit()
            _log.info("%s gives credit for %d batches at %s", self.url, event.link.credit, self._address)
        self._send()
        # When a router drains the link, it waits for the credit that is left; otherwise nothing happens.
        event.link.drained()

    def on_delivery(self, event: Event) -> None:
        """Note the outcome of a delivery."""
        delivery = event.delivery
        if self._request_links is not None and self._request_links.owns(event.link):
            self._request_links.delivered(event.link, delivery)
            return
        if not delivery.updated:
            return
        number, outcome = int(delivery.tag), delivery.remote_state
        if outcome == Delivery.ACCEPTED:
            self._figures.accepted += 1
            self._figures.accepted_at = time.monotonic()
            if self._outbox.accepted(number):
                self._returns = 0
                self._pauses.reset()
        elif outcome == Delivery.REJECTED:
            self._figures.rejected += 1
            self.end(rejected(self._source, condition_of(delivery, hide_password(self.url))))
        elif outcome in {Delivery.RELEASED, Delivery.MODIFIED} or delivery.settled:
            self._returned(number)
        else:
            return
        delivery.settle()
        self._send()

    # Steps of these.

    def _is_of_requests(self, link: Any) -> bool:
        return self._request_links is not None and self._request_links.owns(link)

    def _send(self) -> None:
        link = self._link
        if link is None or self.is_ending or not link.state & Endpoint.REMOTE_ACTIVE:
            return
        while link.credit > 0 and (taken := self._outbox.take()) is not None:
            number, batch = taken
            link.send(message(batch, self._source, self._address), tag=str(number))
            self._figures.sent += 1
            self._figures.sent_bytes += len(batch.body)
            self._figures.sent_rate.add(len(batch.body))
        self._figures.credit = link.credit
        if link.credit == 0:
            self._credit.used_up()

    def _returned(self, number: int) -> None:
        self._figures.returned += 1
        if not self._outbox.returned(number):
            return
        pause = self._pauses.pause()
        position, _ = self._outbox.progress()
        self._returns += 1
        if self._returns % _LASTING:
            _log.info("a batch came back: sending again from what follows %s in %.2f s", position, pause)
        else:
            _log.warning(
                "the far side has returned what follows %s %d times in a row. If that lasts, see its log, and compare "
                "'headrace edge position' with 'headrace bridge positions'",
                position,
                self._returns,
            )
        self.loop.after(pause, self._go_on)

    def _go_on(self) -> None:
        if not self.is_ending:
            self._outbox.go_on()
            self._send()

    def _look_for_credit(self) -> None:
        """Warn about a link that is attached and gets no credit, which nothing else would show."""
        if self.is_ending:
            return
        if self._credit.is_due():
            _log.warning("%s at %s: %s", self._address, self.url, self._credit)
        self.loop.after(_CREDIT_SECONDS, self._look_for_credit)


def message(batch: SealedBatch, source: str, address: str) -> Message:
    """Return a batch as a message (headrace/batch.py)."""
    return Message(
        body=batch.body,
        inferred=True,
        durable=True,
        id=f"{batch.properties['follows']}-{batch.properties['last']}",
        address=address,
        subject="batch",
        content_type=symbol(CONTENT_TYPE),
        content_encoding=symbol(CONTENT_ENCODING),
        group_id=source,
        creation_time=time.time(),
        properties=batch.properties,
    )


def rejected(source: str, condition: Any) -> ReplicationError:
    """Return what to raise when a batch was rejected."""
    if condition is not None and condition.name == TOO_LARGE:
        return NeedsOperator(
            f"a batch of {source} was rejected before the bridge: {described(condition)}", hint=_ROLE.if_too_large
        )
    return NeedsOperator(
        f"the far side rejected a batch of {source}: {described(condition)}",
        hint="See the bridge's log, and 'headrace bridge positions'. Nothing is lost: the batch stays in the slot.",
    )


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
