"""The stand-ins for `threading`, `queue`, `time`, `select`, `random` and other modules, over the scheduler of the present run.

The code under simulation is imported with these in place (loading.py), so its classes inherit from these threads and wait on
these conditions. `world.scheduler` is set for each run.
"""

import datetime as real_datetime  # noqa: ICN001 - next to its stand-in.
import queue as real_queue
import random as real_random
import select as real_select
import sqlite3 as real_sqlite3
import threading as real_threading
import time as real_time
import types
import uuid as real_uuid
from collections.abc import Callable
from typing import Any

from tests.simulation.locks import Condition, Event, Lock, Queue, Semaphore
from tests.simulation.polling import Poll
from tests.simulation.threads import Local, Thread, current_thread
from tests.simulation.world import world


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
            current_thread=current_thread,
            get_ident=lambda: current_thread().ident,
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
