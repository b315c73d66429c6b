"""A simulated router between edges, bridges and branches: forwards by address to a receiver that has credit.

It does what real ones were seen to do (docs/network.md): a receiver lost with deliveries on the way gives *modified* for those
sent towards it, and a replacement may get later ones before they are sent again. Beyond what was seen, single deliveries are
overtaken, lost with an outcome of *modified* although they arrived, or released.
"""

import itertools
from typing import Any

from proton import Condition, Delivery

from headrace.amqp.links import Arriving
from tests.simulation.amqp_ends import Link
from tests.simulation.amqp_loop import Events
from tests.simulation.network import Network


class Router:
    """One router; it takes no time and never fails."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._events = Events(self)
        self.accept = self._events.accept
        self._numbers = itertools.count(1)
        #: Links of senders and of receivers, by address.
        self._senders: dict[str, list[Link]] = {}
        self._receivers: dict[str, list[Link]] = {}
        #: What each receiver has without an outcome, with the delivery that it came by.
        self._unsettled: dict[Link, dict[Any, Any]] = {}
        #: What is arriving from each sender.
        self._arriving: dict[Link, Arriving] = {}

    def on_connection_bound(self, event: Any) -> None:
        """Let deliveries be overtaken on the way from here."""
        event.connection.is_unordered = True

    def on_connection_remote_open(self, event: Any) -> None:
        """Let everybody in."""
        event.connection.container = "router"
        event.connection.open()

    def on_connection_remote_close(self, event: Any) -> None:
        """Answer a close."""
        self._forget(event.connection)
        event.connection.close()

    def on_transport_closed(self, event: Any) -> None:
        """Forget what is gone."""
        self._forget(event.connection)

    def on_link_remote_open(self, event: Any) -> None:
        """Take a link, to any address."""
        link = event.link
        link.source.copy(link.remote_source)
        link.target.copy(link.remote_target)
        link.open()
        address = _address(link)
        if link.is_sender:
            self._receivers.setdefault(address, []).append(link)
            self._unsettled[link] = {}
        else:
            self._senders.setdefault(address, []).append(link)
            self._arriving[link] = Arriving(1 << 30)
            self._flow(address)

    def on_link_remote_close(self, event: Any) -> None:
        """Forget a link."""
        self._drop(event.link)
        event.link.close()

    def on_link_flow(self, event: Any) -> None:
        """Pass credit on."""
        self._flow(_address(event.link))

    def on_delivery(self, event: Any) -> None:
        """Pass a delivery on, or its outcome back."""
        link, delivery = event.link, event.delivery
        if link.is_sender:
            original = self._unsettled.get(link, {}).pop(delivery, None)
            if original is not None:
                original.local = delivery.remote
                _settle(original, delivery.remote_state)
            return
        data = self._arriving[link].read(link, delivery)
        if data is None:
            return
        network, address = self._network, _address(link)
        there = [each for each in self._receivers.get(address, []) if each.credit > 0]
        if network.happens(network.releasing) or not there:
            _settle(delivery, Delivery.RELEASED)
            self._flow(address)
            return
        receiver = network.scheduler.random.choice(there)
        sent = receiver.delivery(str(next(self._numbers)))
        receiver.stream(data)
        receiver.advance()
        if network.happens(network.modifying):
            _settle(delivery, Delivery.MODIFIED)
        else:
            self._unsettled[receiver][sent] = delivery

    def close_link(self) -> None:
        """Close a receiver's link, as a router does that an operator has close it."""
        links = [link for links in self._receivers.values() for link in links]
        if links:
            link = self._network.scheduler.random.choice(links)

            def close() -> None:
                link.condition = Condition("amqp:link:detach-forced", "closed by an operator")
                self._drop(link)
                link.close()

            self._events.put(close)

    def _flow(self, address: str) -> None:
        there = sum(each.credit for each in self._receivers.get(address, []))
        for link in self._senders.get(address, []):
            if there > link.credit:
                link.flow(there - link.credit)

    def _forget(self, connection: Any) -> None:
        for link in connection.links:
            self._drop(link)

    def _drop(self, link: Link) -> None:
        links = (self._receivers if link.is_sender else self._senders).get(_address(link), [])
        if link in links:
            links.remove(link)
        self._arriving.pop(link, None)
        for delivery in self._unsettled.pop(link, {}).values():
            _settle(delivery, Delivery.MODIFIED)


def _address(link: Link) -> str:
    return str((link.remote_source if link.is_sender else link.remote_target).address)


def _settle(delivery: Any, outcome: int) -> None:
    delivery.update(outcome)
    delivery.settle()
