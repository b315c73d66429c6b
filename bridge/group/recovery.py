"""Recovery: reads the committed positions of sources that begin or begin again, all that wait in one request.

What an open transaction of a former owner may still change is not read before that ends. A source whose position has to be
searched for, in its records, goes to a second recovery, and holds up no other. No thread of its own: the bridge has one for each
of them that calls `turn`.
"""

import logging
import threading
import time
from collections.abc import Callable
from itertools import islice

from bridge.model.ports import Committed, PositionReader
from headrace.errors import NotConnected, ReplicationError, Retryable
from headrace.waiting import Backoff

_log = logging.getLogger(__name__)

#: Most sources of one request: the first ones are served while the next are read.
_MOST = 250


class Recovery:
    """The sources whose positions have to be read."""

    def __init__(self, reader: PositionReader, clock: Callable[[], float] = time.monotonic) -> None:
        self._reader = reader
        self._clock = clock
        self._changed = threading.Condition()
        # The lease and the time from which on it may be read, by source.
        self._waiting: dict[str, tuple[int, float]] = {}
        self._backoff = Backoff(first=0.1, longest=2.0)
        # Sources of the next request: fewer after a failure, which may be that of one of them.
        self._many = _MOST
        #: Called with each result.
        self.serve: Callable[[str, int, Committed], None] = lambda _source, _lease, _committed: None
        self.unreadable: Callable[[str, int, ReplicationError], None] = lambda _source, _lease, _error: None
        #: Called with those whose position has to be searched for.
        self.search: Callable[[str, int], None] = lambda _source, _lease: None
        #: What keeps everything from being read; empty while nothing does.
        self.trouble = ""

    def add(self, source: str, lease: int, seconds: float = 0.0) -> None:
        """Have a source's position read after some seconds, for the holder of a lease."""
        with self._changed:
            # A lane may give back, late, a source that was lost and assigned again since: only the newest lease counts.
            if self._waiting.get(source, (lease, 0.0))[0] <= lease:
                self._waiting[source] = (lease, self._clock() + seconds)
                self._changed.notify()

    def turn(self, seconds: float) -> None:
        """Read what is due, waiting for it at most `seconds`."""
        due = self._due(seconds)
        if not due:
            return
        try:
            results = self._reader.read(list(due))
        except (NotConnected, Retryable) as error:
            if error.message != self.trouble:
                _log.warning("%s. %s", error.message, error.hint or "Trying again.")
            self.trouble = error.message
            self._many = max(1, len(due) // 2)
            pause = self._backoff.pause()
            for source, lease in due.items():
                self.add(source, lease, pause)
            return
        except ReplicationError as error:
            for source, lease in due.items():
                self.unreadable(source, lease, error)
            return
        self.trouble, self._many = "", min(_MOST, 2 * self._many)
        self._backoff.reset()
        # Those that are not in it left the bridge's file meanwhile.
        for source, result in results.items():
            if result is None:
                self.search(source, due[source])
            elif isinstance(result, ReplicationError):
                self.unreadable(source, due[source], result)
            else:
                self.serve(source, due[source], result)

    def _due(self, seconds: float) -> dict[str, int]:
        until = self._clock() + seconds
        with self._changed:
            while True:
                now = self._clock()
                sources = ((source, lease) for source, (lease, at) in self._waiting.items() if at <= now)
                due = dict(islice(sources, self._many))
                if due or now >= until:
                    break
                soonest = min((at for _, at in self._waiting.values()), default=until)
                self._changed.wait(max(0.0, min(until, soonest) - now))
            for source in due:
                del self._waiting[source]
            return due
