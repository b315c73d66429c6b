"""Parts of answers on their way out: each waits until the other side has accepted it, or its deadline has passed.

Filled by the threads that handle requests, emptied by the connection's. Safe for threads.
"""

import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable

from headrace.requests.message import Part, encode

_log = logging.getLogger(__name__)

#: Parts that wait, beyond which no more requests are taken.
_MANY = 400


class AnswerOutbox:
    """The parts, in the order in which they are to be sent."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._waiting: deque[tuple[int, int, Part]] = deque()
        self._sent: dict[int, tuple[int, Part]] = {}
        #: Called after parts were put in, by any thread.
        self.wake: Callable[[], None] = lambda: None

    @property
    def is_full(self) -> bool:
        """Whether so much waits that no more requests should be taken."""
        return len(self._waiting) + len(self._sent) > _MANY

    @property
    def is_empty(self) -> bool:
        """Whether every part was accepted, or given up."""
        return not self._waiting and not self._sent

    def put(self, parts: Iterable[Part], deadline: int) -> None:
        """Have the parts of an answer sent, unless its deadline, in milliseconds since 1970, has passed."""
        with self._lock:
            self._waiting.extend((next(self._numbers), deadline, part) for part in parts)
        self.wake()

    def take(self) -> tuple[int, bytes, Part, int] | None:
        """Return the next part: its number, its bytes, itself and its deadline; None when nothing waits."""
        late = set()
        with self._lock:
            while self._waiting:
                number, deadline, part = self._waiting.popleft()
                if deadline < self._clock() * 1000 and part.outcome != "expired":
                    late.add((part.id, part.kind))
                    continue
                self._sent[number] = (deadline, part)
                break
            else:
                number = 0
        for request, kind in late:
            _log.warning("the answer to request %s (%s) is dropped: its deadline has passed", request, kind)
        if not number:
            return None
        return number, encode(part), part, deadline

    def settled(self, number: int) -> None:
        """Forget a part: the other side has it, or refuses it."""
        with self._lock:
            self._sent.pop(number, None)

    def returned(self, number: int) -> None:
        """Have a part sent again."""
        with self._lock:
            found = self._sent.pop(number, None)
            if found is not None:
                self._waiting.appendleft((number, *found))

    def lost(self) -> None:
        """Have all parts sent again that have no outcome: the link is gone."""
        with self._lock:
            for number in sorted(self._sent, reverse=True):
                self._waiting.appendleft((number, *self._sent.pop(number)))
