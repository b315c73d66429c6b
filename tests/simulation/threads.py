"""Replaces `threading.Thread` and what is local to a thread, on the scheduler of the present run."""

import itertools
from collections import deque
from collections.abc import Callable
from typing import Any

from tests.simulation.scheduler import Task
from tests.simulation.world import world

_idents = itertools.count(1)


class Thread:
    """threading.Thread."""

    def __init__(
        self,
        group: None = None,
        target: Callable[..., object] | None = None,
        name: str | None = None,
        args: Any = (),
        kwargs: Any = None,
        *,
        daemon: bool | None = None,
    ) -> None:
        self._target, self._args, self._kwargs = target, args, kwargs or {}
        self.name, self.daemon = name or "thread", bool(daemon)
        self.ident: int | None = None
        self._task: Task | None = None
        self._ended: deque[Task] = deque()

    def start(self) -> None:
        scheduler = world.scheduler
        if self._task is not None:
            raise RuntimeError("threads can only be started once")
        process = scheduler.current.process if scheduler.current else scheduler.outside
        self.ident = next(_idents)
        self._task = scheduler.spawn(process, self.name, self._bootstrap)
        self._task.thread = self  # type: ignore[attr-defined]
        scheduler.point()

    def _bootstrap(self) -> None:
        try:
            self.run()
        finally:
            world.scheduler.wake(self._ended)

    def run(self) -> None:
        if self._target is not None:
            self._target(*self._args, **self._kwargs)

    def is_alive(self) -> bool:
        return self._task is not None and not self._task.done

    def join(self, timeout: float | None = None) -> None:
        scheduler = world.scheduler
        if self._task is None:
            raise RuntimeError("cannot join thread before it is started")
        until = None if timeout is None else scheduler.now + timeout
        while not self._task.done:
            left = None if until is None else until - scheduler.now
            if left is not None and left <= 0:
                return
            # The end of a task is seen a moment after it has waked who waits.
            if not scheduler.wait(self._ended, left if left is not None else 1.0):
                continue
            scheduler.sleep(0)


class Local:
    """threading.local."""

    def __getattr__(self, name: str) -> Any:
        try:
            return _values(self)[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: Any) -> None:
        _values(self)[name] = value


def _values(local: Local) -> dict[str, Any]:
    task = world.scheduler.current
    where = task.local if task is not None else world.outside
    return where.setdefault(id(local), {})


def current_thread() -> Any:
    task = world.scheduler.current
    return getattr(task, "thread", None) or _Main


class _Main:
    name, ident, daemon = "MainThread", 0, False
