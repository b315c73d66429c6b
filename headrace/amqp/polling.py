"""What an AMQP loop waits for: descriptors, by epoll, and moments, in a heap.

The cost of a turn follows what is ready or due, not how many connections there are; and no descriptor is too high. Of those who
are in their handshakes, whoever they are, a few at a time have their turn: the others do not wait for all of them. Time is the
monotonic clock's, so a clock that is set moves no deadline. Knows nothing of AMQP. Called in the loop's thread only.
"""

import heapq
import itertools
import select
import time
from collections.abc import Callable

READ, WRITE = select.EPOLLIN, select.EPOLLOUT
#: How many descriptors in their handshakes have their turn at once: a handshake of TLS costs milliseconds.
NEWCOMERS = 2
_WRONG = select.EPOLLERR | select.EPOLLHUP
#: Called with whether its descriptor can be read, and whether it can be written.
Ready = Callable[[bool, bool], None]


class Polling:
    """Descriptors with what is called when they are ready, and steps with the moment when they are due."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._watched: dict[int, tuple[Ready, int]] = {}
        # Those in their handshakes: whose turn was longest ago is first.
        self._newcomers: dict[int, None] = {}
        self._steps: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    def watch(self, descriptor: int, events: int, ready: Ready) -> None:
        """Call `ready` whenever a descriptor can do one of the events (READ, WRITE), or fails; replaces what it waited for."""
        watched = self._watched.get(descriptor)
        if watched is None:
            self._epoll.register(descriptor, events)
        elif watched[1] != events:
            self._epoll.modify(descriptor, events)
        self._watched[descriptor] = (ready, events)

    def forget(self, descriptor: int) -> None:
        """Watch a descriptor no more; call it before it is closed."""
        if self._watched.pop(descriptor, None) is not None:
            self._epoll.unregister(descriptor)

    def expect(self, descriptor: int) -> None:
        """Note a descriptor whose handshakes begin."""
        self._newcomers[descriptor] = None

    def know(self, descriptor: int) -> None:
        """Note a descriptor whose handshakes are over, or that is closed."""
        self._newcomers.pop(descriptor, None)

    def at(self, moment: float, step: Callable[[], None]) -> None:
        """Take a step at a moment of the monotonic clock, in seconds."""
        heapq.heappush(self._steps, (moment, next(self._numbers), step))

    def wait(self) -> None:
        """Wait until something is ready or due, and do it."""
        # Rounded up: woken too early, the loop would spin.
        seconds = max(0.0, self._steps[0][0] - time.monotonic()) + 0.001 if self._steps else None
        waiting: dict[int, int] = {}
        for descriptor, events in self._epoll.poll(seconds):
            if descriptor in self._newcomers:
                waiting[descriptor] = events
            else:
                self._call(descriptor, events)
        if waiting:
            for descriptor in [each for each in self._newcomers if each in waiting][:NEWCOMERS]:
                # One that is no newcomer any more by what the first one did is ready in the next turn.
                if descriptor in self._newcomers:
                    self._newcomers[descriptor] = self._newcomers.pop(descriptor)
                    self._call(descriptor, waiting[descriptor])
        now = time.monotonic()
        while self._steps and self._steps[0][0] <= now:
            heapq.heappop(self._steps)[2]()

    def _call(self, descriptor: int, events: int) -> None:
        ready, waits = self._watched.get(descriptor, (None, 0))
        # One that was closed in this turn may have come back as another's: that one then reads nothing.
        if ready is not None:
            wrong = bool(events & _WRONG)
            ready(bool(events & READ) or (wrong and bool(waits & READ)), bool(events & WRITE) or wrong)

    def close(self) -> None:
        """Wait for nothing any more."""
        self._epoll.close()
        self._watched.clear()
        self._newcomers.clear()
        self._steps.clear()
