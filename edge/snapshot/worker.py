"""A thread that reads chunks while the log is read: one job at a time, its outcome taken by the capturing thread."""

import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from edge.snapshot.ports import Reader

#: Something to do with the reader.
Job = Callable[[Reader], Any]


class Worker:
    """Runs jobs in order; `wake` is called after each."""

    def __init__(self, connect: Callable[[], Reader], wake: Callable[[], None]) -> None:
        self._connect = connect
        self._wake = wake
        self._jobs: SimpleQueue[tuple[Job, Callable[[Any], None]] | None] = SimpleQueue()
        self._outcomes: deque[tuple[Callable[[Any], None], Any]] = deque()
        self._thread: threading.Thread | None = None
        #: Jobs whose outcome was not taken yet.
        self.busy = 0

    def do(self, job: Job, then: Callable[[Any], None]) -> None:
        """Do a job, then call `then` with its result, or with the exception that it raised, from `take`."""
        self.busy += 1
        self._jobs.put((job, then))
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="snapshot", daemon=True)
            self._thread.start()

    def take(self) -> None:
        """Hand over the outcomes that are there."""
        while self._outcomes:
            then, outcome = self._outcomes.popleft()
            self.busy -= 1
            then(outcome)

    def stop(self, seconds: float) -> None:
        """End the thread; a job that hangs ends with the process."""
        self._jobs.put(None)
        if self._thread is not None:
            self._thread.join(seconds)

    def _run(self) -> None:
        reader: Reader | None = None
        while (waiting := self._jobs.get()) is not None:
            job, then = waiting
            try:
                reader = reader or self._connect()
                outcome = job(reader)
            except Exception as error:  # noqa: BLE001 - the capturing thread decides what it means.
                outcome = error
                if reader is not None:
                    reader.close()
                reader = None
            self._outcomes.append((then, outcome))
            self._wake()
        if reader is not None:
            reader.close()
