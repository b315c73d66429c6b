"""A load's commits back to back: every table is written up to its commit, waits there, and all commit once the last one is ready.

So the time in which the newest version of some tables is beyond what is published is that of the commits, not of the work. Delta
itself holds a transaction ahead of its commit, by an observer that it has for tests of concurrent writers; where transactions
cannot be held (another Delta, py4j without a thread of the JVM for each of Python's) tables commit as they get ready. A table
that waits takes no core: others are written meanwhile. Used by silver's load.
"""

import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Self

from py4j.clientserver import ClientServer
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.sql import SparkSession

#: Tables that wait at the same time: each takes a thread, a session and a transaction's memory in the driver.
MOST = 128
#: Seconds between two looks at transactions that are not ready.
_EVERY = 0.005

_of_thread = threading.local()


class Held:
    """A transaction of Delta's that will wait ahead of its commit: the next one of this thread."""

    def __init__(self, spark: SparkSession) -> None:
        delta = spark._jvm.org.apache.spark.sql.delta  # noqa: SLF001 - PySpark offers no other way.
        self._observers = delta.TransactionExecutionObserver
        phases = delta.fuzzer.OptimisticTransactionPhases.forName("silver")
        own = delta.fuzzer.PhaseLockingTransactionExecutionObserver(phases)
        self._former = self._observers.getObserver()
        # What the thread does after this transaction is not held.
        own.setNextObserver(self._former, True)
        # Every phase begins when it may, and the commit when it is released; a phase ends by itself, but for the last one.
        for name in ("analysis", "initial", "prepare", "backfill", "postCommit"):
            getattr(phases, f"{name}Phase")().entryBarrier().unblock()
        phases.postCommitPhase().exitBarrier().unblock()
        self._commit = phases.commitPhase()
        self._observers.setObserver(own)

    def ready(self) -> bool:
        """Whether all but the commit is done."""
        return bool(self._commit.hasReached())

    def release(self) -> None:
        """Let it commit."""
        self._commit.entryBarrier().unblock()

    def end(self) -> None:
        """Hold no further transaction of this thread, which is the one that made this."""
        self._observers.setObserver(self._former)


class _Participant:
    """A thread's work on one table."""

    def __init__(self) -> None:
        self.held: Held | None = None
        #: Whether it waits for the others, and whether it takes a place among those that work.
        self.waits, self.works = False, True


class CommitGate:
    """Opens when each of its participants waits ahead of its commit, or has ended."""

    def __init__(self, participants: Collection[str], at_a_time: int) -> None:
        self.opened_at: float | None = None
        #: Those that have not come yet.
        self._coming, self._places = set(participants), threading.Semaphore(at_a_time)
        self._there: set[_Participant] = set()
        self._lock, self._ended = threading.Lock(), threading.Event()
        # Of one nobody waits for another.
        self._opened = len(participants) < 2
        self._watch = threading.Thread(target=self._run, name="commits", daemon=True)

    def __enter__(self) -> Self:
        """Watch the participants."""
        self._watch.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop watching; whoever still waits is released."""
        self._ended.set()
        self._watch.join()
        self._open()

    @contextmanager
    def participant(self, name: str) -> Iterator[None]:
        """Take part in this thread: some at a time work, those that wait ahead of their commit do not count."""
        self._places.acquire()
        own = _Participant()
        with self._lock:
            self._there.add(own)
            self._coming.discard(name)
        _of_thread.place = (self, own)
        try:
            yield
        finally:
            del _of_thread.place
            with self._lock:
                self._there.remove(own)
                self._leave(own)

    def absent(self, *names: str) -> None:
        """Wait no longer for participants that have not come."""
        with self._lock:
            self._coming -= set(names)

    @contextmanager
    def hold(self, spark: SparkSession, own: _Participant) -> Iterator[None]:
        """Hold the transaction of the statement inside ahead of its commit."""
        with self._lock:
            held = None if self._opened or own.waits or not _can_hold() else _held(spark)
            own.held = held
        try:
            yield
        finally:
            with self._lock:
                own.held = None
            if held is not None:
                held.end()

    def _leave(self, own: _Participant) -> None:
        if own.works:
            own.works = False
            self._places.release()

    def _run(self) -> None:
        try:
            while not self._opened and not self._ended.wait(_EVERY):
                self._look()
        except Py4JError:
            # The participants see the same.
            self._opened = True

    def _look(self) -> None:
        with self._lock:
            working = [one for one in self._there if not one.waits]
        # Asked without the lock: each look is a call into the JVM.
        ready = [one for one in working if (held := one.held) is not None and held.ready()]
        with self._lock:
            for one in ready:
                one.waits = True
                self._leave(one)
            done = not self._coming and all(one.waits for one in self._there)
        if done:
            self._open()

    def _open(self) -> None:
        with self._lock:
            if self.opened_at is None and any(one.held for one in self._there):
                self.opened_at = monotonic()
            self._opened = True
            for one in self._there:
                if one.held is not None:
                    one.held.release()


@contextmanager
def before_commit(spark: SparkSession) -> Iterator[None]:
    """Hold the transaction of the statement inside until the load's gate opens, where this thread takes part in one."""
    gate, own = getattr(_of_thread, "place", (None, None))
    if gate is None:
        yield
        return
    with gate.hold(spark, own):
        yield


def _can_hold() -> bool:
    """Whether each thread has one of the JVM for itself, as observers are of threads."""
    return isinstance(SparkContext._gateway, ClientServer)  # noqa: SLF001 - there is no other way to know.


def _held(spark: SparkSession) -> Held | None:
    try:
        return Held(spark)
    except (Py4JError, TypeError):
        # Without such an observer there is nothing to wait for.
        return None
