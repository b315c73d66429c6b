"""Replaces the locks, conditions, events and queues of `threading` and `queue`, on the scheduler of the present run."""

import queue as real_queue
import types
from collections import deque
from collections.abc import Callable
from typing import Any

from tests.simulation.scheduler import Task
from tests.simulation.world import world


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
