"""All deliveries of a bridge: their outboxes, their threads, their figures. Made, started and stopped by the bridge."""

import time
from collections.abc import Callable, Container, Iterable

from bridge.deliveries.metrics import DeliveryMetrics
from bridge.deliveries.outbox import Outbox
from bridge.deliveries.worker import Worker
from headrace.configuration.bridge import BridgeFile

#: How long records in flight may take to be answered at the end, in seconds.
_LAST_OUTCOMES_SECONDS = 2.0
_LETTERS_SECONDS = 2.0

#: Starts a thread: its name, and what it does again and again.
Start = Callable[[str, Callable[[], None]], None]


class Deliveries:
    """The deliveries of one bridge's file; there may be none."""

    def __init__(self, file: BridgeFile, wake: Callable[[Outbox, Iterable[str]], None]) -> None:
        self._file = file
        self._wake = wake
        self.figures = {name: DeliveryMetrics() for name in file.deliveries}
        self.outboxes = [Outbox(name, settings, self.figures[name]) for name, settings in file.deliveries.items()]
        #: By the name of the thread.
        self._workers: dict[str, Worker] = {}

    def start(self, start: Start) -> None:
        """Start to read the topics."""
        for outbox in self.outboxes:
            worker = Worker(self._file, outbox.name, outbox, self.figures[outbox.name], self._wake)
            self._workers[name := f"delivery {outbox.name}"] = worker
            start(name, lambda worker=worker: worker.turn(0.1))  # type: ignore[misc]

    def renew(self) -> None:
        """Have the clients made again, each by its thread."""
        for worker in self._workers.values():
            worker.renew()

    def finish(self) -> None:
        """Send no more, and wait a moment for the outcomes of what is in flight; the threads still run."""
        for outbox in self.outboxes:
            outbox.stop()
        until = time.monotonic() + _LAST_OUTCOMES_SECONDS
        while time.monotonic() < until and any(outbox.on_the_way for outbox in self.outboxes):
            time.sleep(0.02)

    def close(self, hanging: Container[str]) -> None:
        """Commit what is settled and leave the groups; not those of threads that hang, whose client is in use."""
        for thread, worker in self._workers.items():
            if thread not in hanging:
                worker.close(_LETTERS_SECONDS)
