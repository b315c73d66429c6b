"""The links to the sources' addresses: which are taken, which is the living one, and what comes on it.

One link per source is alive: the newest. A link is its source's own by the client's certificate. Others attach to the bridge, or
the bridge attaches at a router or broker that it connects out to. Called by bridge/amqp/listener.py and receiver.py, in the
receiver's thread.
"""

import logging
from collections import deque
from collections.abc import Callable, Collection
from functools import partial
from typing import Any

from bridge.amqp.authorization import NOT_FOUND, NOT_PERMITTED, PREFIX, Identities, not_for, not_here, refusal
from bridge.amqp.connections import MOST_SHARING, AttachLimits, PendingConnections, PerConnection, key
from bridge.amqp.credit import CreditManager, Feed, Later
from bridge.amqp.request_links import NOT_CARRIED, RequestLinks, source_of
from bridge.amqp.sender_links import SenderLinks
from bridge.deliveries.pending import encode
from headrace import doors
from headrace.amqp.connection import Connection
from headrace.amqp.errors import TOO_LARGE, described
from headrace.amqp.links import TRANSFER_LIMIT, Arriving, close, decode, discard, settle
from headrace.amqp.security import abort, identity, name_of, peer_of
from headrace.amqp.transport import Handler
from headrace.errors import CorruptInput
from headrace.logs import RateLimitedLog

_log = logging.getLogger(__name__)

#: Largest size of a message in bytes, above which its link is closed: ordinary batches have 64 kB.
_LARGEST_MESSAGE = 64 * 1024 * 1024
#: Largest size in bytes of incomplete deliveries of all links; above it a link of who has most of it is closed.
_MOST_ARRIVING = 96 * 1024 * 1024
_ATTACH_AGAIN_SECONDS = 5.0


class Links:
    """The links of all connections."""

    def __init__(
        self,
        name: str,
        sources: Collection[str],
        *,
        credit: int,
        identities: Identities,
        pending: PendingConnections,
        later: Later,
    ) -> None:
        self.credit = CreditManager(credit, settle, later)
        #: The links in the other direction.
        self.deliveries = SenderLinks(name, encode, later)
        self.deliveries.demanded = identities.demanded
        self._refused: dict[str, tuple[str, str]] = {}
        self.requests = RequestLinks(name, sources, identities, self._refused, later)
        #: What other threads ask for, to be done in the receiver's.
        self.commands: deque[Callable[[], None]] = deque()
        self._name = name
        self._sources = sources
        self._identities = identities
        self._pending = pending
        self._later = later
        self._refusal = RateLimitedLog(_log.warning)
        self._exceeded = RateLimitedLog(_log.error)
        #: The sources whose addresses a bridge that connects out attaches to: those that it serves.
        self._admitted: set[str] = set()
        #: The connection to attach by, where the bridge has connected out.
        self._outgoing: Connection | None = None
        self._attached = 0
        self._parting = False
        #: What is arriving, by the number of the feed, and its size in all.
        self._arriving: dict[int, Arriving] = {}
        self._bytes_arriving = 0
        #: The feeds of each connection.
        self._feeds: PerConnection[Feed] = PerConnection()
        #: How many links each connection has attached.
        self._limits = AttachLimits(_end)

    def refuse(self, source: str, condition: str, description: str) -> None:
        """Close a source's link, and every one that comes, until it is admitted."""
        self._refused[source] = (condition, description)
        self._admitted.discard(source)
        self.requests.refuse(source, condition, description)
        feed = self.credit.of(source)
        if feed is not None:
            self._close(feed, condition, description)

    def admit(self, source: str) -> None:
        """Take a source's links again; where the bridge connected out, attach to its address."""
        self._refused.pop(source, None)
        self._admitted.add(source)
        self._attach(source)

    def use(self, sources: Collection[str]) -> None:
        """Go on with the sources of a changed file, and who may send for them; close the links that it allows no more."""
        gone = set(self._sources) - set(sources)
        self._sources = sources
        self.requests.use(sources)
        for source in gone:
            self.refuse(source, NOT_FOUND, not_here(source))
            # The next one that attaches is refused by name.
            del self._refused[source]
        for feed in self.credit.all():
            who = getattr(feed.link, "identity", None)
            if not self._identities.may_send(who, feed.source):
                _log.warning("%s: link of %r closed: the bridge's file does not let it send any more", feed.source, who)
                self._close(feed, NOT_PERMITTED, not_for(who, feed.source))

    def attach_by(self, outgoing: Connection) -> None:
        """Attach to the sources' addresses by this connection."""
        self._outgoing = outgoing
        for source in sorted(self._admitted):
            self._attach(source)
        self.deliveries.attach_by(outgoing)
        self.requests.attach_by(outgoing)

    def part(self) -> None:
        """Give no more credit, and attach no more."""
        self._parting = True
        self.deliveries.part()
        self.requests.part()
        self.credit.revoke_all()

    def drop_all(self) -> None:
        """Forget all links: their connections are gone."""
        for feed in self.credit.all():
            self._drop(feed)
        self._outgoing = None
        self.deliveries.drop_all()
        self.requests.drop_all()

    def drop(self, connection: Any) -> None:
        """Forget the links of a connection that is gone."""
        for feed in self._feeds.pop(connection):
            _log.info("%s: link lost", feed.source)
            self._drop(feed)
        self._limits.forget(key(connection))
        if self._outgoing is not None and self._outgoing.connection == connection:
            self._outgoing = None
        self.deliveries.drop(connection)
        self.requests.drop(connection)

    def uses(self, number: int) -> bool:
        """Whether a connection has a link in use for batches or deliveries, by its key."""
        return number in self._feeds or self.deliveries.uses(number)

    def opening(self, link: Any, transport: Any) -> None:
        """Take over the addresses of the other side, unless it is refused, which a target left empty reports."""
        number, asked = key(link.connection), source_of(link)
        links = MOST_SHARING if link.is_sender and asked is None else 1
        self._limits.attach(number, link.connection, _address_of(link), links)
        if self._limits.is_over(number):
            return
        link.identity = who = identity(transport) if self._identities.demanded else None
        if asked is not None:
            link.refusal = self.requests.refusal(link, asked, who)
            if link.refusal is None:
                self.requests.opening(link, asked)
            return
        if link.is_sender:
            reason = self.deliveries.refusal(link, who)
        else:
            reason = refusal(link, self._sources, self._refused, who, self._identities)
        if reason is not None:
            link.refusal = reason
            return
        if link.is_sender:
            self.deliveries.opening(link)
            return
        link.source.copy(link.remote_source)
        link.target.copy(link.remote_target)
        link.max_message_size = _LARGEST_MESSAGE
        link.fed = link.remote_target.address.removeprefix(PREFIX)

    def opened(self, link: Any, transport: Any) -> None:
        """Take a link into use, or close it when it was refused."""
        if self._limits.is_over(key(link.connection)):
            return
        reason = getattr(link, "refusal", None)
        if reason is not None:
            # An edge asks for requests wherever it connects.
            if reason != NOT_CARRIED:
                self._log_refusal(link, transport, reason)
            close(link, *reason)
            self._limits.refuse(key(link.connection), link.connection)
            return
        if getattr(link, "answering", None) is not None:
            self.requests.opened(link)
            return
        if link.is_sender:
            self._pending.remove(key(link.connection))
            self.senders(link).opened(link)
            return
        source = getattr(link, "fed", None)
        # A link without a source of its own is about to be closed by the other side.
        if source is None or (self._outgoing is not None and link.remote_source.address is None):
            return
        former = self.credit.of(source)
        if former is not None:
            self._close(former, "amqp:link:stolen", f"a newer link for {source} was attached")
        _log.info("%s: link up, from %s", source, link.connection.remote_container or "a nameless container")
        self._pending.remove(key(link.connection))
        self._feeds.add(link.connection, self.credit.open(source, link))

    def closing(self, link: Any, reason: str) -> None:
        """Forget a link that the other side closed; `reason` is empty where it gave none."""
        if link.is_sender:
            self.senders(link).closing(link, reason)
            return
        if getattr(link, "answering", None) is not None:
            self.requests.closing(link, reason)
            return
        source = getattr(link, "fed", None)
        if reason:
            warning = (
                "%s: link closed by the other side: %s. Check what the interconnect allows this bridge to receive."
            )
            _log.error(warning, source or "?", reason)
        else:
            _log.info("%s: link closed by the other side", source or "?")
        feed = self.credit.of(source or "")
        if feed is not None and feed.link == link:
            self._drop(feed)
        if source is not None:
            self._attach_later(source)

    def delivered(self, link: Any, delivery: Any) -> None:
        """Pass a delivery on to its source once it is complete."""
        if not link.is_receiver:
            return
        if getattr(link, "answering", None) is not None:
            self.requests.delivered(link, delivery)
            return
        feed = self.credit.of(getattr(link, "fed", ""))
        if feed is None or feed.link != link:
            # It came on a link that a newer one has replaced, or that was refused.
            if delivery.aborted:
                delivery.settle()
            elif delivery.readable:
                discard(link, delivery)
        elif delivery.aborted:
            # Its sender was lost in the middle of it, behind a router that stays; it used up a credit all the same.
            self._forget_arriving(feed)
            delivery.settle()
            self.credit.aborted(link)
        elif delivery.readable:
            self._read(feed, link, delivery)

    def _read(self, feed: Feed, link: Any, delivery: Any) -> None:
        """Read what came of a delivery, and pass it on once it is complete."""
        arriving = self._arriving.get(feed.number)
        if arriving is None:
            arriving = self._arriving[feed.number] = Arriving(_LARGEST_MESSAGE)
        before = arriving.size
        try:
            data = arriving.read(link, delivery)
        except CorruptInput as error:
            self._bytes_arriving -= before
            doors.MEMORY.refuse(error, feed.source)
            condition = TRANSFER_LIMIT if link.credit < 0 else TOO_LARGE
            self._log_exceeded(feed, error.message)
            self._close(feed, condition, error.message)
            return
        self._bytes_arriving += arriving.size - before
        if data is not None:
            self.credit.received(feed, delivery, *decode(data, feed.source))
        elif self._bytes_arriving > _MOST_ARRIVING:
            self._close_heaviest()

    def _close_heaviest(self) -> None:
        """Close the link that has most of what is arriving, of the peer that has most: its edge sends again.

        A peer is who has a certificate, else a connection: many links of one, each with little, push nobody else's out.
        """
        sizes = ((feed, self._arriving.get(feed.number)) for feed in self.credit.all())
        arriving = [(feed, each.size) for feed, each in sizes if each is not None and each.size]
        if not arriving:
            return
        of_peers: dict[Any, int] = {}
        for feed, size in arriving:
            of_peers[_peer(feed)] = of_peers.get(_peer(feed), 0) + size
        feed, _ = max(arriving, key=lambda each: (of_peers[_peer(each[0])], each[1]))
        error = CorruptInput("too much is arriving at the bridge, and most of it from this peer")
        doors.MEMORY.refuse(error, feed.source)
        self._log_exceeded(feed, error.message)
        self._close(feed, "amqp:resource-limit-exceeded", error.message)

    def _forget_arriving(self, feed: Feed) -> None:
        arriving = self._arriving.pop(feed.number, None)
        if arriving is not None:
            self._bytes_arriving -= arriving.size

    def _drop(self, feed: Feed) -> None:
        self._forget_arriving(feed)
        self._feeds.discard(feed.link.connection, feed)
        self.credit.drop(feed)

    def senders(self, link: Any) -> SenderLinks:
        """Return those among which a link in the other direction is."""
        links: SenderLinks = getattr(link, "sender_links", self.deliveries)
        return links

    def _log_refusal(self, link: Any, transport: Any, reason: tuple[str, str]) -> None:
        self._refusal(
            "link to %r from %s, %r, refused: %s: %s",
            _address_of(link)[:100],
            peer_of(link.connection),
            identity(transport) or "without a certificate",
            *reason,
        )

    def _log_exceeded(self, feed: Feed, reason: str) -> None:
        self._exceeded("%s: link closed: %s", feed.source, reason)

    def _attach_later(self, source: str) -> None:
        if self._outgoing is not None:
            self._later(_ATTACH_AGAIN_SECONDS, partial(self._attach, source))

    def _attach(self, source: str) -> None:
        if source not in self._admitted or self._outgoing is None or self._parting or self.credit.of(source):
            return
        self._attached += 1
        address = PREFIX + source
        outgoing = self._outgoing
        link = outgoing.loop.attach_receiver(outgoing.connection, address, f"{self._name}/{address}/{self._attached}")
        link.fed = source

    def _close(self, feed: Feed, condition: str, description: str) -> None:
        self._drop(feed)
        close(feed.link, condition, description)
        # Not once the other side answers: mostly it names no reason, and then Proton reports neither error nor closing.
        self._attach_later(feed.source)


def _address_of(link: Any) -> str:
    return str((link.remote_source if link.is_sender else link.remote_target).address or "")


def _peer(feed: Feed) -> Any:
    return getattr(feed.link, "identity", None) or key(feed.link.connection)


def _end(connection: Any) -> None:
    """Close a connection that attaches links without end."""
    doors.AMQP.refuse(CorruptInput("too many links"), name_of(connection))
    abort(connection, "it attaches links without end")


class LinkEvents(Handler):  # type: ignore[misc]
    """The base of what handles the events of connections: passes those of links on, and does what other threads ask for."""

    def __init__(self, links: Links) -> None:
        # No more: another base class of a connection is set up separately.
        self.links = links

    def on_link_opening(self, event: Any) -> None:
        """The other side attaches a link."""
        if event.transport is not None:
            self.links.opening(event.link, event.transport)

    def on_link_opened(self, event: Any) -> None:
        """A link is up from both sides."""
        # Without a transport the connection was lost in the meantime, and the links of it were dropped already.
        if event.transport is not None:
            self.links.opened(event.link, event.transport)

    def on_link_error(self, event: Any) -> None:
        """The other side closed a link, with a reason."""
        self.links.closing(event.link, described(event.link.remote_condition))

    def on_link_closing(self, event: Any) -> None:
        """The other side closed a link without a reason."""
        self.links.closing(event.link, "")

    def on_delivery(self, event: Any) -> None:
        """Something came, or something that was sent has an outcome."""
        if event.link.is_sender:
            self.links.senders(event.link).updated(event.link, event.delivery)
        else:
            self.links.delivered(event.link, event.delivery)

    def on_link_flow(self, event: Any) -> None:
        """A receiver gives credit."""
        if event.link.is_sender:
            self.links.senders(event.link).flow(event.link)

    def on_wake(self) -> None:
        """Do what other threads asked for."""
        commands = self.links.commands
        while commands:
            commands.popleft()()
