"""A request to stop that a signal handler may make.

`threading.Event` is not for that: a handler runs in the main thread between any two of its steps, so also while that thread has
the event's own lock, in `wait`; `set` would then wait for that lock, and the process neither go on nor end.

Wakes a thread that waits in a poll; safe to notify from any thread and from a signal handler.
Jittered exponential back-off: how long to pause before the next attempt (full jitter, after Brooker, 2015).
Answers and handshakes that are waited for at most for a while, and sockets that are shut down after that.
"""

import contextlib
import os
import random
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

#: Seconds between two checks for the request.
_LOOK_SECONDS = 0.05
#: Seconds beyond its time limit after which a request of Kafka's client gets no answer; and its limit where none is named.
_BEYOND_SECONDS, _REQUEST_SECONDS = 5.0, 60.0


class StopRequest:
    """Made once, from any thread or a signal handler; anybody may wait for it. There is no lock."""

    def __init__(self) -> None:
        self._is_set = False

    def set(self) -> None:
        """Make the request."""
        self._is_set = True

    def is_set(self) -> bool:
        """Whether it was made."""
        return self._is_set

    def wait(self, seconds: float) -> bool:
        """Wait for it, at most so many seconds; return whether it was made."""
        until = time.monotonic() + seconds
        while not self._is_set and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, _LOOK_SECONDS))
        return self._is_set


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


class Backoff:
    """Pauses that grow from `first` to `longest` seconds, each drawn at random below its bound, until `reset`."""

    def __init__(self, *, first: float = 0.1, longest: float = 10.0) -> None:
        self._first = first
        self._longest = longest
        self._attempts = 0

    def pause(self) -> float:
        """Return the next pause in seconds, at least a tenth of its bound, so that a loop never spins."""
        bound: float = self._first * 2 ** min(self._attempts, 30)
        self._attempts += 1
        return jitter(bound, self._longest)

    def reset(self) -> None:
        """Start again from the shortest pause: the attempt succeeded."""
        self._attempts = 0


def jitter(bound: float, longest: float) -> float:
    """Return a pause in seconds drawn at random below `bound` and `longest`, and at least a tenth of that."""
    return min(bound, longest) * (0.1 + 0.9 * random.random())  # noqa: S311 - spreading load, not guarding a secret.


class BoundedClient:
    """Kafka's administration client, none of whose answers is waited for without end.

    Its requests have time limits, which it may not keep: with librdkafka 2.16 the description of a group that was asked for while
    the only broker was down was never answered, and the thread that waited for it did nothing more.
    """

    def __init__(self, client: Any, timed_out: Callable[[], Exception]) -> None:
        """`timed_out` makes what is raised where no answer comes."""
        self._client, self._timed_out = client, timed_out

    def __getattr__(self, name: str) -> Any:
        """Return what the client has by this name."""
        value = getattr(self._client, name)
        return partial(self._call, value) if callable(value) else value

    def _call(self, method: Callable[..., Any], *args: Any, **options: Any) -> Any:
        until = time.monotonic() + options.get("request_timeout", _REQUEST_SECONDS) + _BEYOND_SECONDS
        answers = method(*args, **options)
        if isinstance(answers, dict):
            return {key: self._bound(answer, until) for key, answer in answers.items()}
        return self._bound(answers, until)

    def _bound(self, answer: Any, until: float) -> Any:
        return BoundedAnswer(answer, until, self._timed_out) if hasattr(answer, "result") else answer


class BoundedAnswer:
    """An answer that comes, or does not."""

    def __init__(self, future: Any, until: float, timed_out: Callable[[], Exception]) -> None:
        self._future, self._until, self._timed_out = future, until, timed_out

    def result(self, timeout: float | None = None) -> Any:
        """Return it, within `timeout` seconds if given; raise what the request raises, or `timed_out` where it has no answer."""
        left = max(0.0, self._until - time.monotonic())
        try:
            return self._future.result(left if timeout is None else min(left, timeout))
        except TimeoutError:
            raise self._timed_out() from None


@contextlib.contextmanager
def hanging_up(seconds: float, descriptor: Callable[[], int]) -> Iterator[None]:
    """Shut a connection's socket down where what is within takes longer: its driver's call ends with an error of its own.

    A time limit of a driver's is for each read: a server that sends a byte now and then is none too slow for it.
    """

    def hang_up() -> None:
        # The thread that waits holds the connection itself.
        with contextlib.suppress(Exception), socket.socket(fileno=os.dup(descriptor())) as own:
            own.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(seconds, hang_up)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextlib.contextmanager
def connecting_within(seconds: float, host: str, port: int) -> Iterator[socket.socket]:
    """Yield a new connection's socket for a driver's handshake; shut it down where that and connecting take longer together.

    Raises OSError where there is no connection.
    """
    until = time.monotonic() + seconds
    connected = socket.create_connection((host, port), seconds)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # A driver that goes on by TLS takes the socket's descriptor away.
    with connected.dup() as own, hanging_up(max(0.0, until - time.monotonic()), own.fileno):
        yield connected
