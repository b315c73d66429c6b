"""A seeded scheduler: simulated threads, of which one runs at a time, over a virtual clock.

Each simulated thread is a greenlet, so blocking code runs as it is. Whoever calls a port (a lock, a condition, the clock,
Kafka, AMQP) passes through here, and the seed decides who goes on. Nothing depends on the machine's clock or its threads: a
seed repeats exactly. Code that runs outside any task (events) must not block.
"""

import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable, Iterator

import greenlet

#: The virtual clock's start, in seconds since 1970; the monotonic clock begins at `_BEGIN`.
_WALL, _BEGIN = 1_800_000_000.0, 1_000.0
#: Every look at the clock takes this long, in seconds, so that a loop until a deadline ends.
_TICK = 1e-6
#: A task that runs so often without any time passing is in a loop that ends never.
_SPIN = 200_000


class Killed(BaseException):
    """The process of this task was killed: nothing that it does from now on has any effect."""


class EndlessLoopError(Exception):
    """Tasks run without end and no time passes."""


class Process:
    """A simulated operating-system process: its tasks live and die together."""

    def __init__(self, name: str, clock: float = 0.0) -> None:
        self.name = name
        #: How many seconds its machine's clock is ahead.
        self.clock = clock
        self.alive = True
        #: None of its tasks runs before this time: its machine is frozen.
        self.paused_until = 0.0
        self.tasks: list[Task] = []
        #: What to do when it dies, as closing its connections.
        self.on_death: list[Callable[[], None]] = []


class Task:
    """A simulated thread."""

    def __init__(self, number: int, name: str, process: Process, function: Callable[[], object]) -> None:
        self.number = number
        self.name = name
        self.process = process
        self.function = function
        self.greenlet: greenlet.greenlet = None
        self.done = False
        self.failure: BaseException | None = None
        #: Counts the times that it waited, so that a late timer of an earlier wait is not taken for this one's.
        self.waits = 0
        self.ready = False
        self.notified = False
        self.kill = False
        self.local: dict[int, dict[str, object]] = {}

    def __repr__(self) -> str:
        return f"{self.process.name}:{self.name}"


class Scheduler:
    """One run of a seed."""

    def __init__(self, seed: int, *, preempt: float = 0.1, trace: int = 400) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.now = _BEGIN
        #: How likely a task that could go on is interrupted at a port.
        self.preempt = preempt
        self.main = greenlet.getcurrent()
        self.current: Task | None = None
        self.tail: deque[tuple[float, str, str]] = deque(maxlen=trace)
        self.on_trace: Callable[[str], None] | None = None
        self.outside = Process("outside")
        self.switches = 0
        self._ready: list[Task] = []
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count(1)
        self._tasks: list[Task] = []
        self._over = False

    # What happened, for people.

    def trace(self, what: str) -> None:
        """Note what happens."""
        who = repr(self.current) if self.current else "-"
        self.tail.append((self.now, who, what))
        if self.on_trace is not None:
            self.on_trace(f"{self.now - _BEGIN:12.6f} {who:32} {what}")

    def shown(self) -> Iterator[str]:
        """Yield the lines of what happened last."""
        for at, who, what in self.tail:
            yield f"{at - _BEGIN:12.6f} {who:32} {what}"

    @property
    def elapsed(self) -> float:
        """Seconds since the run began."""
        return self.now - _BEGIN

    # The clock.

    def monotonic(self) -> float:
        """Return the monotonic clock, as a task sees it."""
        self.now += _TICK
        return self.now

    def wall(self) -> float:
        """Return seconds since 1970, by the clock of the task's machine."""
        self.now += _TICK
        return _WALL + self.now + (self.current.process.clock if self.current is not None else 0.0)

    # For those who schedule.

    def after(self, seconds: float, step: Callable[[], None]) -> None:
        """Take a step, outside any task, after some seconds."""
        heapq.heappush(self._timers, (self.now + max(0.0, seconds), next(self._numbers), step))

    def spawn(self, process: Process, name: str, function: Callable[[], object]) -> Task:
        """Start a task."""
        task = Task(next(self._numbers), name, process, function)
        task.greenlet = greenlet.greenlet(lambda: self._body(task), parent=self.main)
        process.tasks.append(task)
        self._tasks.append(task)
        if process.alive:
            self._make_ready(task)
        else:
            task.done = True
        return task

    def _body(self, task: Task) -> None:
        try:
            if not task.kill:
                task.function()
        except Killed:
            pass
        except BaseException as error:  # noqa: BLE001 - reported by the run.
            task.failure = error
            self.trace(f"ended with {type(error).__name__}: {error}")
        finally:
            task.done = True

    def kill(self, process: Process) -> None:
        """End a process at once, whatever it does: none of its tasks takes another step that has an effect."""
        if not process.alive:
            return
        self.trace(f"{process.name} is killed")
        process.alive = False
        for task in process.tasks:
            task.kill = True
            if not task.done and task is not self.current:
                self._run(task)
        process.tasks = [task for task in process.tasks if not task.done]
        for step in process.on_death:
            step()
        process.on_death.clear()

    def _make_ready(self, task: Task) -> None:
        if not task.ready and not task.done:
            task.ready = True
            self._ready.append(task)

    # For those who run in a task.

    @property
    def may_block(self) -> bool:
        """Whether whoever calls runs in a task that lives."""
        return self.current is not None and not self.current.kill

    def check(self) -> None:
        """Raise Killed in a task whose process is dead."""
        task = self.current
        if task is not None and (task.kill or not task.process.alive):
            task.kill = True
            raise Killed

    def point(self) -> None:
        """Let another one go on, perhaps."""
        self.check()
        if self.current is not None and self.random.random() < self.preempt:
            self._make_ready(self.current)
            self._switch()

    def sleep(self, seconds: float) -> None:
        """Wait for some time."""
        self.check()
        if self.current is not None:
            self._wait(max(seconds, 0.0))

    def wait(self, waiters: "deque[Task] | list[Task]", seconds: float | None) -> bool:
        """Wait until `wake` is called with the same waiters, or for some seconds; return whether it was."""
        self.check()
        task = self.current
        if task is None:
            raise RuntimeError("nobody may block outside a task")
        waiters.append(task)
        notified = self._wait(seconds)
        if not notified and task in waiters:
            waiters.remove(task)
        return notified

    def wake(self, waiters: "deque[Task] | list[Task]", count: int | None = None) -> None:
        """Let those go on who wait."""
        while waiters and count != 0:
            task = waiters.popleft() if isinstance(waiters, deque) else waiters.pop(0)
            if not task.done:
                task.notified = True
                task.waits += 1
                self._make_ready(task)
            count = None if count is None else count - 1

    def _wait(self, seconds: float | None) -> bool:
        task = self.current
        assert task is not None
        task.waits += 1
        task.notified = False
        if seconds is not None:
            number = task.waits

            def over() -> None:
                if task.waits == number and not task.done:
                    self._make_ready(task)

            self.after(seconds, over)
        self._switch()
        return task.notified

    def _switch(self) -> None:
        self.main.switch()
        self.check()

    # The run.

    def _run(self, task: Task) -> None:
        before, self.current = self.current, task
        self.switches += 1
        # A task that was killed while it waits gets the kill where it waits. One killed by another runs on top of that one.
        task.greenlet.parent = greenlet.getcurrent()
        saved, self.main = self.main, greenlet.getcurrent()
        try:
            task.greenlet.switch()
        finally:
            self.current, self.main = before, saved

    def run(self, until: Callable[[], bool], limit: float) -> bool:
        """Run until something is true or the clock reaches a limit, in seconds since the start; return whether it is true."""
        limit += _BEGIN
        spun = 0
        while not until():
            now = self.now
            if self._timers and self._timers[0][0] <= now:
                heapq.heappop(self._timers)[2]()
                continue
            task = self._chosen()
            if task is not None:
                self._run(task)
                self.now += 5e-6
                spun += 1
                if spun > _SPIN:
                    raise EndlessLoopError(f"no wait in {_SPIN} steps; the last was {task!r}")
                continue
            if not self._timers or self._timers[0][0] > limit:
                self.now = max(self.now, limit)
                return until()
            spun = 0
            self.now = max(self.now, self._timers[0][0])
        return True

    def _chosen(self) -> Task | None:
        ready = self._ready
        while ready:
            index = self.random.randrange(len(ready)) if len(ready) > 1 else 0
            task = ready[index]
            ready[index] = ready[-1]
            ready.pop()
            task.ready = False
            if task.done:
                continue
            if task.process.paused_until > self.now:
                self.after(task.process.paused_until - self.now, lambda task=task: self._make_ready(task))
                continue
            return task
        return None

    def end(self) -> None:
        """End everything that still runs."""
        if not self._over:
            self._over = True
            for task in self._tasks:
                task.process.alive = False
                task.kill = True
            for _ in range(3):
                for task in self._tasks:
                    if not task.done:
                        self._run(task)
            self._tasks.clear()
            self._timers.clear()
            self._ready.clear()
