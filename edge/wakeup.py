"""A bell between threads that a waiting poll hears; safe to ring from any thread and from a signal handler."""

import contextlib
import os


class Wakeup:
    """Readable from `ring` until `answer`."""

    def __init__(self) -> None:
        self._inlet, self._outlet = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def fileno(self) -> int:
        """Return the descriptor to wait on."""
        return self._inlet

    def ring(self) -> None:
        """Wake who waits, now or at the next wait."""
        # A full pipe rings already.
        with contextlib.suppress(BlockingIOError):
            os.write(self._outlet, b"!")

    def answer(self) -> None:
        """Be ready for the next ring; call it before looking at what may have changed."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._inlet, 65536)

    def close(self) -> None:
        """Close both ends."""
        os.close(self._inlet)
        os.close(self._outlet)
