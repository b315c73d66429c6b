"""Stands in for the modules `threading`, `queue`, `time`, `select`, `random` and the like, over the scheduler of the present
run.

The code under simulation is imported with these in place (loading.py), so its classes inherit from these threads and wait on
these conditions. `world.scheduler` is set for each run.
"""

import datetime as real_datetime  # noqa: ICN001 - beside its stand-in.
import itertools
import queue as real_queue
import random as real_random
import select as real_select
import sqlite3 as real_sqlite3
import threading as real_threading
import time as real_time
import types
import uuid as real_uuid
from collections import deque
from collections.abc import Callable
from typing import Any

from tests.simulation.scheduler import Process, Scheduler, Task


class World:
    """What the stand-ins work on now."""

    scheduler: Scheduler
    #: Objects that can be waited on by poll: their numbers, and whether each can be read.
    readable: dict[int, "Pipe"]


world = World()


class Lock:
    """threading.Lock, and with `again` RLock."""

    def __init__(self, *, again: bool = False) -> None:
        self._again = again
        self._owner: Task | str | None = None
        self._depth = 0
        self._waiters: deque[Task] = deque()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        scheduler = world.scheduler
        me = scheduler.current or "main"
        if self._again and self._owner is me:
            self._depth += 1
            return True
        scheduler.point()
        deadline = None if timeout < 0 else scheduler.now + timeout
        while self._owner is not None and not _gone(self._owner):
            if not blocking:
                return False
            left = None if deadline is None else deadline - scheduler.now
            if left is not None and left <= 0:
                return False
            scheduler.wait(self._waiters, left)
        self._owner, self._depth = me, 1
        return True

    def release(self) -> None:
        self._depth -= 1
        if self._depth <= 0:
            self._owner = None
            world.scheduler.wake(self._waiters, 1)

    def locked(self) -> bool:
        return self._owner is not None

    def owned(self) -> bool:
        return self._owner is (world.scheduler.current or "main")

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


def _gone(owner: Task | str) -> bool:
    return isinstance(owner, Task) and owner.done


class Condition:
    """threading.Condition."""

    def __init__(self, lock: Lock | None = None) -> None:
        self._lock = lock or Lock(again=True)
        self._waiters: deque[Task] = deque()
        self.acquire, self.release = self._lock.acquire, self._lock.release

    def __enter__(self) -> bool:
        return self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        depth, self._lock._depth = self._lock._depth, 1
        self._lock.release()
        try:
            return world.scheduler.wait(self._waiters, timeout)
        finally:
            if world.scheduler.may_block:
                self._lock.acquire()
                self._lock._depth = depth

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        scheduler = world.scheduler
        until = None if timeout is None else scheduler.now + timeout
        while not (result := predicate()):
            left = None if until is None else until - scheduler.now
            if left is not None and left <= 0:
                break
            self.wait(left)
        return result

    def notify(self, n: int = 1) -> None:
        world.scheduler.wake(self._waiters, n)

    def notify_all(self) -> None:
        world.scheduler.wake(self._waiters)


class Event:
    """threading.Event."""

    def __init__(self) -> None:
        self._flag = False
        self._waiters: deque[Task] = deque()

    def is_set(self) -> bool:
        world.scheduler.point()
        return self._flag

    def set(self) -> None:
        self._flag = True
        world.scheduler.wake(self._waiters)

    def clear(self) -> None:
        self._flag = False

    def wait(self, timeout: float | None = None) -> bool:
        scheduler = world.scheduler
        scheduler.point()
        until = None if timeout is None else scheduler.now + timeout
        while not self._flag:
            left = None if until is None else until - scheduler.now
            if left is not None and left <= 0:
                break
            scheduler.wait(self._waiters, left)
        return self._flag


class Semaphore:
    """threading.Semaphore."""

    def __init__(self, value: int = 1) -> None:
        self._value, self._changed = value, Condition()

    def acquire(self, blocking: bool = True, timeout: float | None = None) -> bool:
        with self._changed:
            if not self._changed.wait_for(lambda: self._value > 0, timeout if blocking else 0):
                return False
            self._value -= 1
            return True

    def release(self, n: int = 1) -> None:
        with self._changed:
            self._value += n
            self._changed.notify(n)

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


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
    where = task.local if task is not None else real_main
    return where.setdefault(id(local), {})


real_main: dict[int, dict[str, Any]] = {}


def _current_thread() -> Any:
    task = world.scheduler.current
    return getattr(task, "thread", None) or _Main


class _Main:
    name, ident, daemon = "MainThread", 0, False


class Pipe:
    """What a poll can wait on: readable while `level` is above 0."""

    _numbers = itertools.count(1_000_000)

    def __init__(self) -> None:
        self.number = next(self._numbers)
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
            found = [(number, real_select.POLLIN) for number, pipe in self._pipes.items() if pipe.level]
            if found:
                return found
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
    """headrace.wakeup.Wakeup."""

    def __init__(self) -> None:
        self._pipe = Pipe()
        self.fileno = self._pipe.fileno

    def notify(self) -> None:
        self._pipe.raise_()

    def clear(self) -> None:
        world.scheduler.point()
        self._pipe.lower()


class Queue:
    """queue.Queue and SimpleQueue."""

    __class_getitem__ = classmethod(types.GenericAlias)

    def __init__(self, maxsize: int = 0) -> None:
        self._items: deque[Any] = deque()
        self._changed = Condition()
        self._most = maxsize

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        with self._changed:
            if self._most and not self._changed.wait_for(
                lambda: len(self._items) < self._most, timeout if block else 0
            ):
                raise real_queue.Full
            self._items.append(item)
            self._changed.notify_all()

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        with self._changed:
            if not self._changed.wait_for(lambda: self._items, timeout if block else 0):
                raise real_queue.Empty
            self._changed.notify_all()
            return self._items.popleft()

    def put_nowait(self, item: Any) -> None:
        self.put(item, block=False)

    def get_nowait(self) -> Any:
        return self.get(block=False)

    def qsize(self) -> int:
        return len(self._items)

    def empty(self) -> bool:
        return not self._items


class _Datetime(real_datetime.datetime):
    """datetime.datetime by the virtual clock."""

    @classmethod
    def now(cls, tz: Any = None) -> Any:
        return real_datetime.datetime.fromtimestamp(world.scheduler.wall(), tz)


def _module(name: str, real: types.ModuleType, **own: Any) -> types.ModuleType:
    made = types.ModuleType(name)
    made.__dict__.update({key: value for key, value in vars(real).items() if not key.startswith("__")})
    made.__dict__.update(own)
    return made


class _Random(types.ModuleType):
    """The module random: everything is drawn by the run's seed."""

    Random = real_random.Random

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)

        def draw(*arguments: Any, **named: Any) -> Any:
            return getattr(world.scheduler.random, name)(*arguments, **named)

        return draw


def _connect(*arguments: Any, **named: Any) -> Any:
    """Open a database file, which the system closes when its process is killed."""
    connection = real_sqlite3.connect(*arguments, **named)
    task = world.scheduler.current
    if task is not None:
        task.process.on_death.append(connection.close)
    return connection


def _sleep(seconds: float) -> None:
    world.scheduler.sleep(seconds)


def _looked(read: Callable[[], float]) -> float:
    """Look at a clock; now and then others go on before."""
    scheduler = world.scheduler
    if scheduler.random.random() < scheduler.preempt / 8:
        scheduler.point()
    return read()


def _monotonic() -> float:
    return _looked(world.scheduler.monotonic)


def _wall() -> float:
    return _looked(world.scheduler.wall)


def stand_ins() -> dict[str, types.ModuleType]:
    """Return the modules that the code under simulation imports."""
    return {
        "threading": _module(
            "threading",
            real_threading,
            Thread=Thread,
            Lock=Lock,
            RLock=lambda: Lock(again=True),
            Condition=Condition,
            Event=Event,
            Semaphore=Semaphore,
            BoundedSemaphore=Semaphore,
            local=Local,
            current_thread=_current_thread,
            get_ident=lambda: _current_thread().ident,
        ),
        "time": _module(
            "time",
            real_time,
            monotonic=_monotonic,
            monotonic_ns=lambda: int(_monotonic() * 1e9),
            perf_counter=_monotonic,
            time=_wall,
            time_ns=lambda: int(_wall() * 1e9),
            sleep=_sleep,
        ),
        "queue": _module("queue", real_queue, Queue=Queue, SimpleQueue=Queue),
        "select": _module("select", real_select, poll=Poll),
        "random": _Random("random"),
        "sqlite3": _module("sqlite3", real_sqlite3, connect=_connect),
        "datetime": _module("datetime", real_datetime, datetime=_Datetime),
        "uuid": _module("uuid", real_uuid, uuid4=lambda: real_uuid.UUID(int=world.scheduler.random.getrandbits(128))),
    }


def begin(scheduler: Scheduler) -> None:
    """Let the stand-ins work on this run."""
    world.scheduler = scheduler
    world.readable = {}
    real_main.clear()
    Pipe._numbers = itertools.count(1_000_000)


__all__ = ["Pipe", "Process", "Thread", "Wakeup", "begin", "stand_ins", "world"]
