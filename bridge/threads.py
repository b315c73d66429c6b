"""The threads of a bridge: each takes its turn again and again until the bridge ends, or until it is over.

One that does not return, such as from a call of Kafka's client, is shown by name; what it costs is its own work. Who has a
successor for it starts that one under the same name. Made and watched by the bridge's main thread.
"""

import logging
import threading
import time
from collections.abc import Callable

from bridge.metrics import ThreadMetrics
from headrace.errors import NeedsOperator

_log = logging.getLogger(__name__)

#: Seconds after which a thread is shown that is still at the same turn.
HUNG_SECONDS = 30.0


class Threads:
    """All threads but the main one and the receiver's."""

    def __init__(self) -> None:
        #: By name; of a thread that was given up, those of its successor.
        self.metrics: dict[str, ThreadMetrics] = {}
        #: What ended a thread; the bridge ends with it.
        self.failure: BaseException | None = None
        self._ending = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self, name: str, turn: Callable[[], None], over: Callable[[], bool] = lambda: False) -> None:
        """Start a thread that does `turn` repeatedly."""
        metrics = ThreadMetrics()

        def loop() -> None:
            try:
                while not self._ending.is_set() and not over():
                    metrics.turned_at = time.monotonic()
                    turn()
            except NeedsOperator as error:
                self.failure = self.failure or error
            except BaseException as error:  # noqa: BLE001 - the bridge ends with it.
                _log.exception("unexpected error")
                self.failure = self.failure or error

        thread = threading.Thread(target=loop, name=name, daemon=True)
        # Never changed in place: other threads go through it.
        self.metrics = {**self.metrics, name: metrics}
        self._threads.append(thread)
        thread.start()

    def wait(self, seconds: float) -> None:
        """Let some seconds pass, or less where the bridge ends."""
        self._ending.wait(seconds)

    def hanging(self) -> dict[str, float]:
        """Return for how long those threads did not return that are at one turn for far too long."""
        silent = {name: each.silent for name, each in self.metrics.items()}
        return {name: each for name, each in silent.items() if each > HUNG_SECONDS}

    def end(self, seconds: float) -> set[str]:
        """Have all end within some seconds; return the names of those that do not."""
        self._ending.set()
        until = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        return {thread.name for thread in self._threads if thread.is_alive()}
