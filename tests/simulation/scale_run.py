"""One run of many bridges and sources (tests/simulation/scale.py)."""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from edge.delivery.link import Sender
from edge.delivery.outbox import Outbox
from edge.observability.figures import Figures
from edge.records.batcher import Batcher
from headrace.configuration.edge import Interconnect
from headrace.position import Position
from tests.simulation.amqp_loop import present
from tests.simulation.amqp_router import Router
from tests.simulation.bridges import TOPIC, BridgeProcess
from tests.simulation.kafka_admin import AdminClient
from tests.simulation.kafka_broker import Broker
from tests.simulation.kafka_consumer import Consumer
from tests.simulation.kafka_producer import Producer
from tests.simulation.network import Network
from tests.simulation.scheduler import Process, Scheduler
from tests.simulation.world import begin

_EPOCH = 1_700_000_000
_URL = "amqp://router"


class _Source:
    """An edge's outbox and sender, with a batch of one change now and then."""

    def __init__(self, scheduler: Scheduler, name: str, unserved: set[str]) -> None:
        self.name, self._scheduler = name, scheduler
        #: Those of which no change was acknowledged yet.
        self._unserved = unserved
        start = Position.start(_EPOCH)
        self.outbox = Outbox(limit_bytes=1 << 20, tail=start, confirmed=1)
        self._batcher = Batcher(source=name, tail=start)
        self._commit = 100
        self.oldest: dict[int, float] = {}
        #: The longest time from a change to its acknowledgement, since it was last asked for.
        self.worst = 0.0
        self.outbox.wake_capture = self._acknowledged
        interconnect = msgspec.convert({"url": _URL}, Interconnect)
        self._sender = Sender(interconnect, name, self.outbox, Figures())
        scheduler.spawn(Process(f"edge {name}"), "main", self._sender.start)

    def change(self) -> None:
        """CaptureSession a change."""
        self._commit += 10
        self._batcher.begin(self._commit, 1)
        self._batcher.keys.append(b"k")
        self._batcher.values.append(b"{}")
        self._batcher.commit(self._commit + 5)
        sealed = self._batcher.seal()
        assert sealed is not None
        self.oldest[self._commit] = self._scheduler.now
        self.outbox.put([sealed])

    def _acknowledged(self) -> None:
        reached = self.outbox.progress()[0].commit
        for commit in [commit for commit in self.oldest if commit <= reached]:
            self.worst = max(self.worst, self._scheduler.now - self.oldest.pop(commit))
            self._unserved.discard(self.name)

    def waits(self) -> float:
        """Return the longest time, with that of what is still on the way, and begin again."""
        worst = max([self.worst, *(self._scheduler.now - at for at in self.oldest.values())])
        self.worst = 0.0
        return worst


class ScaleRun:
    """Many bridges."""

    def __init__(self, sources: int, bridges: int, restarts: int, kills: int, pace: float) -> None:
        self.scheduler = scheduler = Scheduler(1, preempt=0.0)
        begin(scheduler)
        self.network = present["network"] = Network(scheduler)
        self.network.at[_URL] = Router(self.network)
        self.broker = Broker(scheduler, initial_rebalance_delay=3.0)
        for client in (Producer, Consumer, AdminClient):
            client.broker = self.broker  # type: ignore[attr-defined]
        Producer.hang = staticmethod(lambda _what: 0.0)
        names = [f"region/s{n}" for n in range(sources)]
        self.broker.make(TOPIC, sources)
        self.bridges = [BridgeProcess(scheduler, n, names, _URL, {"credit": 16, "lanes": 2}) for n in range(bridges)]
        self._unserved = set(names)
        self.sources = [_Source(scheduler, name, self._unserved) for name in names]
        self._restarts, self._kills, self._pace = restarts, kills, pace

    def run(self) -> Iterator[tuple[str, Any]]:
        """Yield what was counted, with its name."""
        scheduler = self.scheduler
        for each in self.bridges:
            scheduler.after(scheduler.random.random() * 2, each.start)
        for source in self.sources:
            self._every(self._pace, source.change)
        serving = scheduler.run(lambda: not self._unserved, 300)
        yield "all sources served, seconds after the start", scheduler.elapsed if serving else -1.0
        yield from self._phase("the start", 10.0)
        yield from self._phase("10 s without an event", 10.0)
        for number in range(self._restarts):
            self.bridges[number].stop()
            self._wait(6.0)
        yield from self._phase(f"{self._restarts} bridges restarted in order, 6 s apart", 6.0)
        for number in range(self._kills):
            self.bridges[-1 - number].wanted = False
            process = self.bridges[-1 - number].process
            assert process is not None
            scheduler.kill(process)
        yield from self._phase(f"{self._kills} bridges killed", 20.0)
        scheduler.end()

    def _every(self, seconds: float, step: Callable[[], None]) -> None:
        def again() -> None:
            step()
            self.scheduler.after(seconds, again)

        self.scheduler.after(self.scheduler.random.random() * seconds, again)

    def _wait(self, seconds: float) -> None:
        self.scheduler.run(lambda: False, self.scheduler.elapsed + seconds)

    def _phase(self, name: str, seconds: float) -> Iterator[tuple[str, Any]]:
        """Yield what happened until some seconds from now, since the last one."""
        self._wait(seconds)
        before = getattr(self, "_before", {})
        group = next(iter(self.broker.groups.values()))
        self._before = now = {
            "requests to Kafka": self.broker.requests,
            "messages on AMQP": self.network.sent,
            "transactions": self.broker.transactions.transactions,
            "rebalances": group.rebalances,
        }
        for what, count in now.items():
            yield f"{name}: {what}", count - before.get(what, 0)
        waits = sorted(each.waits() for each in self.sources)
        yield f"{name}: a change's longest way, worst source, seconds", waits[-1]
        yield f"{name}: the same, median source", waits[len(waits) // 2]
        yield f"{name}: sources that waited for more than a second", sum(each > 1.0 for each in waits)
