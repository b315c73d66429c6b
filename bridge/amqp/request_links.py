"""The links of requests and answers: edges attach to a bridge that listens, or the bridge attaches at a router or broker.

A source's requests go to, and its answers come from, who may send its changes. Called in the receiver's thread.
"""

import itertools
import logging
from collections.abc import Callable, Container, Iterable, Mapping
from functools import partial
from typing import Any

from bridge.amqp.authorization import Identities
from bridge.amqp.connections import PerConnection
from bridge.amqp.credit import Later
from bridge.amqp.sender_links import SenderLinks, Sends
from bridge.model.delivery import Outcome, Reject, Release
from bridge.requests.pending import PendingRequests, encode
from headrace import doors
from headrace.amqp.connection import Connection
from headrace.amqp.errors import TOO_LARGE
from headrace.amqp.links import TRANSFER_LIMIT, Arriving, close, decode, discard, settle
from headrace.errors import CorruptInput
from headrace.requests import ANSWERS, REQUESTS

_log = logging.getLogger(__name__)

#: Parts of answers of one source that may be in transit or not written yet.
_CREDIT = 16
#: Largest size of a message in bytes, above which its link is closed: a part has less.
_LARGEST_MESSAGE = 256 * 1024
#: Largest size in bytes of all parts that wait to be written; others are sent again later.
_MOST_WAITING = 32 * 1024 * 1024
_FULL_SECONDS = 1.0
#: Until the credit of what was rejected is given again, in seconds.
_REJECTED_SECONDS = 0.125
_ATTACH_AGAIN_SECONDS = 5.0
_SETTLED = 1
#: Why links are refused by a bridge that carries no requests.
NOT_CARRIED = ("amqp:not-found", "this bridge carries no requests: its file has no [requests]")

#: Why a link is closed that the bridge's file allows no more.
_REVOKED = ("amqp:unauthorized-access", "the bridge's file does not allow this link any more")

#: Takes the body of a part in: of a source, with a ticket to settle it by.
Received = Callable[[str, int, bytes], None]


def source_of(link: Any) -> str | None:
    """Return the source of a link to an address of requests or answers; None for another link."""
    terminus = link.remote_source if link.is_sender else link.remote_target
    address, prefix = terminus.address or "", REQUESTS if link.is_sender else ANSWERS
    return address.removeprefix(prefix) if address.startswith(prefix) else None


class _Senders(SenderLinks):
    """The links by which requests go out."""

    def _outbox_of(self, _address: str) -> Sends | None:
        return self.outboxes[0] if self.outboxes else None


class RequestLinks:
    """The links of all sources."""

    def __init__(
        self,
        name: str,
        sources: Container[str],
        identities: Identities,
        refused: Mapping[str, tuple[str, str]],
        later: Later,
    ) -> None:
        self.senders = _Senders(f"{name}/requests", encode, later)
        self._name = name
        self._sources = sources
        self._identities = identities
        #: Sources that this bridge does not serve now, and why; the receiver's own list.
        self._refused = refused
        self._later = later
        self._numbers = itertools.count(1)
        self._pending: PendingRequests | None = None
        self._received: Received = lambda _source, _ticket, _body: None
        #: The newest link of each source for answers.
        self._answers: dict[str, Any] = {}
        self._unsettled: dict[int, tuple[Any, Any, int]] = {}
        # The sources of the answers that come by each connection, and the tickets of what came by it.
        self._answered_by: PerConnection[str] = PerConnection()
        self._tickets_of: PerConnection[int] = PerConnection()
        #: The size of what waits, in bytes.
        self._waiting = 0
        self._outgoing: Connection | None = None
        self._parting = False

    def use(self, sources: Container[str]) -> None:
        """Go on with the sources of a changed file, and who may be there for them; close the links that it allows no more."""
        self._sources = sources

        def is_allowed(link: Any, source: str) -> bool:
            return source in sources and self._identities.may_send(getattr(link, "identity", None), source)

        for source, link in list(self._answers.items()):
            if not is_allowed(link, source):
                self.refuse(source, *_REVOKED)
        self.senders.close_unless(lambda link, address: is_allowed(link, address.removeprefix(REQUESTS)), *_REVOKED)

    def carry(self, pending: PendingRequests, received: Received) -> None:
        """Carry requests from now on; before, all links are refused."""
        self._pending, self._received = pending, received
        self.senders.outboxes = [pending]

    def send(self, addresses: Iterable[str], sources: Iterable[str]) -> None:
        """Send what waits, and be there for the answers."""
        if self._pending is None or self._parting:
            return
        for source in sources:
            self._listen(source)
        self.senders.send(self._pending, addresses)

    # Where the bridge connected out.

    def attach_by(self, outgoing: Connection) -> None:
        """Attach by this connection for whatever waits."""
        self._outgoing = outgoing
        if self._pending is not None:
            self.senders.attach_by(outgoing)
            for source in self._pending.sources():
                self._listen(source)

    def part(self) -> None:
        """Attach no more."""
        self._parting = True
        self.senders.part()

    def _listen(self, source: str) -> None:
        if self._outgoing is None or self._parting or source in self._answers or source in self._refused:
            return
        outgoing, address = self._outgoing, ANSWERS + source
        link = outgoing.loop.attach_receiver(
            outgoing.connection, address, f"{self._name}/{address}/{next(self._numbers)}"
        )
        link.answering = source
        link.arriving = Arriving(_LARGEST_MESSAGE)
        self._answers[source] = link
        self._answered_by.add(link.connection, source)
        link.flow(_CREDIT)

    # What the other side does.

    def refusal(self, link: Any, source: str, identity: str | None) -> tuple[str, str] | None:
        """Return why a link may not attach; None when it may."""
        if not self._identities.may_send(identity, source):
            return "amqp:unauthorized-access", f"the certificate of {identity!r} is not for source {source[:100]!r}"
        if self._pending is None:
            return NOT_CARRIED
        if source in self._refused:
            return self._refused[source]
        if source not in self._sources:
            return "amqp:not-found", f"source {source[:100]!r} is in no stream of the bridge's file"
        if link.remote_snd_settle_mode == _SETTLED:
            return "amqp:not-allowed", "requests and answers are sent unsettled: they are acknowledged one by one"
        return None

    def opening(self, link: Any, source: str) -> None:
        """Take the addresses of a link over that may attach."""
        if link.is_sender:
            self.senders.opening(link)
            return
        link.source.copy(link.remote_source)
        link.target.copy(link.remote_target)
        link.max_message_size = _LARGEST_MESSAGE
        link.answering = source
        link.arriving = Arriving(_LARGEST_MESSAGE)

    def opened(self, link: Any) -> None:
        """Take a link into use that is up from both sides."""
        if link.is_sender:
            self.senders.opened(link)
            return
        source = link.answering
        former = self._answers.get(source)
        if former == link:
            return
        self._answers[source] = link
        self._answered_by.add(link.connection, source)
        if former is not None:
            close(former, "amqp:link:stolen", f"a newer link for answers of {source} was attached")
        link.flow(_CREDIT)

    def closing(self, link: Any, reason: str) -> None:
        """Forget a link for answers that the other side closed."""
        source = link.answering
        if self._answers.get(source) == link:
            del self._answers[source]
        if self._outgoing is not None and reason:
            _log.warning("answers of %s: link closed by the other side: %s", source, reason)
        self._listen_later(source)

    def delivered(self, link: Any, delivery: Any) -> None:
        """Take a part of an answer in, once it is complete."""
        source = link.answering
        if self._pending is None or self._answers.get(source) != link:
            if delivery.aborted:
                delivery.settle()
            elif delivery.readable:
                discard(link, delivery)
        elif delivery.aborted:
            link.arriving.drop()
            delivery.settle()
            link.flow(1)
        elif delivery.readable:
            try:
                data = link.arriving.read(link, delivery)
            except CorruptInput as error:
                doors.MEMORY.refuse(error, source)
                self.refuse(source, TRANSFER_LIMIT if link.credit < 0 else TOO_LARGE, error.message)
                return
            if data is not None:
                self._take(source, link, delivery, data)

    def _take(self, source: str, link: Any, delivery: Any, data: bytes) -> None:
        """Pass a part on to who writes it."""
        _, _, body = decode(data, source)
        ticket = next(self._numbers)
        self._unsettled[ticket] = (link, delivery, len(body))
        self._tickets_of.add(link.connection, ticket)
        self._waiting += len(body)
        if self._waiting > _MOST_WAITING:
            self.settle(ticket, Release(_FULL_SECONDS))
        else:
            self._received(source, ticket, body)

    def settle(self, ticket: int, outcome: Outcome) -> None:
        """Settle a part, and give its credit again."""
        entry = self._unsettled.pop(ticket, None)
        if entry is None:
            # Its connection is gone.
            return
        link, delivery, size = entry
        self._tickets_of.discard(link.connection, ticket)
        self._waiting -= size
        settle(delivery, outcome)
        if isinstance(outcome, Release | Reject):
            # What is no answer is work, too.
            self._later(getattr(outcome, "pause", _REJECTED_SECONDS), partial(self._give, link))
        else:
            self._give(link)

    def refuse(self, source: str, condition: str, description: str) -> None:
        """Close the link for answers of a source that this bridge does not serve any more."""
        link = self._answers.pop(source, None)
        if link is not None:
            close(link, condition, description)
            self._listen_later(source)

    def drop(self, connection: Any) -> None:
        """Forget the links of a connection that is gone."""
        for source in self._answered_by.pop(connection):
            # A newer link may have come by another connection.
            if source in self._answers and self._answers[source].connection == connection:
                del self._answers[source]
        for ticket in self._tickets_of.pop(connection):
            self._waiting -= self._unsettled.pop(ticket)[2]
        self.senders.drop(connection)

    def drop_all(self) -> None:
        """Forget all links: their connections are gone."""
        self._outgoing = None
        self._answers.clear()
        self._answered_by.clear()
        self._unsettled.clear()
        self._tickets_of.clear()
        self._waiting = 0
        self.senders.drop_all()

    def _listen_later(self, source: str) -> None:
        if self._outgoing is not None:
            self._later(_ATTACH_AGAIN_SECONDS, partial(self._listen_again, source))

    def _listen_again(self, source: str) -> None:
        if self._pending is not None and source in self._pending.sources():
            self._listen(source)

    def _give(self, link: Any) -> None:
        if self._answers.get(link.answering) == link:
            link.flow(1)
