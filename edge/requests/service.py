"""What becomes of each request that comes to an edge: checked in the connection's thread, handled in a thread of its kind.

Guarantees that a kind that the edge's file does not list is refused, whoever asks; that a request that changes something is done
once at most, also over a restart; that one whose deadline has passed is dropped; that a flood costs bounded memory and one
thread a kind. Each request is logged, with its caller and kind, and nothing of what it is about.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from edge.requests.answer_queue import AnswerOutbox, KnownRequests
from headrace import doors
from headrace.amqp.links import Accept, Outcome, Reject, Release
from headrace.errors import UNEXPECTED, ReplicationError
from headrace.logs import RateLimitedLog
from headrace.requests import message
from headrace.requests.message import LONGEST_SECONDS, REQUESTS, Content, Request, decode_request, parts

_log = logging.getLogger(__name__)

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
        known: KnownRequests,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.answers = AnswerOutbox(clock)
        self._source = source
        self._allowed = allowed
        self._handlers = handlers
        self._known = known
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
        asked = f"request {request.id} from {request.caller!r}: {request.kind!r}"
        if left <= 0:
            self._refused("%s is dropped: its deadline passed %.0f s ago", asked, -left)
            self._answer(request, "expired", f"the request reached the edge {-left:.0f} s after its deadline", _LATE)
        elif request.kind in self._allowed and request.kind not in self._handlers:
            self._refused("%s is refused: this release does not handle it", asked)
            self._answer(
                request, "refused", f"the edge's release does not handle {request.kind!r}", "Upgrade the edge."
            )
        elif request.kind not in self._allowed:
            self._refused("%s is refused: [requests] allow does not list it", asked)
            listed = f"The file allows: {', '.join(sorted(self._allowed)) or 'nothing'}."
            self._answer(request, "refused", f"the edge's file does not allow {request.kind!r}", listed)
        elif left > LONGEST_SECONDS:
            self._refused("%s is refused: its deadline is %.0f s ahead", asked, left)
            self._answer(request, "refused", f"the deadline is more than {LONGEST_SECONDS:.0f} s ahead", _LATE)
        elif not self._remember(request) or not self._worker(request.kind).put(request):
            self._came.pop(request.id, None)
            self._refused("%s is refused: too many requests", asked)
            self._answer(request, "busy", "the edge has too many requests", "Ask again later.")
        else:
            level = logging.DEBUG if self._handlers[request.kind].is_quiet(request) else logging.INFO
            _log.log(level, "%s", asked)

    def _remember(self, request: Request) -> bool:
        now = self._clock() * 1000
        if len(self._came) >= _REMEMBERED:
            self._came = {known: deadline for known, deadline in self._came.items() if deadline > now}
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
            if handler.changes and not self._known.add(request):
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

    def _answer(self, request: Request, outcome: message.Outcome, why: str, hint: str) -> None:
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
