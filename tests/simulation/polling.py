"""Replaces `select.poll` and wake-ups, on the scheduler of the present run."""

import select as real_select

from tests.simulation.scheduler import Task
from tests.simulation.world import world


class Pipe:
    """What a poll can wait on: readable while `level` is above 0."""

    def __init__(self) -> None:
        self.number = 1_000_000 + len(world.readable)
        self.waiters: list[Task] = []
        self.level = 0
        world.readable[self.number] = self

    def fileno(self) -> int:
        return self.number

    def raise_(self) -> None:
        self.level = 1
        world.scheduler.wake(self.waiters)

    def lower(self) -> None:
        self.level = 0


class Poll:
    """select.poll over pipes."""

    def __init__(self) -> None:
        self._pipes: dict[int, Pipe] = {}

    def register(self, fd: int, _events: int = 0) -> None:
        self._pipes[fd] = world.readable[fd]

    def unregister(self, fd: int) -> None:
        del self._pipes[fd]

    def poll(self, milliseconds: float | None = None) -> list[tuple[int, int]]:
        scheduler = world.scheduler
        scheduler.point()
        until = None if milliseconds is None or milliseconds < 0 else scheduler.now + milliseconds / 1000
        while True:
            rows = [(number, real_select.POLLIN) for number, pipe in self._pipes.items() if pipe.level]
            if rows:
                return rows
            left = None if until is None else until - scheduler.now
            if left is not None and left <= 0:
                return []
            waiters: list[Task] = []
            for pipe in self._pipes.values():
                pipe.waiters.append(scheduler.current)  # type: ignore[arg-type]
            try:
                scheduler.wait(waiters, left)
            finally:
                for pipe in self._pipes.values():
                    pipe.waiters[:] = [task for task in pipe.waiters if task is not scheduler.current]


class Wakeup:
    """headrace.waiting.Wakeup."""

    def __init__(self) -> None:
        self._pipe = Pipe()
        self.fileno = self._pipe.fileno

    def notify(self) -> None:
        self._pipe.raise_()

    def clear(self) -> None:
        world.scheduler.point()
        self._pipe.lower()
