"""Log messages that strangers can cause as often as they like, at a bounded rate."""

import time
from collections.abc import Callable

#: The shortest time between two lines, in seconds.
_QUIET_SECONDS = 10.0


class RateLimitedLog:
    """Logs at most one line every ten seconds, with the number of lines that were left out."""

    def __init__(self, say: Callable[..., None], clock: Callable[[], float] = time.monotonic) -> None:
        self._say = say
        self._clock = clock
        self._until = 0.0
        self._unsaid = 0

    def __call__(self, text: str, *values: object) -> None:
        """Say it, or count it."""
        now = self._clock()
        if now < self._until:
            self._unsaid += 1
            return
        more, self._unsaid = self._unsaid, 0
        self._until = now + _QUIET_SECONDS
        self._say(text + (f" (and {more} others before)" if more else ""), *values)
