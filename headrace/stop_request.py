"""A request to stop that a signal handler may make.

`threading.Event` is not for that: a handler runs in the main thread between any two of its steps, so also while that thread has
the event's own lock, in `wait`; `set` would then wait for that lock, and the process neither go on nor end.
"""

import time

#: How often it is looked whether the request was made, in seconds.
_LOOK_SECONDS = 0.05


class StopRequest:
    """Made once, from any thread or a signal handler; anybody may wait for it. There is no lock."""

    def __init__(self) -> None:
        self._made = False

    def set(self) -> None:
        """Make the request."""
        self._made = True

    def is_set(self) -> bool:
        """Whether it was made."""
        return self._made

    def wait(self, seconds: float) -> bool:
        """Wait for it, at most so many seconds; return whether it was made."""
        until = time.monotonic() + seconds
        while not self._made and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, _LOOK_SECONDS))
        return self._made
