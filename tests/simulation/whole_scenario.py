"""The whole way: real edges, real bridges, a simulated network and a simulated Kafka, and everything that may go wrong on the
way.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headrace.position import Position
from tests.simulation.amqp_loop import present
from tests.simulation.amqp_router import Router
from tests.simulation.asking import Asking
from tests.simulation.bridges import OTHER_SOURCE, OTHER_TOPIC, TOPIC, BridgeProcess, draw_limits
from tests.simulation.deliveries import Deliveries
from tests.simulation.edges import Edge
from tests.simulation.faults import THEMES, WITH_DELETED, Faults
from tests.simulation.kafka_admin import AdminClient
from tests.simulation.kafka_broker import Broker
from tests.simulation.kafka_producer import Producer
from tests.simulation.kafka_reader import Reader
from tests.simulation.kafka_writer import RecordProducer
from tests.simulation.network import Network
from tests.simulation.operator import Operator
from tests.simulation.outcome import FailedRunError, first_difference
from tests.simulation.records import position_in
from tests.simulation.run_part import RunPart
from tests.simulation.scheduler import Scheduler
from tests.simulation.tables import TableDatabase, Tables
from tests.simulation.world import begin

#: How often it is looked whether all is there, in seconds.
_LOOK_SECONDS = 0.2
#: How often it is looked which links bridges keep, in seconds.
_LINKS_SECONDS = 5.0
#: Seconds that clocks of machines are ahead.
_CLOCKS = (0.0, 0.0, 1.0, -300.0, 3600.0, 80_000.0, -80_000.0)
#: Least and longest time that a message takes, in seconds: within one house, and around the world.
_LATENCIES = ((0.0002, 0.01), (0.0002, 0.01), (0.1, 0.3))
#: The same at Kafka, which may have slow disks.
_KAFKA_LATENCIES = ((0.0002, 0.004), (0.0002, 0.004), (0.01, 0.05))
#: No pause of credit is longer, in seconds.
_CREDIT_SECONDS = 6.0


class WholeScenario:
    """One run."""

    #: Faults end after so long, in virtual seconds; then everything has to arrive within the second time.
    faults, quiet = 90.0, 240.0
    #: How many runs have a source whose topic may be deleted.
    deleted = 0.2
    #: How many runs have an operator who gives sources other partitions again and again, whatever else goes wrong.
    moving = 0.35
    #: How many runs have alerts to branches.
    delivering = 0.3
    #: How many runs have sources with a topic for each table, and a registry.
    tabled = 0.25
    #: In how many runs where edges connect to bridges somebody else attaches to a source's address.
    doubled = 0.4
    #: How many runs have requests to edges.
    asking = 0.25

    def __init__(self, seed: int) -> None:
        self.scheduler = scheduler = Scheduler(seed)
        begin(scheduler)
        random = scheduler.random
        scheduler.preempt = random.choice((0.02, 0.1, 0.3))
        self.network = present["network"] = Network(scheduler)
        self.broker = Broker(
            scheduler, initial_rebalance_delay=random.choice((0.0, 3.0)), look_seconds=random.choice((1.0, 10.0))
        )
        for client in (Producer, RecordProducer, Reader, AdminClient):
            client.broker = self.broker  # type: ignore[attr-defined]
        self.network.splitting = random.choice((0.0, 0.1))
        self.network.latency = random.choice(_LATENCIES)
        self.broker.latency = random.choice(_KAFKA_LATENCIES)
        draw_limits(random)
        routed = random.random() < 0.5
        self._folder = tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None)
        sources = [f"region/s{n}" for n in range(random.choice((1, 2, 3)))]
        # Some for sources that are moved.
        self.broker.make(TOPIC, 20 * len(sources))
        self._moves = random.random() < self.moving
        bridges = random.choice((2, 2, 3) if self._moves else (1, 2, 2, 3))
        if routed:
            self.network.at["amqp://router"] = Router(self.network)
        if routed and random.random() < 0.3:
            self.network.overtaking = random.choice((0.0, 0.05))
            self.network.releasing = self.network.modifying = random.choice((0.0, 0.02))
        urls = ["amqp://router"] if routed else [f"amqp://bridge{n}:5672" for n in range(bridges)]
        options: dict[str, Any] = {
            "credit": random.choice((1, 4, 16)),
            "lanes": random.choice((1, 2, 3)),
            "session": random.choice((6.0, 8.0)),
            "spool_after": random.choice((5.0, 30.0)),
            "other": random.random() < self.deleted,
        }
        self._write_until = self.faults * max(random.random(), random.random())
        self._bursts = random.choice((0.0, 0.0, 0.2))
        self._look_at = 0.0
        self.parts = self._draw_parts(urls)
        options["sections"] = {name: each for part in self.parts for name, each in part.sections().items()}
        options["requests"] = ["status", "snapshot"] * ("requests" in options["sections"])
        options["streams"] = options["sections"].pop("streams", {})
        self.bridges = [BridgeProcess(scheduler, n, sources, urls[0], options) for n in range(bridges)]
        self.edges = [Edge(scheduler, source, urls, Path(self._folder.name), options) for source in sources]
        # What becomes of it is not judged: its records are gone, and its edge waits for an operator.
        self.others: list[Edge] = []
        if options["other"]:
            self.broker.make(OTHER_TOPIC, 1)
            self.others.append(Edge(scheduler, OTHER_SOURCE, urls, Path(self._folder.name), options))
        for asking in [part for part in self.parts if isinstance(part, Asking)]:
            asking.bridges, asking.edges = self.bridges, self.edges
        tables = [part for part in self.parts if isinstance(part, Tables)]
        for part in tables:
            folder = Path(self._folder.name)
            part.edges += [
                Edge(scheduler, each, urls, folder, options | {"database": TableDatabase}) for each in part.sources
            ]
        for each in [*self.bridges, *self.edges, *(edge for part in tables for edge in part.edges)]:
            each.clock = random.choice(_CLOCKS)
        self.operator = Operator(scheduler, self.bridges, sources)
        self._left = random.choice((5, 40, 120)) * len(sources)
        self._pace = self._write_until / self._left * len(sources)
        faults = Faults(scheduler, self.network, self.broker, self.bridges, self.edges, self.operator)
        self.broker.hang = faults.hangs
        if not routed and random.random() < self.doubled:
            double = faults.all()["edge double"]
            self.scheduler.after(random.random() * self.faults, lambda: self._fault("edge double", double))
        self._swarm(faults.all() | {name: step for part in self.parts for name, step in part.faults().items()})

    def _draw_parts(self, urls: list[str]) -> list[RunPart]:
        """Return what this run has beside its sources."""
        scheduler, parts = self.scheduler, list[RunPart]()
        if scheduler.random.random() < self.tabled:
            parts.append(Tables(scheduler, self.broker, until=self._write_until, calm_at=self.faults))
        if scheduler.random.random() < self.asking:
            parts.append(Asking(scheduler, self.broker, until=self._write_until, calm_at=self.faults))
        if scheduler.random.random() < self.delivering:
            parts.append(Deliveries(scheduler, self.broker, urls, until=self._write_until, calm_at=self.faults))
        return parts

    def run(self) -> None:
        """Run it; raise FailedRunError when something is not as it must be."""
        try:
            for each in self.bridges:
                self.scheduler.after(self.scheduler.random.random(), each.start)
            for edge in [*self.edges, *self.others]:
                edge.start()
                self.scheduler.after(self.scheduler.random.random(), lambda edge=edge: self._write(edge))
            for part in self.parts:
                part.start()
            self._look_at_links()
            done = self.scheduler.run(self._done, self.faults + self.quiet)
            if done:
                self.scheduler.run(lambda: False, self.scheduler.elapsed + _CREDIT_SECONDS)
            self._judge(done)
        finally:
            self.scheduler.end()
            self._folder.cleanup()

    def _look_at_links(self) -> None:
        """Fail where a bridge keeps links that are gone, now and every few seconds."""
        if kept := [link for each in self.bridges for link in each.kept()]:
            raise FailedRunError(f"links that are gone are kept: {kept}")
        self.scheduler.after(_LINKS_SECONDS, self._look_at_links)

    def _write(self, edge: Edge) -> None:
        random = self.scheduler.random
        # At times so much that it is sent in many batches.
        for _ in range(30 if random.random() < self._bursts else random.choice((0, 1, 1, 3))):
            edge.database.write(random.choice((1, 1, 2, 6)))
        if random.random() < 0.2:
            edge.database.idle()
        self._left -= 1
        if self._left > 0:
            self.scheduler.after(random.expovariate(1 / self._pace), lambda: self._write(edge))

    def _swarm(self, faults: dict[str, Callable[[], object]]) -> None:
        """Choose which faults there are in this run: few kinds go deeper than all at once, and some come close together."""
        random = self.scheduler.random
        # Two operators at once are none.
        left_out = {
            "topic deleted",
            "source leaves" if self._moves else random.choice(("bridge move", "source leaves")),
        }
        chosen = random.sample(sorted(faults.keys() - left_out), random.choice((0, 1, 2, 3, 5)))
        if self.others:
            chosen = ["topic deleted", *random.sample(WITH_DELETED, 2)]
        elif random.random() < 0.5:
            chosen = list(random.choice(self._themes()))
        if self._moves:
            chosen = [name for name in chosen if name not in left_out]
            step = faults["bridge move"]
            for _ in range(random.choice((2, 4))):
                self.scheduler.after(random.random() * self.faults, lambda: self._fault("bridge move", step))
        for _ in range(random.choice((1, 3, 6)) if chosen else 0):
            at, apart = random.random() * self.faults * 0.8, random.choice((0.05, 1.0, 6.0))
            for _ in range(random.choice((1, 2, 4))):
                at += random.expovariate(1 / apart)
                name = random.choice(chosen)
                self.scheduler.after(min(at, self.faults), lambda name=name: self._fault(name, faults[name]))

    def _themes(self) -> list[tuple[str, ...]]:
        """Return faults that go together, of which half are about what the run has beside its sources."""
        own = [each for part in self.parts for each in part.themes()]
        return own if own and self.scheduler.random.random() < 0.5 else list(THEMES)

    def _fault(self, name: str, step: Callable[[], object]) -> None:
        self.scheduler.trace(f"fault: {name}")
        step()

    def _done(self) -> bool:
        if any(each.stopped_by is not None for each in [*self.edges, *self.bridges]):
            return True
        if self.scheduler.elapsed < max(self.faults, self._look_at) or self.operator.is_moving:
            return False
        self._look_at = self.scheduler.elapsed + _LOOK_SECONDS
        if not all(part.is_done() for part in self.parts):
            return False
        return not self.broker.transactions.open() and all(
            edge.agent is not None
            and edge.database.slot >= edge.database.end
            and len(self._records(edge.source)) >= sum(each.rows for each in edge.database.log)
            for edge in self.edges
        )

    def _records(self, source: str) -> list[tuple[bytes, bytes]]:
        """Return the records of a source, from the partitions that it has had, one after the other."""
        name = b'"name":"%s"' % source.encode()
        logs = [self.broker.topics[TOPIC][number] for number in self.operator.had[source]]
        return [(entry.key, entry.value) for log in logs for _, entry in log.committed() if name in entry.value]

    def _judge(self, done: bool) -> None:
        for each in [*self.edges, *self.bridges]:
            if each.stopped_by is not None:
                raise FailedRunError(f"{each.name} ended: {type(each.stopped_by).__name__}: {each.stopped_by}")
        counts = []
        for edge in self.edges:
            records = self._records(edge.source)
            there = [position_in(value) for _, value in records]
            wanted = edge.database.changes()
            first_difference(edge.source, wanted, there)
            first_difference(edge.source, [edge.database.record(each) for each in wanted], records)
            counts.append(
                f"{edge.source}: {len(there)} of {len(wanted)}, slot {edge.database.slot} of {edge.database.end}"
            )
            if done and there:
                self._check_position(self.operator.had[edge.source][-1], edge.source, there[-1])
        if done and (lacking := [source for each in self.bridges for source in each.lacking_credit()]):
            raise FailedRunError(f"links have not all of their credit: {lacking}")
        for part in self.parts:
            part.judge(done=done)
            counts.append(part.shown())
        if not done:
            states = "\n".join(each.states() for each in self.bridges)
            raise FailedRunError(f"stalled: {'; '.join(counts)}\n{states}")

    def _check_position(self, number: int, source: str, last: Position) -> None:
        """The committed position agrees with the log."""
        texts = [
            group.offsets[TOPIC, number][1] for group in self.broker.groups.values() if (TOPIC, number) in group.offsets
        ]
        if not any(str(last) in text for text in texts):
            raise FailedRunError(f"{source}: its last record is {last}, committed is {texts}")


class DeliveriesScenario(WholeScenario):
    """One run with alerts to branches."""

    delivering = 1.0


class TablesScenario(WholeScenario):
    """One run with topics for tables, some of which are refused, and in some runs nothing else that goes wrong."""

    tabled = 1.0

    def _swarm(self, faults: dict[str, Callable[[], object]]) -> None:
        random = self.scheduler.random
        if random.random() < 0.7:
            super()._swarm(faults)
        else:
            # Whoever waits then waits for a table.
            self.network.latency, self.broker.latency = _LATENCIES[0], _KAFKA_LATENCIES[0]
            draw_limits(random, is_calm=True)
            for part in self.parts:
                if isinstance(part, Tables):
                    part.is_calm = True
        for _ in range(random.choice((1, 2, 3))):
            self.scheduler.after(random.random() * self.faults * 0.6, faults["table refused"])


class RequestsScenario(WholeScenario):
    """One run with requests to edges."""

    asking = 1.0


class LeaderlessScenario(WholeScenario):
    """One run in which half of the partitions have no leader for an hour."""

    faults = 3700.0
    moving = 0.0
    delivering = tabled = asking = 0.0

    def _swarm(self, faults: dict[str, Callable[[], object]]) -> None:
        """Have no other fault, and look at the others near the end of the hour."""
        gone = range((len(self.edges) + 1) // 2)
        self.scheduler.after(60.0, lambda: self._leave_without_leader(gone))
        self.scheduler.after(3500.0, lambda: self._look_at_others(gone))

    def _leave_without_leader(self, numbers: range) -> None:
        self.broker.leaderless_until.update({(TOPIC, number): self.scheduler.now + 3600.0 for number in numbers})

    def _look_at_others(self, numbers: range) -> None:
        """Fail unless what the others have now is in Kafka a minute later."""
        there = {
            number: sum(each.rows for each in edge.database.log)
            for number, edge in enumerate(self.edges)
            if number not in numbers
        }

        def look() -> None:
            for number, rows in there.items():
                result = sum(1 for _ in self.broker.topics[TOPIC][number].committed())
                if result < rows:
                    raise FailedRunError(f"{self.edges[number].source} waits for others: {result} of {rows} records")

        self.scheduler.after(60.0, look)
