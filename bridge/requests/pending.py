"""The requests whose deadlines have not passed, of all sources of a bridge's file, and what became of each.

Every bridge reads all requests; one sends those of the sources that it serves at the moment, so a request outlives a take-over.
An edge that gets one twice handles it once. Memory is bounded, by source and in all. Safe for threads; knows no socket and no
client.

A request as an AMQP message: the bytes of its Kafka record, with a name and an expiry time for what is in transit.
"""

import threading
import time
from collections.abc import Callable, Iterator
from enum import Enum, auto

from bridge.deliveries.pending import Entry
from bridge.deliveries.record import Record
from headrace.amqp.transport import Message, symbol
from headrace.requests import (
    CONTENT_TYPE,
    LONGEST_SECONDS,
    REQUESTS,
    Content,
    Outcome,
    Part,
    Request,
    decode_request,
    parts,
)

#: Seconds for which a broker keeps a request beyond its deadline: the edge reports what was late.
_EXPIRY_SECONDS = 60.0


def encode(entry: Entry, _name: str) -> bytes:
    """Return a request as the bytes of a durable message."""
    body = entry.record.value or b""
    request = decode_request(body)
    message = Message(
        body=body,
        # Binary goes as data.
        inferred=True,
        durable=True,
        id=request.id,
        address=entry.address,
        subject=request.kind,
        content_type=symbol(CONTENT_TYPE),
        delivery_count=entry.sends - 1,
        expiry_time=request.deadline / 1000 + _EXPIRY_SECONDS,
        properties={"version": request.version, "source": request.source, "caller": request.caller},
    )
    encoded: bytes = message.encode()
    return encoded


#: Most requests without an answer that are kept of one source, and of all; their largest size in bytes; and most that are
#: answered.
MOST_OF_SOURCE, _MOST, _MOST_BYTES, _MOST_ANSWERED = 64, 10_000, 32 << 20, 100_000
#: Largest difference of clocks, in seconds.
_CLOCK_SECONDS = 300.0
_CLOCKS = "If that was not meant, compare the clocks of who asks, of the bridge and of Kafka's brokers."
#: The pause before a request that came back is sent again, in seconds.
_AGAIN_SECONDS = 0.5


class State(Enum):
    """What a request is at."""

    #: For its edge's link and credit.
    WAITING = auto()
    #: On its way, without an outcome.
    SENT = auto()
    #: The edge, or a broker between, has it.
    TAKEN = auto()
    ANSWERED = auto()


class Asked:
    """A request and what became of it."""

    __slots__ = ("due_at", "entry", "last", "request", "state", "until", "written")

    def __init__(self, request: Request, entry: Entry, until: float) -> None:
        self.request = request
        self.entry = entry
        #: When its deadline passes, by the monotonic clock.
        self.until = until
        self.state = State.WAITING
        #: When it may be sent, by the monotonic clock.
        self.due_at = 0.0
        #: The parts of the answer that are in Kafka.
        self.written: set[tuple[str, str, int]] = set()
        #: The number of its last part, by who answers and the outcome, once that is in Kafka.
        self.last: dict[tuple[str, str], int] = {}


class PendingRequests:
    """The requests of one bridge; what the bridge answers itself goes to `answer`."""

    #: What it is called as a delivery's outbox would be.
    name = "requests"

    def __init__(
        self,
        serves: Callable[[str], bool],
        answer: Callable[[Part], None],
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        #: Whether a source is this bridge's now.
        self._serves = serves
        self._answer = answer
        self._clock, self._monotonic = clock, monotonic
        self._lock = threading.RLock()
        self._by_source: dict[str, dict[str, Asked]] = {}
        self._count = self._bytes = 0
        # Those that are answered are known until their deadlines: who reads them again asks no edge twice.
        self._answered: dict[str, Asked] = {}
        #: Why an address has no link, for the answer to what expires.
        self._notes: dict[str, str] = {}

    # Kafka's side.

    def add(self, request: Request, raw: bytes, written: float | None = None) -> None:
        """Note a request that was read; `written` is when, in seconds since 1970, if it is read as it is written.

        Then its time counts from there, by the clock of who asks, and this machine's, which may be a day ahead, decides nothing.
        """
        with self._lock:
            requests = self._by_source.get(request.source, {})
            if request.id in requests or request.id in self._answered:
                return
            left = request.seconds_left(self._clock() if written is None else written)
            if left <= 0:
                # What is read late was answered by the bridge of that time.
                if written is not None:
                    self._reply(request, "refused", "the deadline had passed when the request was written", _CLOCKS)
                return
            if left > LONGEST_SECONDS + _CLOCK_SECONDS:
                # Kept, it would count towards the limits until then.
                self._reply(request, "refused", f"the deadline is more than {LONGEST_SECONDS:.0f} s ahead", _CLOCKS)
                return
            if (
                len(requests) >= MOST_OF_SOURCE
                or self._count >= _MOST
                or self._bytes + len(raw) > _MOST_BYTES
                or len(self._answered) + self._count >= _MOST_ANSWERED
            ):
                why = f"{len(requests)} requests of this source wait at the bridge, {self._count} of all"
                self._reply(request, "busy", why, "Ask again later.")
                return
            record = Record("", 0, 0, request.source.encode(), raw)
            entry = Entry(record, REQUESTS + request.source)
            self._by_source.setdefault(request.source, {})[request.id] = Asked(request, entry, self._monotonic() + left)
            self._count += 1
            self._bytes += len(raw)

    def judge(self, source: str, part: Part) -> str:
        """Return why a part of an answer is not to be written; empty when it is."""
        with self._lock:
            asked = self._by_source.get(source, {}).get(part.id) or self._answered.get(part.id)
            if part.source != source:
                return f"it names {part.source}"
            if asked is None:
                return "nobody waits for it: its deadline has passed, or nobody asked"
            if (part.by, part.outcome, part.part) in asked.written:
                return "it is written"
            return "the request is answered" if asked.state is State.ANSWERED else ""

    def wrote(self, part: Part) -> None:
        """Note that a part of an answer is in Kafka."""
        with self._lock:
            asked = self._by_source.get(part.source, {}).get(part.id)
            if asked is not None:
                answer = part.by, part.outcome
                asked.written.add((*answer, part.part))
                if part.last:
                    asked.last[answer] = part.part
                # Those ahead of the last one may come again after it.
                last = asked.last.get(answer)
                if last is not None and all((*answer, number) in asked.written for number in range(last + 1)):
                    self._end(asked)

    def expire(self) -> None:
        """Drop the requests whose deadline has passed, and answer those of sources that this bridge serves."""
        now = self._monotonic()
        with self._lock:
            for source, requests in list(self._by_source.items()):
                for asked in [each for each in requests.values() if each.until <= now]:
                    del requests[asked.request.id]
                    self._count -= 1
                    self._bytes -= len(asked.entry.record.value or b"")
                    self._reply(asked.request, "expired", *self._why(asked))
                if not requests:
                    del self._by_source[source]
                    self._notes.pop(REQUESTS + source, None)
            for asked in [each for each in self._answered.values() if each.until <= now]:
                del self._answered[asked.request.id]

    # The links' side, as a delivery's outbox has it.

    def addresses(self) -> list[str]:
        """Return the addresses of served sources whose requests wait."""
        with self._lock:
            return [
                REQUESTS + source
                for source, requests in self._by_source.items()
                if any(asked.state is State.WAITING for asked in requests.values()) and self._serves(source)
            ]

    def sources(self) -> list[str]:
        """Return the served sources that have requests without an answer."""
        with self._lock:
            return [source for source, requests in self._by_source.items() if requests and self._serves(source)]

    def take(self, address: str) -> Entry | None:
        """Return the next request to send to an address; None when none may be sent now."""
        with self._lock:
            for asked in self._waiting(address):
                if asked.due_at <= self._monotonic():
                    asked.state = State.SENT
                    asked.entry.sends += 1
                    return asked.entry
            return None

    def due(self, address: str) -> float | None:
        """Return in how many seconds the next request of an address may be sent; None when none waits."""
        with self._lock:
            waiting = [asked.due_at for asked in self._waiting(address)]
            return max(0.0, min(waiting) - self._monotonic()) if waiting else None

    def accepted(self, entry: Entry) -> None:
        """Note that the edge, or a broker between, has a request."""
        self._change(entry, State.TAKEN)

    def returned(self, entry: Entry) -> None:
        """Have a request sent again after a pause."""
        self._change(entry, State.WAITING, _AGAIN_SECONDS)

    def lost(self, entry: Entry) -> None:
        """Have a request sent again: its link is gone."""
        self._change(entry, State.WAITING)

    def rejected(self, entry: Entry, condition: str, description: str) -> None:
        """Answer a request that the edge, or a broker between, rejected."""
        with self._lock:
            asked = self._find(entry)
            if asked is not None and asked.state is State.SENT:
                self._end(asked)
                self._reply(asked.request, "refused", f"the request was rejected: {condition}: {description}"[:500], "")

    def note(self, address: str, reason: str) -> None:
        """Note why an address has no link that takes its requests; an empty reason: it has one."""
        with self._lock:
            if reason:
                self._notes[address] = reason
            else:
                self._notes.pop(address, None)

    # Under the lock.

    def _end(self, asked: Asked) -> None:
        asked.state = State.ANSWERED
        if self._by_source.get(asked.request.source, {}).pop(asked.request.id, None) is not None:
            self._count -= 1
            self._bytes -= len(asked.entry.record.value or b"")
            # It is known by its id alone from here on.
            asked.entry.record = asked.entry.record._replace(value=None)
            self._answered[asked.request.id] = asked

    def _waiting(self, address: str) -> Iterator[Asked]:
        source = address.removeprefix(REQUESTS)
        if not self._serves(source):
            return
        now = self._monotonic()
        for asked in self._by_source.get(source, {}).values():
            if asked.state is State.WAITING and asked.until > now:
                yield asked

    def _change(self, entry: Entry, state: State, pause: float = 0.0) -> None:
        with self._lock:
            asked = self._find(entry)
            if asked is not None and asked.state is State.SENT:
                asked.state, asked.due_at = state, self._monotonic() + pause

    def _find(self, entry: Entry) -> Asked | None:
        requests = self._by_source.get(entry.address.removeprefix(REQUESTS), {})
        return next((asked for asked in requests.values() if asked.entry is entry), None)

    def _why(self, asked: Asked) -> tuple[str, str]:
        if asked.state is State.WAITING:
            note = self._notes.get(asked.entry.address, "")
            reason = f"the edge did not receive the request in time{note and f': {note}'}"
            return (
                reason,
                "Does the edge run, is it connected, and does its file have [requests] allow? See 'headrace status'.",
            )
        return (
            "the edge took the request and did not answer in time",
            "It may still be doing it. Give it longer (--timeout), and see the edge's log.",
        )

    def _reply(self, request: Request, outcome: Outcome, message: str, hint: str) -> None:
        if self._serves(request.source):
            content = Content(exit_code=5, message=message, hint=hint)
            for part in parts(request, outcome, content, "bridge"):
                self._answer(part)
