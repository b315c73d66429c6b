"""The operator of the simulated bridges, who gives sources other partitions: stops the bridges, runs `headrace bridge move`, and
starts them with the changed file.

As people do it: a bridge may be forgotten, or its machine may stand still, so that it goes on with the former file for a while,
or is started with it again beside the others; the command may be killed in the middle, and is run again. Whatever happens, each
record is once in the partitions that its source has had, in their order.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

import bridge.kafka.client
import bridge.positions.survey
from headrace.errors import ReplicationError
from tests.simulation.bridges import BridgeProcess
from tests.simulation.scheduler import Process, Scheduler

#: After so many seconds bridges that do not end are killed, as a supervisor does it.
_KILL_SECONDS = 20.0
#: The topic has partitions for so many moves.
_MOST_MOVES = 15


class Operator:
    """Whoever changes partitions; `had` is what each source has had, the present partitions last."""

    def __init__(self, scheduler: Scheduler, bridges: Sequence[BridgeProcess], sources: Collection[str]) -> None:
        self._scheduler, self._bridges = scheduler, bridges
        self.had = {source: [number] for number, source in enumerate(sources)}
        #: Whether partitions are being changed.
        self.is_moving = False
        self.moves = 0

    @property
    def given(self) -> dict[str, list[int]]:
        """The partitions that each source has by the newest file."""
        return {source: [numbers[-1]] for source, numbers in self.had.items()}

    def move(self) -> None:
        """Give some sources a fresh partition, or one that another one leaves, to which they never come back."""
        if self.is_moving or self.moves == _MOST_MOVES:
            return
        self.moves += 1
        random = self._scheduler.random
        moved = random.sample(sorted(self.had), random.randint(1, len(self.had)))
        fresh = 1 + max(number for numbers in self.had.values() for number in numbers)
        others = [self.had[source][-1] for source in [*moved[1:], moved[0]]]
        is_swap = len(moved) > 1 and not any(
            number in self.had[source] for source, number in zip(moved, others, strict=True)
        )
        given = others if is_swap else range(fresh, fresh + len(moved))
        self.is_moving = True
        for source, number in zip(moved, given, strict=True):
            self.had[source].append(number)
        forgotten = random.choice([*self._bridges, None])
        for each in self._bridges:
            if each is not forgotten:
                each.wanted = False
                each.stop()
        self._run(moved, forgotten)

    def _run(self, moved: Collection[str], forgotten: BridgeProcess | None) -> None:
        """Run the command in a process of its own, which may be killed; then it is run again."""
        scheduler, random = self._scheduler, self._scheduler.random
        process = Process("operator")
        scheduler.spawn(process, "main", lambda: self._main(moved, forgotten))
        if random.random() < 0.3:
            scheduler.after(random.expovariate(1.0), lambda: self._kill(process, moved, forgotten))

    def _kill(self, process: Process, moved: Collection[str], forgotten: BridgeProcess | None) -> None:
        if self.is_moving:
            self._scheduler.trace("the operator's command is killed")
            self._scheduler.kill(process)
            self._run(moved, forgotten)

    def _main(self, moved: Collection[str], forgotten: BridgeProcess | None) -> None:
        scheduler, file = self._scheduler, self._bridges[0].with_sources(self.given)
        began = scheduler.now
        while True:
            try:
                admin = bridge.kafka.client.admin(file.kafka)
                held = bridge.positions.survey.move(file, admin, moved)
            except ReplicationError as error:
                scheduler.trace(f"not moved: {type(error).__name__} {error.message}")
                scheduler.sleep(1.0)
                if "has no committed position" in error.message and not any(each.runs for each in self._bridges):
                    # It has no records yet, and can simply start in its new partitions; nothing in Kafka would tell that to a
                    # bridge with the former file.
                    forgotten = None
                    moved = [source for source in moved if source not in error.message]
                    if not moved:
                        break
                if scheduler.now - began > _KILL_SECONDS:
                    self._kill_all()
            else:
                scheduler.trace(f"moved: { ({source: each.position for source, each in held.items()}) }")
                break
        self._go_on(self.given, forgotten)

    def _kill_all(self) -> None:
        for each in self._bridges:
            each.wanted = False
            each.crash()

    def _go_on(self, given: Mapping[str, list[int]], forgotten: BridgeProcess | None) -> None:
        """Start the bridges with the changed file; the forgotten one goes on with the former file until it is seen."""
        random, scheduler, move = self._scheduler.random, self._scheduler, self.moves

        def later(seconds: float, act: Callable[[], None]) -> None:
            # The next move has stopped all bridges, and starts them with a newer file.
            scheduler.after(seconds, lambda: act() if self.moves == move else None)

        for each in self._bridges:
            seconds = random.random() + (random.choice((5.0, 10.0, 30.0)) if each is forgotten else 0.0)
            if each is forgotten:
                # Whatever supervises it starts it again, with the file that it has.
                each.wanted = True
                later(random.random(), each.start)
            later(seconds, partial(each.replace, given))
        self.is_moving = False
