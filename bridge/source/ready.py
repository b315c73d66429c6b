"""The ready queue: sessions that have something to commit, in the order in which they got it. Lanes take them from here.

A session is held by one lane at a time, so its order is kept whichever lane takes it next; a lane that is busy with a large
source leaves the others to the other lanes. Isolated sessions wait separately: only the isolated lane takes them.
"""

import threading
import time
from collections import deque
from collections.abc import Collection

from bridge.source.session import Session


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
        """Note that a session has work; one that a lane holds is looked at again when it is given back."""
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
            session.queued, session.held = False, True
            return session

    def give_back(self, sessions: Collection[Session]) -> None:
        """End the hold; those that have work wait again."""
        with self._lock:
            for session in sessions:
                session.held = False
                if session.has_work:
                    self._queue(session)
            self._returned.notify_all()

    def close(self, session: Session) -> bool:
        """End a session; return False when it was over. A lane that holds it finishes its transaction, if it is let."""
        with self._lock:
            if session.closed:
                return False
            session.closed = True
            if session.queued:
                session.queued = False
                self._waiting[session.isolated].remove(session)
        session.inbox.close()
        return True

    def wait_returned(self, sessions: Collection[Session], seconds: float) -> bool:
        """Return whether no lane holds any of the sessions within `seconds`."""
        with self._lock:
            return self._returned.wait_for(lambda: not any(session.held for session in sessions), seconds)

    def _queue(self, session: Session) -> None:
        if not (session.closed or session.held or session.queued):
            session.queued = True
            self._waiting[session.isolated].append(session)
            self._arrived[session.isolated].notify()
