"""Progress where nobody watches: a line now and then into a log, so a load of hours does not look as if it hung."""

from collections.abc import Callable
from time import monotonic

#: Seconds between two lines.
_EVERY = 30.0


class Occasionally:
    """Passes a line on when the last one was long ago; the first line, too, comes only after that time."""

    def __init__(self, write: Callable[[str], None], *, now: Callable[[], float] = monotonic) -> None:
        self._write, self._now = write, now
        self._last = now()

    def say(self, line: str) -> None:
        """Write the line if it is time for one."""
        if self._now() - self._last >= _EVERY:
            self._last = self._now()
            self._write(line)
