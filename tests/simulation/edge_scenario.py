"""The edge's half: real agents against a model of a bridge, with everything that may go wrong between the two and around the
edge.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.simulation.amqp_loop import present
from tests.simulation.amqp_router import Router
from tests.simulation.bridges import draw_limits
from tests.simulation.edges import Edge
from tests.simulation.model_bridge import ModelBridge
from tests.simulation.network import Network
from tests.simulation.outcome import FailedRunError, first_difference
from tests.simulation.scheduler import Scheduler
from tests.simulation.world import begin

#: Faults end after so long, in virtual seconds; then everything has to arrive within the second time.
_FAULTS, _QUIET = 90.0, 400.0
#: Faults that concern the same state.
_THEMES = (
    ("away", "guard", "edge crash"),
    ("away", "session lost", "edge crash"),
    ("away", "disk full", "edge crash", "guard"),
    ("bridge crash", "cut", "edge pause"),
)


class EdgeScenario:
    """One run."""

    def __init__(self, seed: int) -> None:
        self.scheduler = scheduler = Scheduler(seed)
        begin(scheduler)
        random = scheduler.random
        scheduler.preempt = random.choice((0.02, 0.1, 0.3))
        self.network = present["network"] = Network(scheduler)
        draw_limits(random)
        routed = random.random() < 0.6
        self._folder = tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None)
        options = {
            "kilobytes": random.choice((1, 4, 64)),
            "spool": random.choice((0, 1, 16, 16)),
            "spool_after": random.choice((0.0, 1.0, 5.0, 30.0)),
        }
        if routed:
            self.network.at["amqp://router"] = Router(self.network)
            if random.random() < 0.5:
                self.network.overtaking = random.choice((0.0, 0.05))
                self.network.releasing = random.choice((0.0, 0.02))
                self.network.modifying = random.choice((0.0, 0.02))
        url = "amqp://router" if routed else "amqp://bridge:5672"
        sources = [f"region/s{n}" for n in range(random.choice((1, 1, 2)))]
        self.edges = [Edge(scheduler, source, [url], Path(self._folder.name), options) for source in sources]
        for each in self.edges:
            each.database.padding = random.choice((0, 0, 400))
        self.bridge = ModelBridge(scheduler, self.network, sources, url)
        self._write_until = _FAULTS * random.random()
        self._left = random.choice((5, 40, 150))
        self._pace = self._write_until / self._left
        self._swarm(self._faults())

    def run(self) -> None:
        """Run it; raise FailedRunError when something is not as it must be."""
        try:
            self.bridge.start()
            for each in self.edges:
                each.start()
                self.scheduler.after(self.scheduler.random.random(), lambda each=each: self._write(each))
            done = self.scheduler.run(self._done, _FAULTS + _QUIET)
            self._judge(done)
        finally:
            self.scheduler.end()
            self._folder.cleanup()

    def _write(self, each: Edge) -> None:
        random = self.scheduler.random
        for _ in range(random.choice((0, 1, 1, 1, 4))):
            each.database.write(random.choice((1, 1, 2, 8)))
        if random.random() < 0.3:
            each.database.idle()
        self._left -= 1
        if self._left > 0:
            self.scheduler.after(random.expovariate(1 / self._pace), lambda: self._write(each))

    def _faults(self) -> dict[str, Callable[[], object]]:
        scheduler, random, network = self.scheduler, self.scheduler.random, self.network

        def one() -> Edge:
            return random.choice(self.edges)

        def away() -> None:
            network.unreachable_until = scheduler.now + random.choice((1, 10, 40))
            for wire in list(network.wires):
                wire.cut()

        def database_away() -> None:
            each = one()
            each.database.down_until = scheduler.now + random.choice((0.5, 5, 30))
            each.database.drop_sessions()

        def lose_session() -> None:
            one().database.drop_sessions()

        def pause() -> None:
            process = one().process
            assert process is not None
            scheduler.trace(f"{process.name} is frozen")
            process.paused_until = scheduler.now + random.choice((0.2, 3, 15))

        def guard() -> None:
            each = one()
            each.database.guarded = not each.database.guarded
            each.database.drop_sessions()

        return {
            "cut": network.cut,
            "away": away,
            "bridge crash": self.bridge.crash,
            "edge crash": lambda: one().crash(),
            "edge stop": lambda: one().stop(),
            "session lost": lose_session,
            "database down": database_away,
            "edge pause": pause,
            "guard": guard,
            "disk full": lambda: one().fill_disk(random.choice((0.5, 5, 20))),
        }

    def _swarm(self, faults: dict[str, Callable[[], object]]) -> None:
        """Choose which faults there are in this run: few kinds go deeper than all at once, and some come close together."""
        random = self.scheduler.random
        chosen = random.sample(sorted(faults), random.choice((0, 1, 2, 3, 3, 5)))
        if random.random() < 0.5:
            chosen = list(random.choice(_THEMES))
        for _ in range(random.choice((1, 3, 8)) if chosen else 0):
            at, apart = random.random() * _FAULTS * 0.8, random.choice((0.05, 0.5, 4.0))
            for _ in range(random.choice((1, 2, 4))):
                at += random.expovariate(1 / apart)
                name = random.choice(chosen)
                self.scheduler.after(min(at, _FAULTS), lambda name=name: self._fault(name, faults[name]))

    def _fault(self, name: str, step: Callable[[], object]) -> None:
        self.scheduler.trace(f"fault: {name}")
        step()

    def _done(self) -> bool:
        if any(each.stopped_by is not None for each in self.edges):
            return True
        if self.scheduler.elapsed < _FAULTS:
            return False
        return all(
            len(self.bridge.records[each.source]) >= sum(one.rows for one in each.database.log)
            and each.agent is not None
            and each.database.slot >= each.database.end
            for each in self.edges
        )

    def _judge(self, done: bool) -> None:
        for each in self.edges:
            if each.stopped_by is not None:
                raise FailedRunError(f"{each.source} ended: {type(each.stopped_by).__name__}: {each.stopped_by}")
            first_difference(each.source, each.database.changes(), self.bridge.records[each.source])
        if not done:
            shown = ", ".join(
                f"{each.source}: {len(self.bridge.records[each.source])} of {len(each.database.changes())} changes, "
                f"slot {each.database.slot} of {each.database.end}"
                for each in self.edges
            )
            raise FailedRunError(f"stalled: {shown}")
