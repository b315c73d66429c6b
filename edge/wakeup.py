"""A bell between threads that a waiting poll hears; safe to ring from any thread and from a signal handler."""

import contextlib
import os
import weakref


class Wakeup:
    """Readable from `notify` until `clear`."""

    def __init__(self) -> None:
        self._inlet, self._outlet = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        # Not before the last who could ring is gone: a descriptor's number in use again must not be written to.
        for end in (self._inlet, self._outlet):
            weakref.finalize(self, os.close, end)

    def fileno(self) -> int:
        """Return the descriptor to wait on."""
        return self._inlet

    def notify(self) -> None:
        """Wake who waits, now or at the next wait."""
        # A full pipe rings already.
        with contextlib.suppress(BlockingIOError):
            os.write(self._outlet, b"!")

    def clear(self) -> None:
        """Be ready for the next ring; call it before looking at what may have changed."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._inlet, 65536)
