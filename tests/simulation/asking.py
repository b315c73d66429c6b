"""Requests from headquarters in a run (docs/requests.md): each gets one answer, or fails plainly soon after its deadline; what
changes something is done once at most; and when all is well again every edge whose clock is right answers.
"""

from typing import Any

from bridge.requests.worker import AskingTopics
from edge.requests.service import Handler, KnownRequests, RequestService
from headrace.errors import ReplicationError
from headrace.requests import GRACE_SECONDS, Request, ask, decode_part
from tests.simulation.bridges import BridgeProcess
from tests.simulation.edges import Edge
from tests.simulation.kafka_broker import Broker
from tests.simulation.outcome import FailedRunError
from tests.simulation.run_part import RunPart
from tests.simulation.scheduler import Process, Scheduler
from tests.simulation.world import world

_REQUESTS, _ANSWERS = "headrace.requests", "headrace.answers"
#: How much longer than its deadline an ask may take, in seconds: a client is made and closed.
_BEYOND_SECONDS = GRACE_SECONDS + 60.0
#: The longest clock difference at which an edge answers, in seconds.
_CLOCK_SECONDS = 0.5


class Asking(RunPart):
    """The requests of one run; `bridges` and `edges` are set once they are made."""

    #: That of the present run.
    present: "Asking"

    def __init__(self, scheduler: Scheduler, broker: Broker, *, until: float, calm_at: float) -> None:
        self._scheduler, self._broker, self._calm_at = scheduler, broker, calm_at
        self.bridges: list[BridgeProcess] = []
        self.edges: list[Edge] = []
        broker.make(_REQUESTS, scheduler.random.choice((1, 2)))
        broker.make(_ANSWERS, scheduler.random.choice((1, 2)))
        #: How often an edge has done what a request asks for.
        self.done: dict[str, int] = {}
        #: What became of each request, None while it is not known, with its time limit.
        self._outcomes: dict[str, str | None] = {}
        self._limits: dict[str, float] = {}
        self._answered: set[str] = set()
        self._left = scheduler.random.choice((3, 10, 25))
        self._pace = until / self._left
        self._process = Process("headquarters")
        self._size = scheduler.random.choice((10, 10, 60_000))
        Asking.present = self

    def sections(self) -> dict[str, Any]:
        """Return the section that has bridges carry requests."""
        return {"requests": {}}

    def themes(self) -> list[tuple[str, ...]]:
        """Return which faults go together: a request comes again when an edge and a bridge begin again."""
        return [("edge crash", "bridge crash", "cut"), ("edge crash", "bridge stop"), ("bridge pause", "cut")]

    def start(self) -> None:
        """Ask now and then, and once more at the end."""
        self._scheduler.after(self._scheduler.random.random() * 5, self._ask_some)
        self._scheduler.after(self._calm_at, self._ask_last)

    def _ask_some(self) -> None:
        random = self._scheduler.random
        source = random.choice(self.edges).source
        for _ in range(random.choice((1, 1, 3))):
            self._ask(source, random.choice(("status", "snapshot")), random.choice((3.0, 15.0, 40.0)))
        self._left -= 1
        if self._left > 0:
            self._scheduler.after(random.expovariate(1 / self._pace), self._ask_some)

    def _ask_last(self) -> None:
        """Ask every edge that has not answered since the faults ended."""
        for edge in self._right_edges():
            if edge.source not in self._answered:
                self._ask(edge.source, "status", 15.0)
        if not self.is_done():
            self._scheduler.after(20.0, self._ask_last)

    def _right_edges(self) -> list[Edge]:
        return [each for each in self.edges if abs(each.clock) < _CLOCK_SECONDS]

    def _ask(self, source: str, kind: str, seconds: float) -> None:
        number = f"request-{len(self._outcomes):08}"
        self._outcomes[number] = None
        self._limits[number] = self._scheduler.now + seconds + _BEYOND_SECONDS
        self._scheduler.spawn(self._process, number, lambda: self._asked(number, source, kind, seconds))

    def _asked(self, number: str, source: str, kind: str, seconds: float) -> None:
        began = self._scheduler.elapsed
        try:
            file = self.bridges[0].file
            assert file.requests is not None
            topics = AskingTopics(file.kafka, file.requests.topics(file.kafka.prefix))
            try:
                deadline = int((world.scheduler.wall() + seconds) * 1000)
                content = ask(
                    topics, Request(id=number, source=source, kind=kind, caller="simulation", deadline=deadline)
                )
            finally:
                topics.close()
        except ReplicationError as error:
            self._outcomes[number] = f"{type(error).__name__}: {error.message}"
        else:
            self._outcomes[number] = "done"
            if content.data["id"] != number or len(content.data["text"]) != self._size:
                raise FailedRunError(f"{number} has another's answer: {content.data['id']}")
            if began > self._calm_at:
                self._answered.add(source)
        self._scheduler.trace(f"{number} {kind} of {source}: {self._outcomes[number]}")

    def handle(self, request: Request) -> tuple[int, Any]:
        """Do at an edge what a request asks for."""
        random = self._scheduler.random
        self._scheduler.sleep(random.random() ** 4 * 5)
        self.done[request.id] = self.done.get(request.id, 0) + 1
        self._scheduler.sleep(random.random() ** 4)
        return 0, {"id": request.id, "text": "x" * self._size}

    def is_done(self) -> bool:
        """Whether everything is answered, and every edge answers."""
        known = all(outcome is not None for outcome in self._outcomes.values())
        return known and self._left <= 0 and {each.source for each in self._right_edges()} <= self._answered

    def judge(self, *, done: bool) -> None:
        """Look at what became of requests."""
        kinds: dict[str, set[tuple[Any, ...]]] = {}
        for log in self._broker.topics[_ANSWERS]:
            for _, entry in log.committed():
                part = decode_part(entry.value or b"")
                kinds.setdefault(part.id, set()).add((part.kind, part.by, part.outcome))
        for number, outcome in self._outcomes.items():
            if outcome is None and self._scheduler.now > self._limits[number]:
                raise FailedRunError(f"{number} has no answer and did not fail")
            snapshot = {"snapshot"} & {kind for kind, *_ in kinds.get(number, ())}
            if snapshot and self.done.get(number, 0) > 1:
                raise FailedRunError(f"{number} was done {self.done[number]} times")
            if outcome == "done" and not self.done.get(number):
                raise FailedRunError(f"{number} is answered, and was not done")
        for task in [each for each in self._process.tasks if each.failure is not None]:
            raise FailedRunError(f"{task.name}: {task.failure}") from task.failure

    def shown(self) -> str:
        """Return how far it is."""
        open_ = [number for number, outcome in self._outcomes.items() if outcome is None]
        silent = {each.source for each in self._right_edges()} - self._answered
        return f"requests without an outcome: {open_}; edges that do not answer: {sorted(silent)}"


def service_of(config: Any, _service: Any, _checkpoint: Any) -> RequestService | None:
    """Return what handles the requests of an edge, in place of edge.answers.handlers.request_service."""
    if not config.requests.allow:
        return None
    handlers = {
        "status": Handler(Asking.present.handle),
        "snapshot": Handler(Asking.present.handle, changes=True),
    }
    return RequestService(
        config.source.name, config.requests.allow, handlers, KnownRequests(config.resolve(config.state.folder))
    )
