"""A bound on calls that promise one and do not always keep it.

librdkafka's calls that end a transaction can wait for ever, whatever their timeout, when the broker dies while they run. So a
thread beside the caller's makes them. When time is up it is left behind with all that it holds, and whatever the call
returns later is nobody's. Used by the committer.
"""

import threading
import weakref
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from headrace.errors import NotConnected

T = TypeVar("T")


class Errands:
    """Calls made by a thread of its own, one after the other; it starts with the first one. For one caller."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[Any] | None = None
        self._last: Callable[[], object] = lambda: None

    def within(self, seconds: float, doing: str, call: Callable[..., T], *arguments: object) -> T:
        """Return what the call returns, or raise what it raises; raise NotConnected when it takes longer than `seconds`."""
        if self._calls is None:
            calls: SimpleQueue[Any] = SimpleQueue()
            self._calls = calls
            self._last = weakref.finalize(self, calls.put, None)
            threading.Thread(target=_run, args=(calls,), daemon=True, name=doing).start()
        answer: SimpleQueue[tuple[T, None] | tuple[None, BaseException]] = SimpleQueue()
        self._calls.put((answer, call, arguments))
        try:
            value, error = answer.get(timeout=seconds)
        except Empty:
            self.end()
            raise NotConnected(f"Kafka: no answer within {seconds:.0f} s: {doing}") from None
        if error is not None:
            raise error
        return value  # type: ignore[return-value]

    def end(self) -> None:
        """End the thread, after the call that it makes now; the next call starts another."""
        self._calls = None
        self._last()


def _run(calls: SimpleQueue[Any]) -> None:
    while (errand := calls.get()) is not None:
        answer, call, arguments = errand
        try:
            answer.put((call(*arguments), None))
        except BaseException as error:  # noqa: BLE001 - it is raised where the answer is waited for.
            answer.put((None, error))
        # What it called must not live on for as long as it has nothing else to do.
        del errand, answer, call, arguments
