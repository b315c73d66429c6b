"""What becomes of each request that comes to an edge, from its arrival until the parts of its answer were accepted.

Guarantees that a kind that the edge's file does not list is refused, whoever asks; that a request that changes something is
done once at most, also over a restart; that one whose deadline has passed is dropped; that a flood costs bounded memory and one
thread a kind. Each request is logged, with its caller and kind, and nothing of what it is about.

Requests are checked in the connection's thread and handled in a thread of their kind. Parts of answers wait until the other
side has accepted them, or their deadline has passed: filled by the threads that handle requests, emptied by the connection's.
Safe for threads.

The ids of requests that change something, kept in the state folder: a request is done once at most, whatever comes twice.
"""

import itertools
import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from headrace import doors, files, requests
from headrace.amqp.links import Accept, Outcome, Reject, Release
from headrace.errors import UNEXPECTED, CorruptInput, ReplicationError
from headrace.formats import UNREADABLE
from headrace.logs import RateLimitedLog
from headrace.requests import LONGEST_SECONDS, REQUESTS, Content, Part, Request, decode_request, encode, parts

_log = logging.getLogger(__name__)

#: Parts that wait, beyond which no more requests are taken.
_MANY = 400


class AnswerOutbox:
    """The parts, in the order in which they are to be sent."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._waiting: deque[tuple[int, int, Part]] = deque()
        self._sent: dict[int, tuple[int, Part]] = {}
        #: Called after parts were put in, by any thread.
        self.wake: Callable[[], None] = lambda: None

    @property
    def is_full(self) -> bool:
        """Whether so much waits that no more requests should be taken."""
        return len(self._waiting) + len(self._sent) > _MANY

    @property
    def is_empty(self) -> bool:
        """Whether every part was accepted, or given up."""
        return not self._waiting and not self._sent

    def put(self, parts: Iterable[Part], deadline: int) -> None:
        """Have the parts of an answer sent, unless its deadline, in milliseconds since 1970, has passed."""
        with self._lock:
            self._waiting.extend((next(self._numbers), deadline, part) for part in parts)
        self.wake()

    def take(self) -> tuple[int, bytes, Part, int] | None:
        """Return the next part: its number, its bytes, itself and its deadline; None when nothing waits."""
        late = set()
        with self._lock:
            while self._waiting:
                number, deadline, part = self._waiting.popleft()
                if deadline < self._clock() * 1000 and part.outcome != "expired":
                    late.add((part.id, part.kind))
                    continue
                self._sent[number] = (deadline, part)
                break
            else:
                number = 0
        for request, kind in late:
            _log.warning("the answer to request %s (%s) is dropped: its deadline has passed", request, kind)
        if not number:
            return None
        return number, encode(part), part, deadline

    def settled(self, number: int) -> None:
        """Forget a part: the other side has it, or refuses it."""
        with self._lock:
            self._sent.pop(number, None)

    def returned(self, number: int) -> None:
        """Have a part sent again."""
        with self._lock:
            entry = self._sent.pop(number, None)
            if entry is not None:
                self._waiting.appendleft((number, *entry))

    def lost(self) -> None:
        """Have all parts sent again that have no outcome: the link is gone."""
        with self._lock:
            for number in sorted(self._sent, reverse=True):
                self._waiting.appendleft((number, *self._sent.pop(number)))


class KnownRequests:
    """The file; used by one thread at a time."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        self._path = folder / "requests.json"
        self._clock = clock
        #: Deadlines, in milliseconds, by id; None until the file is read.
        self._deadlines: dict[str, int] | None = None

    def add(self, request: Request) -> bool:
        """Note a request durably; False when it was noted before.

        Raises NoSpace or NeedsOperator where the disk refuses, and CorruptInput for a damaged file: then it must not be done.
        """
        if self._deadlines is None:
            self._deadlines = self._read()
        if request.id in self._deadlines:
            return False
        now = int(self._clock() * 1000)
        deadlines = {each: deadline for each, deadline in self._deadlines.items() if deadline > now}
        deadlines[request.id] = request.deadline
        files.write_private(self._path, msgspec.json.encode(deadlines))
        self._deadlines = deadlines
        return True

    def _read(self) -> dict[str, int]:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=dict[str, int])
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise files.problem(self._path, "read", error) from error
        except UNREADABLE as error:
            raise CorruptInput(
                f"{self._path} is damaged",
                hint="Remove it: it holds the ids of requests from headquarters of the last hours, and nothing else.",
            ) from error


#: Requests of one kind that wait, and ids that are remembered, at most.
_WAITING, _REMEMBERED = 8, 20_000
_FULL_SECONDS = 1.0


class Handler(NamedTuple):
    """Handles requests of one kind."""

    #: Returns the exit code and the data of the answer; raises ReplicationError.
    handle: Callable[[Request], tuple[int, Any]]
    #: Whether a request may change something, so that it must not be done twice.
    changes: bool = False
    #: Called at the end, in the thread of the kind.
    close: Callable[[], None] = lambda: None
    #: Whether a request is one of many that belong together, of which the first is logged.
    is_quiet: Callable[[Request], bool] = lambda _request: False


class RequestService:
    """The requests of one source; `receive` is called by the connection's thread."""

    def __init__(
        self,
        source: str,
        allowed: Collection[str],
        handlers: Mapping[str, Handler],
        known_requests: KnownRequests,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.answers = AnswerOutbox(clock)
        self._source = source
        self._allowed = allowed
        self._handlers = handlers
        self._known_requests = known_requests
        self._clock = clock
        #: Deadlines by id, of what came to this process.
        self._came: dict[str, int] = {}
        self._kinds: dict[str, _Worker] = {}
        self._refused = RateLimitedLog(_log.warning)

    def receive(self, body: bytes) -> Outcome:
        """Take a request in; return what becomes of its delivery. Its answer follows."""
        if self.answers.is_full:
            return Release(_FULL_SECONDS)
        try:
            request = decode_request(body)
        except Exception as caught:  # noqa: BLE001 - whatever it raises, it is about this request alone.
            error = doors.REQUEST.refuse(caught, REQUESTS + self._source)
            self._refused("a request is rejected: %s", error.message)
            return Reject("amqp:decode-error", f"{error.message}. {error.hint}".strip())
        if request.source != self._source:
            self._refused("request %s from %r is for another source: rejected", request.id, request.caller)
            return Reject("amqp:unauthorized-access", f"this is the edge of {self._source}")
        if request.id in self._came:
            _log.debug("request %s came again", request.id)
            return Accept()
        self._judge(request)
        return Accept()

    def stop(self, seconds: float) -> None:
        """End the threads; wait for what is being handled at most `seconds`."""
        until = time.monotonic() + seconds
        for worker in self._kinds.values():
            worker.stop()
        for worker in self._kinds.values():
            worker.join(until - time.monotonic())

    def _judge(self, request: Request) -> None:
        left = request.seconds_left(self._clock())
        description = f"request {request.id} from {request.caller!r}: {request.kind!r}"
        if left <= 0:
            self._refused("%s is dropped: its deadline passed %.0f s ago", description, -left)
            self._answer(request, "expired", f"the request reached the edge {-left:.0f} s after its deadline", _LATE)
        elif request.kind in self._allowed and request.kind not in self._handlers:
            self._refused("%s is refused: this release does not handle it", description)
            self._answer(
                request, "refused", f"the edge's release does not handle {request.kind!r}", "Upgrade the edge."
            )
        elif request.kind not in self._allowed:
            self._refused("%s is refused: [requests] allow does not list it", description)
            listed = f"The file allows: {', '.join(sorted(self._allowed)) or 'nothing'}."
            self._answer(request, "refused", f"the edge's file does not allow {request.kind!r}", listed)
        elif left > LONGEST_SECONDS:
            self._refused("%s is refused: its deadline is %.0f s ahead", description, left)
            self._answer(request, "refused", f"the deadline is more than {LONGEST_SECONDS:.0f} s ahead", _LATE)
        elif not self._remember(request) or not self._worker(request.kind).put(request):
            self._came.pop(request.id, None)
            self._refused("%s is refused: too many requests", description)
            self._answer(request, "busy", "the edge has too many requests", "Ask again later.")
        else:
            level = logging.DEBUG if self._handlers[request.kind].is_quiet(request) else logging.INFO
            _log.log(level, "%s", description)

    def _remember(self, request: Request) -> bool:
        now = self._clock() * 1000
        if len(self._came) >= _REMEMBERED:
            self._came = {each: deadline for each, deadline in self._came.items() if deadline > now}
        if len(self._came) >= _REMEMBERED:
            return False
        self._came[request.id] = request.deadline
        return True

    def _worker(self, kind: str) -> "_Worker":
        if kind not in self._kinds:
            self._kinds[kind] = _Worker(kind, self._handle, self._handlers[kind].close)
        return self._kinds[kind]

    def _handle(self, request: Request) -> None:
        """Handle a request and have it answered; in the thread of its kind."""
        handler = self._handlers[request.kind]
        if request.seconds_left(self._clock()) <= 0:
            _log.warning("request %s (%s) waited beyond its deadline: dropped", request.id, request.kind)
            self._answer(request, "expired", "the request waited at the edge beyond its deadline", "")
            return
        try:
            if handler.changes and not self._known_requests.add(request):
                _log.warning("request %s (%s) came before, and is not done again", request.id, request.kind)
                hint = f"Look with 'headrace ask {self._source} {request.kind} --status'."
                self._answer(request, "repeated", "the request came twice; the edge does it once at most", hint)
                return
            exit_code, data = handler.handle(request)
        except ReplicationError as error:
            _log.info("request %s (%s) failed: %s", request.id, request.kind, error.message)
            content = Content(exit_code=error.exit_code, message=error.message, hint=error.hint)
            self.answers.put(parts(request, "failed", content), request.deadline)
        except Exception as caught:  # noqa: BLE001 - one request fails, the edge goes on.
            # Its text may hold what was asked about.
            where = f"{type(caught).__name__} at {doors.place_of(caught)}"
            _log.error("request %s (%s) failed: unexpected error: %s", request.id, request.kind, where)
            content = Content(exit_code=UNEXPECTED, message="unexpected error", hint="See the edge's log.")
            self.answers.put(parts(request, "failed", content), request.deadline)
        else:
            self.answers.put(parts(request, "done", Content(exit_code=exit_code, data=data)), request.deadline)

    def _answer(self, request: Request, outcome: requests.Outcome, why: str, hint: str) -> None:
        self.answers.put(parts(request, outcome, Content(exit_code=3, message=why, hint=hint)), request.deadline)


_LATE = "If that lasts, compare the clocks of who asks and of the edge."


class _Worker:
    """A thread that handles the requests of one kind, one after the other."""

    def __init__(self, kind: str, handle: Callable[[Request], None], close: Callable[[], None]) -> None:
        self._handle, self._close = handle, close
        self._queue: queue.Queue[Request | None] = queue.Queue(_WAITING)
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=f"requests {kind}", daemon=True)
        self._thread.start()

    def put(self, request: Request) -> bool:
        """Have a request handled; False when too many wait."""
        try:
            self._queue.put_nowait(request)
        except queue.Full:
            return False
        return True

    def stop(self) -> None:
        """Handle nothing more."""
        self._stopping = True
        try:
            self._queue.put_nowait(None)
        except queue.Full:
            # Whoever waits there wakes it.
            return

    def join(self, seconds: float) -> None:
        """Wait for its end; what hangs ends with the process."""
        self._thread.join(max(0.0, seconds))

    def _run(self) -> None:
        try:
            while not self._stopping:
                request = self._queue.get()
                if request is not None and not self._stopping:
                    self._handle(request)
        finally:
            self._close()
