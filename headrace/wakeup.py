"""Wakes a thread that waits in a poll; safe to notify from any thread and from a signal handler."""

import contextlib
import os
import weakref


class Wakeup:
    """A descriptor that is readable from `notify` until `clear`."""

    def __init__(self) -> None:
        self._read_end, self._write_end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        # Not before the last who could notify is gone: a descriptor's number in use again must not be written to.
        self._closing = [weakref.finalize(self, os.close, end) for end in (self._read_end, self._write_end)]

    def fileno(self) -> int:
        """Return the descriptor to wait on."""
        return self._read_end

    def notify(self) -> None:
        """Wake the waiting thread, now or at its next wait."""
        # A full pipe is readable already.
        with contextlib.suppress(BlockingIOError):
            os.write(self._write_end, b"!")

    def clear(self) -> None:
        """Be ready for the next `notify`; call it before looking at what may have changed."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._read_end, 65536)

    def close(self) -> None:
        """Close the descriptor before the last reference is gone; nobody may notify any more."""
        for close in self._closing:
            close()
