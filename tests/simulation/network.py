"""A simulated AMQP network: connections from edges to a bridge that listens, or to a router that forwards to bridges.

A connection keeps its order. When it is cut, what was on the way in either direction is gone, and each side learns it in its
own time. The router does what real ones were seen to do (docs/network.md): a receiver lost with deliveries on the way gives
*modified* for those sent towards it and *released* for the rest, and a replacement may get later ones before they are sent
again. Beyond what was seen, single deliveries are overtaken, lost with an outcome of *modified* although they arrived, or
released.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

from proton import Delivery

from tests.simulation.scheduler import Process, Scheduler, Task

ACCEPTED, REJECTED, RELEASED, MODIFIED = Delivery.ACCEPTED, Delivery.REJECTED, Delivery.RELEASED, Delivery.MODIFIED


class Parcel:
    """One AMQP message: what a batch's message has that matters here."""

    def __init__(self, properties: dict[str, Any], encoding: str, body: bytes) -> None:
        self.properties, self.encoding, self.body = properties, encoding, body


class Network:
    """What addresses there are, and how bad the way to them is."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        #: Who answers at a URL: has `attach(link)`.
        self.at: dict[str, Any] = {}
        self.latency = (0.0002, 0.01)
        #: How likely a router lets one be overtaken, gives one back as released, or as modified although it arrived.
        self.overtaking = self.releasing = self.modifying = 0.0
        self.wires: list[Wire] = []
        self.unreachable_until = 0.0
        self.sent = 0

    def travel(self) -> float:
        """Return how long the next message takes."""
        least, most = self.latency
        return least + (most - least) * self.scheduler.random.random() ** 2

    def happens(self, likely: float) -> bool:
        """Draw."""
        return bool(likely) and self.scheduler.random.random() < likely

    def cut(self) -> None:
        """Cut some connection."""
        alive = [wire for wire in self.wires if wire.alive]
        if alive:
            self.scheduler.random.choice(alive).cut()


class Wire:
    """A connection between two sides; each side is called by what the other one sends, in order."""

    def __init__(self, network: Network, name: str) -> None:
        self.network, self.name = network, name
        self.alive = True
        self._newest = [0.0, 0.0]
        #: Called on each side when it learns that the connection is gone.
        self.on_lost: list[Callable[[], None]] = [lambda: None, lambda: None]
        network.wires = [wire for wire in network.wires if wire.alive]
        network.wires.append(self)

    def send(self, side: int, step: Callable[[], None], *, overtaking: bool = False) -> None:
        """Have a step taken on a side, 0 or 1, after all that were sent there before."""
        network = self.network
        network.sent += 1
        at = network.scheduler.now + network.travel()
        if not (overtaking and network.happens(network.overtaking)):
            at = self._newest[side] = max(at, self._newest[side])
        network.scheduler.after(at - network.scheduler.now, lambda: step() if self.alive else None)

    def cut(self, quiet: int | None = None) -> None:
        """Cut it; the side `quiet`, which has ended itself, gets no event."""
        if not self.alive:
            return
        self.alive = False
        scheduler = self.network.scheduler
        scheduler.trace(f"connection {self.name} is cut")
        for side in (0, 1):
            if side != quiet:
                # A reset is seen at once, a half-open connection after its idle time.
                late = 10.0 if quiet is None and scheduler.random.random() < 0.2 else 0.05
                scheduler.after(scheduler.random.random() * late, self.on_lost[side])


class Sender:
    """A sender's link, as the far side sees it: an edge's, or an edge's through a router."""

    def __init__(self, wire: Wire, address: str) -> None:
        self.wire, self.address = wire, address
        self.fed = ""
        self.edge: Any = None
        #: As the far side sees it: what it gave and got nothing for yet.
        self.credit = 0

    def opened(self) -> None:
        """Answer the attach."""
        self.wire.send(0, self.edge.opened)

    def flow(self, count: int) -> None:
        """Give credit."""
        self.credit += count
        self.wire.send(0, lambda: self.edge.flowed(count))

    def outcome(self, tag: str, state: Any, condition: Any = None) -> None:
        """Tell what became of a delivery."""
        self.wire.send(0, lambda: self.edge.settled(tag, state, condition))

    def close(self, condition: Any) -> None:
        """Close the link."""
        self.wire.send(0, lambda: self.edge.closed(condition))


class Work:
    """Steps that a task of a process takes in order, whoever asks for them."""

    def __init__(self, scheduler: Scheduler, process: Process, name: str) -> None:
        self._scheduler = scheduler
        self._steps: deque[Callable[[], None]] = deque()
        self._waiters: deque[Task] = deque()
        self.process = process
        self.stopped = False
        self.failure: BaseException | None = None
        scheduler.spawn(process, name, self._run)

    def ask(self, step: Callable[[], None]) -> None:
        """Have a step taken."""
        self._steps.append(step)
        self._scheduler.wake(self._waiters)

    def stop(self) -> None:
        """Take no more."""
        self.stopped = True
        self._scheduler.wake(self._waiters)

    def _run(self) -> None:
        while not self.stopped:
            if not self._steps:
                self._scheduler.wait(self._waiters, None)
            while self._steps:
                self._scheduler.point()
                if self._steps:
                    self._steps.popleft()()


class Router:
    """A router between edges and bridges: forwards by address to a receiver that has credit."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._scheduler = network.scheduler
        self._senders: dict[str, list[Sender]] = {}
        self._receivers: dict[str, list[Receiving]] = {}
        #: Deliveries on the way to a receiver, with their tags.
        self._given: dict[str, int] = {}

    def attach(self, link: Sender) -> None:
        """An edge attached."""
        link.opened()
        for former in self._senders.get(link.address, []):
            former.wire.alive = former.wire.alive and former.wire is not link.wire
        self._senders[link.address] = [link]
        self._given[link.address] = 0
        link.wire.on_lost[1] = lambda: self._gone(link)
        self._flow(link.address)

    def detach(self, link: Sender) -> None:
        """An edge closed its link."""
        self._gone(link)

    def _gone(self, link: Sender) -> None:
        if link in self._senders.get(link.address, []):
            self._senders[link.address].remove(link)

    def transfer(self, link: Sender, tag: str, parcel: Parcel) -> None:
        """An edge sent a batch."""
        self._given[link.address] = max(0, self._given.get(link.address, 0) - 1)
        network = self._network
        if network.happens(network.releasing):
            link.outcome(tag, RELEASED)
            self._flow(link.address)
            return
        receivers = [each for each in self._receivers.get(link.address, []) if each.credit > 0]
        if not receivers:
            link.outcome(tag, RELEASED)
            return
        self._scheduler.random.choice(receivers).give(link, tag, parcel)

    def receive(self, receiving: "Receiving") -> None:
        """A bridge attached."""
        self._receivers.setdefault(receiving.address, []).append(receiving)

    def lost(self, receiving: "Receiving") -> None:
        """A bridge is gone: its deliveries are in doubt."""
        if receiving in self._receivers.get(receiving.address, []):
            self._receivers[receiving.address].remove(receiving)
        for link, tag in list(receiving.unsettled.values()):
            link.outcome(tag, MODIFIED)
        receiving.unsettled.clear()

    def flowed(self, address: str) -> None:
        """A bridge gave credit."""
        self._flow(address)

    def _flow(self, address: str) -> None:
        there = sum(each.credit for each in self._receivers.get(address, []))
        for link in self._senders.get(address, []):
            more = there - self._given.get(address, 0)
            if more > 0:
                self._given[address] = self._given.get(address, 0) + more
                link.flow(more)


class Receiving:
    """A bridge's receiving link at a router; looks like a sender's link to the bridge."""

    def __init__(self, router: Router, wire: Wire, address: str, bridge: Any) -> None:
        self._router, self.wire, self.address, self._bridge = router, wire, address, bridge
        self.fed = ""
        self.credit = 0
        self.unsettled: dict[str, tuple[Sender, str]] = {}
        self._numbers = 0
        #: What the bridge has seen.
        self.open = True

    def flow(self, count: int) -> None:
        """Give credit."""

        def at_router() -> None:
            self.credit += count
            self._router.flowed(self.address)

        self.wire.send(1, at_router)

    def give(self, link: Sender, tag: str, parcel: Parcel) -> None:
        """Send one to the bridge."""
        network = self.wire.network
        self._numbers += 1
        number = str(self._numbers)
        self.credit -= 1
        self.unsettled[number] = (link, tag)
        self.wire.send(0, lambda: self._bridge.transfer(self, number, parcel), overtaking=True)
        if network.happens(network.modifying):
            link.outcome(tag, MODIFIED)
            del self.unsettled[number]

    def outcome(self, tag: str, state: Any, condition: Any = None) -> None:
        """The bridge tells what became of one."""

        def at_router() -> None:
            link, original = self.unsettled.pop(tag, (None, ""))
            if link is not None:
                link.outcome(original, state, condition)

        self.wire.send(1, at_router)

    def close(self, _condition: Any) -> None:
        """The bridge closes its link."""
        self.open = False
        self.wire.send(1, lambda: self._router.lost(self))
