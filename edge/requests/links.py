"""The two links of requests on an edge's connection: where they come, and where answers go.

What happens to them never ends the connection that carries changes: a bridge, router or broker that does not take these links
is tried again later. Called in the connection's thread.
"""

import logging
import time
from collections.abc import Callable
from typing import Any

from edge.requests.service import RequestService
from headrace import doors
from headrace.amqp.errors import TOO_LARGE, described
from headrace.amqp.links import Arriving, Release, close, condition_of, decode, settle
from headrace.amqp.transport import Delivery, Endpoint, Loop, Message, symbol
from headrace.errors import CorruptInput
from headrace.logs import RateLimitedLog
from headrace.requests import ANSWER_CONTENT_TYPE, ANSWERS, LARGEST_REQUEST, REQUESTS, Part

_log = logging.getLogger(__name__)

#: Requests that may be in transit to this edge or unsettled.
_CREDIT = 8
#: The link of a larger message is closed, in bytes: a request and what AMQP adds.
_LARGEST_MESSAGE = LARGEST_REQUEST + 16 * 1024
#: When links that were refused or closed are attached again, and parts that were given back are sent again, in seconds.
ATTACH_AGAIN_SECONDS, _SEND_AGAIN_SECONDS = 60.0, 1.0
_EXPIRY_SECONDS = 60.0
_closed = RateLimitedLog(_log.info)


class RequestLinks:
    """The links on one connection, from the moment at which the link of changes is up."""

    def __init__(self, service: RequestService, source: str, loop: Loop, connection: Any) -> None:
        self._service = service
        self._source = source
        self._loop = loop
        self._connection = connection
        self._receiver: Any = None
        self._sender: Any = None
        self._is_over = False
        self._attach_is_due = False
        self._arriving = Arriving(_LARGEST_MESSAGE)

    def attach(self) -> None:
        """Attach those that are not."""
        self._attach_is_due = False
        if self._is_over:
            return
        if self._sender is None:
            name = f"headrace answers {self._source}"
            self._sender = self._loop.attach_sender(self._connection, ANSWERS + self._source, name)
        if self._receiver is None:
            name = f"headrace requests {self._source}"
            self._receiver = self._loop.attach_receiver(self._connection, REQUESTS + self._source, name)
            self._receiver.flow(_CREDIT)
            self._arriving = Arriving(_LARGEST_MESSAGE)

    def owns(self, link: Any) -> bool:
        """Return whether a link is one of the two."""
        return link is not None and link in (self._receiver, self._sender)

    def end(self) -> None:
        """Attach no more; answers without an outcome are sent with the next connection."""
        self._is_over = True
        self._receiver = self._sender = None
        self._service.answers.lost()

    def closed(self, link: Any) -> None:
        """Forget a link that the other side closed, and attach it again later."""
        address = ANSWERS if link == self._sender else REQUESTS
        why = described(condition_of(link, address))
        _closed("no requests from headquarters for now: %s%s was closed: %s", address, self._source, why)
        if link == self._sender:
            self._sender = None
            self._service.answers.lost()
        else:
            self._receiver = None
        link.close()
        if not self._attach_is_due:
            self._attach_is_due = True
            self._loop.after(ATTACH_AGAIN_SECONDS, self.attach)

    def send(self) -> None:
        """Send answers as far as the credit goes."""
        link, answers = self._sender, self._service.answers
        if link is None or not link.state & Endpoint.REMOTE_ACTIVE:
            return
        while link.credit > 0 and (taken := answers.take()) is not None:
            number, body, part, deadline = taken
            link.send(_message(body, part, deadline, ANSWERS + self._source), tag=str(number))
        link.drained()

    def delivered(self, link: Any, delivery: Any) -> None:
        """Take a request in, or the outcome of an answer."""
        if link == self._sender:
            self._answered(delivery)
        elif delivery.aborted:
            self._arriving.drop()
            delivery.settle()
            link.flow(1)
        elif delivery.readable:
            try:
                data = self._arriving.read(link, delivery)
            except CorruptInput as error:
                doors.MEMORY.refuse(error, REQUESTS)
                # The other side's close follows, and then it is attached again.
                close(link, TOO_LARGE, error.message)
                return
            if data is not None:
                self._take(link, delivery, data)

    def _take(self, link: Any, delivery: Any, data: bytes | bytearray) -> None:
        _, _, body = decode(data, REQUESTS)
        outcome = self._service.receive(body)
        settle(delivery, outcome)
        self._later(outcome.pause if isinstance(outcome, Release) else 0.0, lambda: self._give(link))

    def _give(self, link: Any) -> None:
        if link == self._receiver:
            link.flow(1)

    def _answered(self, delivery: Any) -> None:
        if not delivery.updated:
            return
        number, outcome = int(delivery.tag), delivery.remote_state
        if outcome == Delivery.ACCEPTED:
            self._service.answers.settled(number)
        elif outcome == Delivery.REJECTED:
            _log.warning("an answer was rejected: %s", described(condition_of(delivery, ANSWERS)))
            self._service.answers.settled(number)
        elif outcome in {Delivery.RELEASED, Delivery.MODIFIED} or delivery.settled:
            self._service.answers.returned(number)
            self._later(_SEND_AGAIN_SECONDS, self.send)
        else:
            return
        delivery.settle()
        self.send()

    def _later(self, seconds: float, step: Callable[[], None]) -> None:
        def unless_over() -> None:
            if not self._is_over:
                step()

        if seconds:
            self._loop.after(seconds, unless_over)
        else:
            unless_over()


def _message(body: bytes, part: Part, deadline: int, address: str) -> Message:
    return Message(
        body=body,
        inferred=True,
        durable=True,
        id=f"{part.id}/{part.part}",
        correlation_id=part.id,
        address=address,
        subject=part.kind,
        content_type=symbol(ANSWER_CONTENT_TYPE),
        # A broker drops it then; with a minute for clocks that differ, and for the answer that the deadline has passed.
        expiry_time=max(deadline / 1000, time.time()) + _EXPIRY_SECONDS,
        properties={"version": part.version, "source": part.source, "outcome": part.outcome},
    )
