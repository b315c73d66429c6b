"""A session: one period in which this bridge serves a source, from a position read in Kafka until an error or a revocation.

Whatever belongs to a session ends with it: its queue of deliveries, its credit, its last position, and what it releases: withheld
batches of one table, on their way from the releaser's thread to a lane's. So nothing that a former session does late, such as a
commit that was in doubt, can touch its successor. Made by the registry (bridge/source/registry.py).

The ready queue has the sessions that have something to commit, in the order in which they got it. Lanes take them from there.
It alone has sessions enter a phase (bridge/model/phases.py).
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Collection
from typing import NamedTuple

from bridge.model.chain import NOTHING
from bridge.model.delivery import Inbox
from bridge.model.phases import NEXT_OF_SESSION, SessionPhase
from bridge.model.ports import Committed, Partition
from headrace.batch import Batch

#: Seconds until a table whose record its topic did not take is tried again.
_PUT_OFF_SECONDS = 30.0


class Released(NamedTuple):
    """A step of a release."""

    table: str
    #: The offset from which the step was read, and the one to go on from after it.
    begin: int
    next: int
    #: None where no record of the table is between them.
    batch: Batch | None
    #: The size of the withheld record, in bytes.
    size: int = 0


class Release:
    """The steps of one session; for its lane and the reader."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._steps: deque[Released] = deque()
        #: The table that is released now; empty while none is.
        self.table = ""
        # Time until which tables are not tried again, by the monotonic clock.
        self._put_off: dict[str, float] = {}

    def put_off(self, table: str) -> None:
        """Have a table that cannot be released now not tried for a while: others are."""
        self._put_off[table] = time.monotonic() + _PUT_OFF_SECONDS

    def is_put_off(self, table: str) -> bool:
        """Whether a table is not to be tried now."""
        return time.monotonic() < self._put_off.get(table, 0.0)

    def __len__(self) -> int:
        """Return how many steps wait."""
        return len(self._steps)

    @property
    def size(self) -> int:
        """The size of what waits, in bytes."""
        with self._lock:
            return sum(step.size for step in self._steps)

    def begin(self, table: str) -> None:
        """Begin to release a table."""
        with self._lock:
            self._steps.clear()
            self.table = table

    def put(self, steps: list[Released]) -> None:
        """Add steps, unless the release of their table has ended."""
        with self._lock:
            self._steps.extend(step for step in steps if step.table == self.table)

    def take(self) -> Released | None:
        """Return the next step; None when none waits."""
        with self._lock:
            return self._steps.popleft() if self._steps else None

    def end(self) -> None:
        """End it, done or not."""
        with self._lock:
            self._steps.clear()
            self.table = ""


class Session:
    """What is known while a source is served."""

    def __init__(
        self,
        source: str,
        token: int,
        committed: Committed,
        notify: Callable[["Session"], None],
        *,
        isolated: bool = False,
    ) -> None:
        self.source = source
        #: The lease under which the position was read (bridge/source/registry.py).
        self.token = token
        #: The last committed position; None while none is known.
        self.tail = committed.position
        #: The offset to commit for each partition of the source.
        self.offsets: dict[Partition, int] = dict(committed.offsets)
        self.inbox = Inbox(lambda: notify(self))
        #: Its withheld tables by the last committed transaction, and what of them is released.
        self.withheld = committed.withheld or NOTHING
        self.release = Release()
        #: Whether deliveries wait until the releaser has checked what it can release: the next one may end the session before.
        self.looks_first = False
        #: Whether the position has to be committed although there are no records: at the start, and now and then.
        self.dirty = True
        #: When the position was last committed, by the monotonic clock.
        self.committed_at = time.monotonic()
        #: Whether its transactions hold nothing else: something could not be written, and it may have been this source.
        self.isolated = isolated
        self.phase = SessionPhase.IDLE

    @property
    def closed(self) -> bool:
        """Whether it has ended."""
        return self.phase in {SessionPhase.LEAVING, SessionPhase.OVER}

    @property
    def held(self) -> bool:
        """Whether a lane has it."""
        return self.phase in {SessionPhase.HELD, SessionPhase.LEAVING}

    @property
    def has_work(self) -> bool:
        """Whether a lane should take it."""
        waiting = len(self.release) if self.release.table else 0 if self.looks_first else len(self.inbox)
        return not self.closed and (self.dirty or waiting > 0)

    def enter(self, phase: SessionPhase) -> None:
        """Go on with a phase."""
        assert phase in NEXT_OF_SESSION[self.phase], f"{self.source}: {self.phase.name} to {phase.name}"
        self.phase = phase


class ReadyQueue:
    """Sessions that wait for a lane, and which of them lanes hold; for all threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._arrived = {isolated: threading.Condition(self._lock) for isolated in (False, True)}
        self._returned = threading.Condition(self._lock)
        self._waiting: dict[bool, deque[Session]] = {False: deque(), True: deque()}

    def __len__(self) -> int:
        """Return how many sessions wait."""
        return sum(map(len, self._waiting.values()))

    def notify(self, session: Session) -> None:
        """Note that a session has work; one that a lane holds is checked again when it is given back."""
        with self._lock:
            self._queue(session)

    def take(self, seconds: float, *, isolated: bool = False) -> Session | None:
        """Return the session that waits longest, and hold it; None when none comes within `seconds`."""
        until = time.monotonic() + seconds
        waiting = self._waiting[isolated]
        with self._lock:
            while not waiting and (left := until - time.monotonic()) > 0:
                self._arrived[isolated].wait(left)
            if not waiting:
                return None
            session = waiting.popleft()
            session.enter(SessionPhase.HELD)
            return session

    def give_back(self, sessions: Collection[Session]) -> None:
        """End the hold; those that have work wait again."""
        with self._lock:
            for session in sessions:
                session.enter(SessionPhase.OVER if session.closed else SessionPhase.IDLE)
                if session.has_work:
                    self._queue(session)
            self._returned.notify_all()

    def close(self, session: Session) -> bool:
        """End a session; return False when it was over. A lane that holds it finishes its transaction, if it is let."""
        with self._lock:
            if session.closed:
                return False
            if session.phase is SessionPhase.READY:
                self._waiting[session.isolated].remove(session)
            session.enter(SessionPhase.LEAVING if session.held else SessionPhase.OVER)
        session.inbox.close()
        return True

    def wait_returned(self, sessions: Collection[Session], seconds: float) -> bool:
        """Return whether no lane holds any of the sessions within `seconds`."""
        with self._lock:
            return self._returned.wait_for(lambda: not any(session.held for session in sessions), seconds)

    def _queue(self, session: Session) -> None:
        if session.phase is SessionPhase.IDLE:
            session.enter(SessionPhase.READY)
            self._waiting[session.isolated].append(session)
            self._arrived[session.isolated].notify()
