"""Where requests for loads come in: a socket in a folder of this user alone. One load runs at a time, others wait.

Loads that go on until their sender goes have threads of their own.

What comes in is bounded: how long a request is and takes to arrive, and how many wait. A request waits for a load of its own
stream as long as that takes, and goes on from there; for others a while, then its sender loads by a process of its own. A sender
that goes away cancels its load. Nothing that comes in, and no load that fails, ends the server. Knows nothing of Spark.
"""

import fcntl
import logging
import select
import socket
import threading
import uuid
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Protocol, Self

import msgspec

from headrace import doors
from headrace.errors import UNEXPECTED, CorruptInput, NeedsOperator, ReplicationError, Retryable
from headrace.waiting import StopRequest, Wakeup
from headrace.warm_loads import HEARTBEAT_SECONDS, Answer, Failure, OnProgress, OnReport, Progress, Request, hold

_log = logging.getLogger(__name__)

#: Bytes of a request, and seconds in which it arrives and in which a line of the answer leaves.
LONGEST = 4096
_SECONDS = 5.0
#: Requests at once: the one that is done and those that wait.
MOST = 32
#: Seconds for which a request waits for loads of other streams.
_WAIT_SECONDS = 30.0
#: Seconds between two lines of progress, and two attempts to cancel.
_EVERY = 0.5


class Cancelled(Retryable):
    """Whoever asked for the load has gone."""


class LoadRunner(Protocol):
    """What runs loads, in threads of the caller's: of those that end one at a time."""

    def run(self, tag: str, request: Request, on_progress: OnProgress) -> Answer:
        """Load; what `on_progress` raises ends the load. Raises what a load raises."""

    def follow(self, tag: str, request: Request, on_report: OnReport, stopped: StopRequest) -> Answer:
        """Load until stopped. Raises what such a load raises."""

    def cancel(self, tag: str) -> None:
        """End what the load of this tag does just now; called from another thread, again until the load has ended."""


class _Load:
    """A request, and how far it is."""

    def __init__(self, request: Request) -> None:
        self.request, self.tag = request, f"headrace-load-{uuid.uuid4().hex}"
        self.progress: dict[str, Progress] = {}
        #: What one that goes on did and its sender does not know yet.
        self.reports = deque[Answer]()
        self.cancelled = StopRequest()

    def on_progress(self, step: str, done: int, todo: int) -> None:
        if self.cancelled.is_set():
            raise Cancelled(f"the load of {self.request.stream} was cancelled")
        self.progress[step] = Progress(step=step, done=done, todo=todo)


class LoadDoor:
    """Listens. `with` opens it and closes it; a load that runs then is cancelled."""

    def __init__(
        self, folder: Path, loader: LoadRunner, *, seconds: float = _SECONDS, wait_seconds: float = _WAIT_SECONDS
    ) -> None:
        self._folder, self._loader = folder, loader
        self._seconds, self._wait_seconds = seconds, wait_seconds
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="loads")
        self._endless = ThreadPoolExecutor(MOST, thread_name_prefix="loads that go on")
        self._running: _Load | None = None
        self._open = threading.BoundedSemaphore(MOST)
        self._closing = False
        self._ending = ExitStack()
        self._listener = socket.socket(socket.AF_UNIX)

    def __enter__(self) -> Self:
        """Listen; raise NeedsOperator where another server listens, or the folder is not private."""
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            held, path = self._ending.enter_context(hold(self._folder))
            # As long as this process lives, however it ends.
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with suppress(FileNotFoundError):
                Path(path).unlink()
            self._listener.bind(path)
            self._listener.listen(MOST)
        except OSError as error:
            self._ending.close()
            raise NeedsOperator(
                f"the server cannot listen for loads in {self._folder}: {error.strerror}",
                hint="Another 'headrace lake serve' of this file may run: one takes its loads.",
            ) from error
        # It has its thread from now on: a request that got none would be done later, when its sender has gone.
        self._worker.submit(lambda: None)
        threading.Thread(target=self._accept, name="requests for loads", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take no more, and cancel what runs."""
        self._closing = True
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._worker.shutdown(cancel_futures=True)
        self._endless.shutdown(cancel_futures=True)
        self._ending.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError as error:
                if self._closing:
                    return
                # Too many open files, say: it may pass.
                _log.warning("a request for a load cannot be taken: %s", error.strerror)
                select.select([], [], [], _EVERY)
                continue
            if not self._open.acquire(blocking=False):
                self._refuse(connection, f"{MOST} requests wait already")
                continue
            thread = threading.Thread(target=self._serve, args=(connection,), name="a request for a load", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                # Python's error where the system has no more threads for this user: that may pass, too.
                self._open.release()
                self._refuse(connection, "it has no thread for this request")

    def _refuse(self, connection: socket.socket, reason: str) -> None:
        with connection, suppress(OSError):
            connection.settimeout(self._seconds)
            _send(connection, Answer(refused=reason))

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection:
                try:
                    request = self._read(connection)
                except OSError:
                    raise
                except Exception as error:  # noqa: BLE001 - as doors do.
                    # Of another release, perhaps: then its sender can load by a process of its own.
                    answer: Answer | None = Answer(refused=doors.LOAD.refuse(error).message)
                else:
                    answer = self._answer(connection, request)
                if answer is not None:
                    _send(connection, answer)
        except OSError:
            # Nobody is there any more.
            return
        finally:
            self._open.release()

    def _read(self, connection: socket.socket) -> Request:
        text, until = bytearray(), monotonic() + self._seconds
        while not text.endswith(b"\n"):
            connection.settimeout(max(0.001, until - monotonic()))
            try:
                part = connection.recv(LONGEST + 1 - len(text))
            except TimeoutError:
                part = b""
            text += part
            if not part or len(text) > LONGEST:
                raise CorruptInput(
                    f"a request for a load is a line of {LONGEST} bytes at most, within {self._seconds:.0f} s"
                )
        try:
            return msgspec.json.decode(text, type=Request)
        except msgspec.MsgspecError as error:
            # Its text may quote what came in.
            raise CorruptInput("this is no request for a load of this release") from error

    def _answer(self, connection: socket.socket, request: Request) -> Answer | None:
        """Return the answer, once the load is over; an empty one of a load that is cancelled, None where the server ends."""
        load, wakeup, began = _Load(request), Wakeup(), monotonic()
        future = (self._worker if request.every is None else self._endless).submit(self._run, load)
        future.add_done_callback(lambda _: wakeup.notify())
        shown: dict[str, Progress] = {}
        heard = began
        connection.settimeout(self._seconds)
        # Not select(), which takes no descriptor above 1,023.
        either, reader = select.poll(), select.poll()
        either.register(connection, select.POLLIN)
        either.register(wakeup.fileno(), select.POLLIN)
        reader.register(connection, select.POLLOUT)
        while not future.done():
            ready = [descriptor for descriptor, _ in either.poll(_EVERY * 1000)]
            # A sender sends nothing more, so this is its end.
            if connection.fileno() in ready or self._closing:
                self._cancel(load, future, connection)
                return None if self._closing else Answer()
            try:
                heard = _tell(connection, load, shown) or heard
            except OSError:
                self._cancel(load, future, connection)
                raise
            # Not to a sender that is stopped and reads nothing: its load goes on.
            if monotonic() > heard + HEARTBEAT_SECONDS and reader.poll(0):
                with suppress(OSError):
                    connection.send(b"\n")
                heard = monotonic()
            if monotonic() > began + self._wait_seconds and not self._goes_first(request) and future.cancel():
                return Answer(refused="it loads another stream")
        _tell(connection, load, shown)
        return future.result() if not future.cancelled() else None

    def _goes_first(self, request: Request) -> bool:
        running = self._running
        return running is None or running.request.stream == request.stream

    def _cancel(self, load: _Load, future: "Future[Answer]", connection: socket.socket) -> None:
        heard = monotonic()
        load.cancelled.set()
        while not future.cancel() and not future.done():
            if monotonic() > heard + HEARTBEAT_SECONDS:
                # To one that waits for the end.
                with suppress(OSError):
                    connection.send(b"\n")
                heard = monotonic()
            try:
                self._loader.cancel(load.tag)
            except Exception as error:  # noqa: BLE001 - the load ends at its next step then.
                _log.warning("a load cannot be cancelled now: %s", type(error).__name__)
            select.select([], [], [], _EVERY / 5)

    def _run(self, load: _Load) -> Answer:
        ends = load.request.every is None
        if ends:
            self._running = load
        try:
            if ends:
                return self._loader.run(load.tag, load.request, load.on_progress)
            return self._loader.follow(load.tag, load.request, load.reports.append, load.cancelled)
        except ReplicationError as error:
            return Answer(failure=_failure(error))
        except Exception as error:  # noqa: BLE001 - a defect ends its load, and not the server.
            where = doors.place_of(error)
            _log.error("the load of %s ended by a defect: %s at %s", load.request.stream, type(error).__name__, where)
            return Answer(
                failure=Failure(
                    message=f"the load of {load.request.stream} ended by a defect ({type(error).__name__} at {where})",
                    hint="Report this line. What was committed stays, and a load goes on from it.",
                    exit_code=UNEXPECTED,
                )
            )
        finally:
            if ends:
                self._running = None


def _tell(connection: socket.socket, load: _Load, shown: dict[str, Progress]) -> float | None:
    """Send what a load did since the last time, and note it; return when, None where that is nothing."""
    news: list[Progress | Answer] = [each for step, each in list(load.progress.items()) if shown.get(step) != each]
    shown |= load.progress
    while load.reports:
        news.append(load.reports.popleft())
    for line in news:
        _send(connection, line)
    return monotonic() if news else None


def _failure(error: ReplicationError) -> Failure:
    return Failure(message=error.message, hint=error.hint, exit_code=error.exit_code)


def _send(connection: socket.socket, line: Progress | Answer) -> None:
    connection.sendall(msgspec.json.encode(line) + b"\n")
