"""Recovery: reads the committed positions of sources that begin or begin again, all that wait in one request.

What an open transaction of a former owner may still change is not read before that ends. No thread of its own: the bridge has one
that calls `turn`, and no source that cannot be read holds up another one for long.
"""

import logging
import threading
import time
from collections.abc import Callable
from itertools import islice

from bridge.model.ports import Committed, PositionReader
from headrace.backoff import Backoff
from headrace.errors import NotConnected, ReplicationError, Retryable

_log = logging.getLogger(__name__)

#: Sources of one request: the first ones are served while the next are read.
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
        #: Called with each result.
        self.serve: Callable[[str, int, Committed], None] = lambda _source, _lease, _committed: None
        self.unreadable: Callable[[str, int, ReplicationError], None] = lambda _source, _lease, _error: None
        #: What keeps everything from being read; empty while nothing does.
        self.trouble = ""

    def add(self, source: str, lease: int, seconds: float = 0.0) -> None:
        """Have a source's position read after some seconds, for the holder of a lease."""
        with self._changed:
            self._waiting[source] = (lease, self._clock() + seconds)
            self._changed.notify()

    def turn(self, seconds: float) -> None:
        """Read what is due, waiting for it at most `seconds`."""
        due = self._due(seconds)
        if not due:
            return
        try:
            found = self._reader.read(list(due))
        except (NotConnected, Retryable) as error:
            if error.message != self.trouble:
                _log.warning("%s. %s", error.message, error.hint or "Trying again.")
            self.trouble = error.message
            pause = self._backoff.pause()
            with self._changed:
                for source, lease in due.items():
                    self._waiting.setdefault(source, (lease, self._clock() + pause))
            return
        except ReplicationError as error:
            for source, lease in due.items():
                self.unreadable(source, lease, error)
            return
        self.trouble = ""
        self._backoff.reset()
        for source, lease in due.items():
            result = found.get(source)
            if result is None:
                # It left the bridge's file meanwhile.
                continue
            if isinstance(result, ReplicationError):
                self.unreadable(source, lease, result)
            else:
                self.serve(source, lease, result)

    def _due(self, seconds: float) -> dict[str, int]:
        until = self._clock() + seconds
        with self._changed:
            while True:
                now = self._clock()
                found = ((source, lease) for source, (lease, at) in self._waiting.items() if at <= now)
                due = dict(islice(found, _MOST))
                if due or now >= until:
                    break
                soonest = min((at for _, at in self._waiting.values()), default=until)
                self._changed.wait(max(0.0, min(until, soonest) - now))
            for source in due:
                del self._waiting[source]
            return due
