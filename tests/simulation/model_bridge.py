"""A small bridge for the edge's half: the real chain and credit, and commits that are durable after a while or not at all."""

from types import SimpleNamespace
from typing import Any

import msgspec

from bridge.amqp.receiver import Receiver
from bridge.model.chain import judge
from bridge.model.delivery import Accept, Reject, Release
from headrace.batch import decode
from headrace.configuration.bridge import Interconnect
from headrace.position import Position
from tests.simulation.network import Network
from tests.simulation.scheduler import Process, Scheduler
from tests.simulation.world import world


class _Inbox:
    def __init__(self, bridge: "ModelBridge", source: str) -> None:
        self._bridge, self._source = bridge, source

    def put(self, delivery: Any) -> bool:
        """Judge it at once."""
        self._bridge.take(self._source, delivery)
        return True

    def drop(self, link: int) -> None:
        """Nothing is kept."""


class ModelBridge:
    """Takes batches by the chain's rule."""

    def __init__(self, scheduler: Scheduler, network: Network, sources: list[str], url: str) -> None:
        self.scheduler, self._url, self._sources = scheduler, url, sources
        #: What is durable, and what is not yet.
        self.tails: dict[str, Position | None] = dict.fromkeys(sources)
        self.records: dict[str, list[Position]] = {source: [] for source in sources}
        self.starts = 0
        self.process: Process | None = None

    def start(self) -> None:
        """Start its process."""
        self.starts += 1
        self.process = Process(f"bridge {self.starts}")
        self.scheduler.spawn(self.process, "main", self._main)

    def crash(self) -> None:
        """Kill it; it is started again."""
        if self.process is not None and self.process.alive:
            self.scheduler.kill(self.process)
            self.scheduler.after(self.scheduler.random.random() * 5, self.start)

    def _main(self) -> None:
        self._tails = dict(self.tails)
        self._open: dict[str, list[tuple[Any, list[Position], Position]]] = {}
        where = {"url": self._url} if self._url == "amqp://router" else {"listen": self._url.removeprefix("amqp://")}
        credit = self.scheduler.random.choice((1, 2, 8, 32))
        interconnect = msgspec.convert(where | {"credit": credit}, Interconnect)
        inboxes = {source: _Inbox(self, source) for source in self._sources}
        self._receiver = Receiver(interconnect, inboxes, "model")
        self._receiver.start()
        for source, inbox in inboxes.items():
            self._receiver.admit(source)
            self._receiver.grant(SimpleNamespace(source=source, inbox=inbox))

    def take(self, source: str, delivery: Any) -> None:
        """Judge a delivery; what is new of it is committed a little later."""
        batch = decode(delivery.properties, delivery.content_encoding, delivery.body)
        tail = self._tails[source]
        verdict = judge(tail, batch)
        kind = type(verdict).__name__
        if kind == "Stale":
            self._receiver.settle([(delivery.ticket, Reject("headrace:stale-epoch", "stale"))])
        elif kind == "Gap":
            self._receiver.settle([(delivery.ticket, Release(0.0))])
        else:
            fresh = list(batch.positions())[verdict.begin :] if kind == "Next" else []
            if kind == "Next":
                self._tails[source] = batch.last
            last = self._tails[source]
            assert last is not None
            open_ = self._open.setdefault(source, [])
            open_.append((delivery.ticket, fresh, last))
            if len(open_) == 1:
                process = self.process
                world.scheduler.after(world.scheduler.random.random() ** 4 * 0.5, lambda: self._commit(process, source))

    def _commit(self, process: Any, source: str) -> None:
        if process.alive:
            done = self._open.pop(source, [])
            if world.scheduler.random.random() < 0.03:
                self._tails[source] = self.tails[source]
                self._receiver.settle([(ticket, Release(0.0)) for ticket, _, _ in done])
                return
            for _, fresh, last in done:
                self.records[source] += fresh
                self.tails[source] = last
            self._receiver.settle([(ticket, Accept()) for ticket, _, _ in done])
