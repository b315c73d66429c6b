"""The links by which deliveries go out: receivers attach to a bridge that listens, or the bridge attaches at a router or broker.

Sends what the outboxes give, within the credit, and reports each outcome to them. What was on a link that is gone is sent
again. An address may have several receivers; order is the outbox's affair (bridge/deliveries/pending.py). Called in the
receiver's thread, with links and deliveries of Proton's.
"""

import itertools
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Protocol

from bridge.amqp.authorization import outbox_of, receiver_refusal
from bridge.amqp.connections import PerConnection
from bridge.amqp.credit import Later
from bridge.deliveries.outbox import TOO_LARGE, UNREADABLE
from bridge.deliveries.pending import Entry
from headrace import doors
from headrace.amqp.connection import Connection
from headrace.amqp.links import close, condition_of
from headrace.amqp.transport import Condition
from headrace.logs import RateLimitedLog

_log = logging.getLogger(__name__)

#: When a link that was refused or closed is tried again, and how long one without records is kept, in seconds.
_ATTACH_AGAIN_SECONDS, _IDLE_SECONDS = 5.0, 300.0
_LEAST_SECONDS = 0.002
#: A receiver that has settled nothing of what it holds for so long is named, in seconds.
_UNSETTLED_SECONDS = 60.0
#: AMQP's outcomes, by the codes of their descriptors.
ACCEPTED, REJECTED, RELEASED, MODIFIED = 0x24, 0x25, 0x26, 0x27
#: AMQP's sender settle modes: what is sent waits for its outcome; nothing is acknowledged.
_UNSETTLED, _SETTLED = 0, 1

#: Returns a record as the bytes of a message, given its delivery's name.
Encode = Callable[[Entry, str], bytes]


class Sends(Protocol):
    """What is sent, by address, and receives the outcomes: the outbox of a delivery, or the requests to edges."""

    @property
    def name(self) -> str:
        """What it is called."""

    def addresses(self) -> list[str]:
        """Return the addresses for which something waits."""

    def take(self, address: str) -> Entry | None:
        """Return what is to be sent to an address next; None when nothing may be sent now."""

    def due(self, address: str) -> float | None:
        """Return in how many seconds something may be sent; None when nothing waits."""

    def accepted(self, entry: Entry) -> None:
        """Note the outcome."""

    def returned(self, entry: Entry) -> None:
        """Note that it came back."""

    def lost(self, entry: Entry) -> None:
        """Note that its link is gone."""

    def rejected(self, entry: Entry, condition: str, description: str) -> None:
        """Note the outcome, with an AMQP condition and a sentence."""

    def note(self, address: str, reason: str) -> None:
        """Note why no receiver takes what waits for an address; empty when one does."""


class SenderLink:
    """One link, and what is on it without an outcome."""

    def __init__(self, link: Any, address: str, outbox: Sends) -> None:
        self.link = link
        self.address = address
        self.outbox = outbox
        self.sent: dict[str, Entry] = {}
        #: When it was last used, by the monotonic clock.
        self.used_at = time.monotonic()
        #: When it last settled something, or had nothing; and whether that is looked at again.
        self.settled_at = self.used_at
        self.is_watched = False
        self.is_open = False

    def hoarding(self) -> str:
        """Return who holds messages and has settled none for long; empty where nobody does."""
        silent = time.monotonic() - self.settled_at
        if not self.sent or silent < _UNSETTLED_SECONDS:
            return ""
        who = getattr(self.link, "identity", None) or self.link.connection.remote_container or "its receiver"
        return f"{who} has settled none of {len(self.sent)} messages for {silent:.0f} s"


class SenderLinks:
    """The links of all deliveries."""

    def __init__(self, name: str, encode: Encode, later: Later) -> None:
        self._name = name
        self._encode = encode
        self._later = later
        #: Outboxes of the file's deliveries, or the one of requests; empty without.
        self.outboxes: Sequence[Any] = ()
        #: Whether receivers need a certificate.
        self.demanded = False
        self._links: dict[str, list[SenderLink]] = {}
        self._of_connections: PerConnection[SenderLink] = PerConnection()
        self._numbers = itertools.count(1)
        self._outgoing: Connection | None = None
        #: Addresses at which attaching was refused, until it is tried again.
        self._refused: set[str] = set()
        #: Addresses at which records are sent again when a timer ends.
        self._timers: set[str] = set()
        self._parting = False
        self._refusal = RateLimitedLog(_log.warning)

    def uses(self, number: int) -> bool:
        """Whether a connection has a link in use, by its key."""
        return number in self._of_connections

    # Where the bridge connected out.

    def attach_by(self, outgoing: Connection) -> None:
        """Attach by this connection wherever something waits."""
        self._outgoing = outgoing
        # Timers ended with the connection before.
        self._refused.clear()
        self._timers.clear()
        for outbox in self.outboxes:
            self.send(outbox, outbox.addresses())
        if self.outboxes:
            self._later(_IDLE_SECONDS, partial(self._close_idle, outgoing))

    def send(self, outbox: Sends, addresses: Iterable[str]) -> None:
        """Send what an outbox has for some addresses."""
        for address in addresses:
            if self._outgoing is not None and not self._links.get(address):
                self._attach(outbox, address)
            self._send(outbox, address)

    def part(self) -> None:
        """Attach no more."""
        self._parting = True

    def close_unless(self, is_allowed: Callable[[Any, str], bool], condition: str, description: str) -> None:
        """Close the links, each given with its address, that are not allowed any more."""
        for sender in self._all():
            if not is_allowed(sender.link, sender.address):
                sender.link.delivering = None
                close(sender.link, condition, description)
                self._forget(sender)

    # What the other side does.

    def refusal(self, link: Any, identity: str | None) -> tuple[str, str] | None:
        """Return why a receiver may not attach; None when it may."""
        if not self.outboxes:
            return "amqp:not-allowed", "this bridge has no deliveries: attach a sender to cdc/REGION/NAME"
        reason = receiver_refusal(self.outboxes, link.remote_source.address or "", identity, demanded=self.demanded)
        if reason is None and link.remote_snd_settle_mode == _SETTLED:
            return "amqp:not-allowed", "deliveries are sent unsettled: they are to be acknowledged one by one"
        return reason

    def opening(self, link: Any) -> None:
        """Take the addresses of a receiver over that may attach."""
        link.sender_links = self
        address = link.remote_source.address
        link.source.copy(link.remote_source)
        link.target.copy(link.remote_target)
        link.snd_settle_mode = _UNSETTLED
        outbox = self._outbox_of(address)
        if outbox is not None:
            link.delivering = SenderLink(link, address, outbox)

    def opened(self, link: Any) -> None:
        """Take a link into use that is up from both sides; one that is about to be refused has no target."""
        sender: SenderLink | None = getattr(link, "delivering", None)
        if sender is None or (self._outgoing is not None and link.remote_target.address is None):
            return
        sender.is_open = True
        links = self._links.setdefault(sender.address, [])
        if sender not in links:
            links.append(sender)
            self._of_connections.add(link.connection, sender)
        _log.info("%s: link up, to %s", sender.address, link.connection.remote_container or "a nameless container")
        self._send(sender.outbox, sender.address)

    def flow(self, link: Any) -> None:
        """Send within the credit."""
        sender: SenderLink | None = getattr(link, "delivering", None)
        if sender is not None and sender.is_open:
            self._send(sender.outbox, sender.address)
            # A router that drains the link wants back at once what is left; otherwise nothing happens.
            link.drained()

    def updated(self, link: Any, delivery: Any) -> None:
        """Report the outcome of a delivery."""
        sender: SenderLink | None = getattr(link, "delivering", None)
        outcome = delivery.remote_state
        if sender is None or not (delivery.settled or outcome in {ACCEPTED, REJECTED, RELEASED, MODIFIED}):
            return
        entry = sender.sent.get(delivery.tag)
        if entry is not None:
            self._report(sender, entry, outcome, delivery)
            del sender.sent[delivery.tag]
            sender.settled_at = time.monotonic()
        delivery.settle()
        self._send(sender.outbox, sender.address)

    def closing(self, link: Any, reason: str) -> None:
        """Forget a link that the other side closed, with a reason or without."""
        sender: SenderLink | None = getattr(link, "delivering", None)
        if sender is None:
            return
        self._forget(sender)
        if self._outgoing is None:
            _log.info("%s: link closed by the other side%s", sender.address, reason and f": {reason}")
            return
        if not sender.is_open or reason:
            shown = reason or "refused without a reason"
            self._refusal("%s: link closed by the other side: %s", sender.address, shown)
            sender.outbox.note(sender.address, shown)
        self._refused.add(sender.address)
        self._later(_ATTACH_AGAIN_SECONDS, partial(self._attach_again, sender.outbox, sender.address))

    def drop(self, connection: Any) -> None:
        """Forget the links of a connection that is gone."""
        for sender in self._of_connections.pop(connection):
            self._forget(sender)

    def drop_all(self) -> None:
        """Forget all links: their connections are gone."""
        self._outgoing = None
        for sender in self._all():
            self._forget(sender)

    # Steps of these.

    def _outbox_of(self, address: str) -> Sends | None:
        """Return what is sent to an address that a client attached to."""
        return outbox_of(self.outboxes, address)

    def _send(self, outbox: Sends, address: str) -> None:
        links = [sender for sender in self._links.get(address, ()) if sender.is_open]
        sending = True
        while sending:
            sending = False
            # One each in turn, where an address has several receivers.
            for sender in links:
                if sender.link.credit > 0 and (entry := outbox.take(address)) is not None:
                    self._put(sender, entry)
                    sending = True
        # Without credit, its coming has them sent.
        due = outbox.due(address) if any(sender.link.credit > 0 for sender in links) else None
        if due is not None and address not in self._timers:
            self._timers.add(address)
            # Timers may be early by a moment: the least delay keeps it from spinning.
            self._later(max(due, _LEAST_SECONDS), partial(self._send_again, outbox, address))
        if not links:
            outbox.note(address, "" if self._links.get(address) else "nobody receives from it")
        else:
            served = any(sender.sent or sender.link.credit > 0 for sender in links)
            hoarding = next(filter(None, (sender.hoarding() for sender in links)), "")
            outbox.note(address, hoarding or ("" if served else "its receiver gives no credit"))

    def _watch(self, sender: SenderLink) -> None:
        """Look again at what a receiver holds, for as long as it holds something."""
        if not sender.is_watched:
            sender.is_watched = True
            self._later(_UNSETTLED_SECONDS, partial(self._look_at, sender))

    def _look_at(self, sender: SenderLink) -> None:
        sender.is_watched = False
        if sender.is_open and sender.sent:
            self._send(sender.outbox, sender.address)
            self._watch(sender)

    def _send_again(self, outbox: Sends, address: str) -> None:
        self._timers.discard(address)
        self._send(outbox, address)

    def _put(self, sender: SenderLink, entry: Entry) -> None:
        try:
            data = self._encode(entry, sender.outbox.name)
        except Exception as caught:  # noqa: BLE001 - whatever it raises, it is about this record alone.
            error = doors.DELIVERY.refuse(caught, sender.outbox.name)
            sender.outbox.rejected(entry, UNREADABLE, error.message)
            return
        most = sender.link.remote_max_message_size
        if most and len(data) > most:
            sender.outbox.rejected(
                entry, TOO_LARGE, f"{len(data)} bytes as a message; its receiver takes {most} at most"
            )
            return
        tag = str(next(self._numbers))
        sender.used_at = time.monotonic()
        if not sender.sent:
            sender.settled_at = sender.used_at
            self._watch(sender)
        sender.sent[tag] = entry
        sender.link.delivery(tag)
        sender.link.stream(data)
        sender.link.advance()

    def _report(self, sender: SenderLink, entry: Entry, outcome: int, delivery: Any) -> None:
        if outcome == ACCEPTED:
            sender.outbox.accepted(entry)
        elif outcome == REJECTED:
            # Behind a router there are other receivers, and sources: words that are no text end nothing.
            condition = condition_of(delivery, sender.outbox.name) or Condition("")
            sender.outbox.rejected(entry, condition.name or "amqp:rejected", condition.description or "")
        elif outcome == MODIFIED and delivery.remote.undeliverable:
            sender.outbox.rejected(entry, "amqp:modified", "undeliverable here, by its receiver")
        else:
            sender.outbox.returned(entry)

    def _attach(self, outbox: Sends, address: str) -> None:
        if self._outgoing is None or self._parting or address in self._refused:
            return
        outgoing, name = self._outgoing, f"{self._name}/{address}/{next(self._numbers)}"
        link = outgoing.loop.attach_sender(outgoing.connection, address, name)
        sender = SenderLink(link, address, outbox)
        link.delivering, link.sender_links = sender, self
        self._links.setdefault(address, []).append(sender)
        self._of_connections.add(link.connection, sender)

    def _attach_again(self, outbox: Sends, address: str) -> None:
        self._refused.discard(address)
        if address in outbox.addresses() and not self._links.get(address):
            self._attach(outbox, address)

    def _forget(self, sender: SenderLink) -> None:
        links = self._links.get(sender.address, [])
        if sender in links:
            links.remove(sender)
            self._of_connections.discard(sender.link.connection, sender)
            if not links:
                del self._links[sender.address]
        sender.is_open = False
        lost, sender.sent = list(sender.sent.values()), {}
        # The last one first: each goes before the others.
        for entry in reversed(lost):
            sender.outbox.lost(entry)
        if lost or sender.address in sender.outbox.addresses():
            self._send(sender.outbox, sender.address)

    def _close_idle(self, outgoing: Connection) -> None:
        """Close links that nothing goes by: with an address for each branch there are many."""
        if self._outgoing is not outgoing or self._parting:
            return
        before = time.monotonic() - _IDLE_SECONDS
        for sender in self._all():
            if sender.used_at < before and not sender.sent and sender.address not in sender.outbox.addresses():
                self._forget(sender)
                sender.link.delivering = None
                sender.link.close()
        self._later(_IDLE_SECONDS, partial(self._close_idle, outgoing))

    def _all(self) -> list[SenderLink]:
        return [sender for links in self._links.values() for sender in links]
