"""Replaces the bridge's Receiver: the real credit manager and inboxes over the simulated network."""

from collections.abc import Callable, Mapping
from typing import Any

from bridge.amqp.credit import CreditManager
from bridge.model.delivery import Accept, Reject
from tests.simulation.edge_loop import present
from tests.simulation.network import (
    ACCEPTED,
    REJECTED,
    RELEASED,
    Network,
    Parcel,
    Receiving,
    Router,
    Sender,
    Wire,
    Work,
)
from tests.simulation.world import world


class Condition:
    """An AMQP condition."""

    def __init__(self, name: str, description: str) -> None:
        self.name, self.description = name, description


class Receiver:
    """What sources ask for, and what the network brings, done in the receiver's own task."""

    def __init__(self, interconnect: Any, inboxes: Mapping[str, Any], name: str) -> None:
        self._interconnect = interconnect
        self._network: Network = present["network"]
        self._inboxes = inboxes
        self._refused: dict[str, tuple[str, str]] = {}
        self._admitted: set[str] = set()
        self._url = f"amqp://{interconnect.listen}" if interconnect.listen else interconnect.urls[0]
        self.credit = CreditManager(interconnect.credit, self._settle, self._later)
        self._process = world.scheduler.current.process  # type: ignore[union-attr]
        self._work: Work | None = None
        self._wire: Wire | None = None
        self._attached: list[Wire] = []
        self._stopping = False
        self.failure: BaseException | None = None
        self.port = 5672
        self.connected = False

    # What the bridge asks for, from any task.

    def start(self) -> None:
        """Listen, or connect out."""
        self._work = Work(world.scheduler, self._process, "receiver")
        for step in self.early:
            self._work.ask(step)
        if self._interconnect.listen is not None:
            self.connected = True
            self._network.at[self._url] = self
            self._process.on_death.append(self._gone)
        else:
            self._ask(self._connect)

    def stop(self, seconds: float) -> None:
        """Close all links."""
        self._stopping = True
        self._ask(self._part)
        world.scheduler.sleep(min(seconds, 0.1))
        if self._work is not None:
            self._work.stop()
        self._gone()

    def settle(self, outcomes: list[tuple[int, Any]]) -> None:
        """Settle deliveries by ticket."""
        if outcomes:
            self._ask(lambda: self.credit.settle(outcomes))

    def refuse(self, source: str, condition: str, description: str) -> None:
        """Close the source's link, and any that comes later."""
        self._ask(lambda: self._refuse(source, condition, description))

    def admit(self, source: str) -> None:
        """Take the source's links again."""
        self._ask(lambda: self._admit(source))

    def use(self, routes: Mapping[str, Any], interconnect: Any) -> None:
        """Take links of the sources of a changed file alone."""

        def take() -> None:
            gone = [source for source in self._inboxes if source not in routes]
            self._inboxes = routes
            for source in gone:
                feed = self.credit.of(source)
                if feed is not None:
                    self.credit.drop(feed)
                    feed.link.close(Condition("amqp:not-found", "no such source"))

        self._ask(take)

    def deliver(self, outboxes: Any) -> None:
        """Nothing is delivered to regions here."""

    def send(self, outbox: Any, addresses: Any) -> None:
        """Nothing is delivered to regions here."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        """Pass what concerns credit on to the credit manager, in the receiver's task."""
        target = getattr(self.__dict__["credit"], name)

        def ask(*arguments: Any) -> None:
            self._ask(lambda: target(*arguments))

        return ask

    def _ask(self, step: Callable[[], None]) -> None:
        world.scheduler.point()
        if self._work is not None:
            self._work.ask(step)
        else:
            self.early.append(step)

    @property
    def early(self) -> list[Callable[[], None]]:
        """What was asked for before it started."""
        result: list[Callable[[], None]] = self.__dict__.setdefault("_early", [])
        return result

    # In the receiver's task.

    def _later(self, seconds: float, step: Callable[[], None]) -> None:
        world.scheduler.after(seconds, lambda: self._brought(step))

    def _brought(self, step: Callable[[], None]) -> None:
        if self._process.alive and self._work is not None and not self._work.stopped:
            self._work.ask(step)

    def _settle(self, delivery: Any, outcome: Any) -> None:
        link, tag = delivery
        if isinstance(outcome, Accept):
            link.outcome(tag, ACCEPTED)
        elif isinstance(outcome, Reject):
            link.outcome(tag, REJECTED, Condition(outcome.condition, outcome.description))
        else:
            link.outcome(tag, RELEASED)

    def _refuse(self, source: str, condition: str, description: str) -> None:
        self._refused[source] = (condition, description)
        self._admitted.discard(source)
        feed = self.credit.of(source)
        if feed is not None:
            self.credit.drop(feed)
            feed.link.close(Condition(condition, description))

    def _admit(self, source: str) -> None:
        self._refused.pop(source, None)
        self._admitted.add(source)
        if self.credit.of(source) is None and self._interconnect.listen is None:
            self._receive(source)

    def _part(self) -> None:
        self._gone()

    def _gone(self) -> None:
        if self._network.at.get(self._url) is self:
            del self._network.at[self._url]
        for wire in self._attached:
            wire.cut(quiet=1)
        if self._wire is not None:
            self._wire.cut(quiet=0)

    def _opened(self, link: Any, source: str) -> None:
        former = self.credit.of(source)
        if former is not None:
            self.credit.drop(former)
            former.link.close(Condition("amqp:link:stolen", "a newer link was attached"))
        self.credit.open(source, link)

    def _drop(self, link: Any) -> None:
        feed = self.credit.of(link.fed)
        if feed is not None and feed.link is link:
            self.credit.drop(feed)

    # What the network brings: where edges attach.

    def attach(self, link: Sender) -> None:
        """An edge attaches."""
        link.fed = link.address.removeprefix("cdc/")
        link.wire.on_lost[1] = lambda: self._brought(lambda: self._drop(link))
        self._attached = [wire for wire in self._attached if wire.alive]
        self._attached.append(link.wire)

        def take() -> None:
            link.opened()
            reason = self._refused.get(link.fed)
            if link.fed not in self._inboxes:
                reason = "amqp:not-found", "no such source"
            if reason is not None:
                link.close(Condition(*reason))
            else:
                self._opened(link, link.fed)

        self._brought(take)

    def detach(self, link: Any) -> None:
        """An edge closes its link."""
        self._brought(lambda: self._drop(link))

    def transfer(self, link: Any, tag: str, parcel: Parcel) -> None:
        """A delivery comes."""

        def take() -> None:
            if isinstance(link, Sender):
                link.credit -= 1
            feed = self.credit.of(link.fed)
            if feed is not None and feed.link is link:
                self.credit.received(feed, (link, tag), parcel.properties, parcel.encoding, parcel.body)
            else:
                link.outcome(tag, RELEASED)

        self._brought(take)

    # Where the bridge connects out, to a router.

    def _connect(self) -> None:
        if self._stopping or not self._process.alive:
            return
        router = self._network.at.get(self._url)
        if router is None or world.scheduler.now < self._network.unreachable_until:
            self._later(1.0, self._connect)
            return
        self._wire = wire = Wire(self._network, f"{self._process.name} to {self._url}")
        self._process.on_death.append(lambda: wire.cut(quiet=0))
        links: list[Receiving] = []

        def lost_here() -> None:
            self._brought(lambda: [self.credit.drop(feed) for feed in self.credit.all()])
            self.connected = False
            self._later(0.5, self._connect)

        wire.on_lost[0] = lost_here
        wire.on_lost[1] = lambda: [router.lost(link) for link in links] and None
        wire.links = links  # type: ignore[attr-defined]
        self.connected = True
        for source in sorted(self._admitted):
            self._receive(source)

    def _receive(self, source: str) -> None:
        wire = self._wire
        router = self._network.at.get(self._url)
        if source in self._refused or wire is None or not wire.alive or not isinstance(router, Router):
            return
        link = Receiving(router, wire, f"cdc/{source}", self)
        link.fed = source
        wire.links.append(link)  # type: ignore[attr-defined]

        def attached() -> None:
            router.receive(link)
            wire.send(0, lambda: self._brought(lambda: self._opened(link, source) if link.open else None))

        wire.send(1, attached)
