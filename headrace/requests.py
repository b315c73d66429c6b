"""Requests to edges, and their answers (docs/requests.md): the formats that headquarters, bridges and edges share, and asking.

A request and the parts of its answer are JSON: values of Kafka records at headquarters, bodies of AMQP messages to the region. A
bridge carries these bytes unchanged in both directions. The key of a record is the source. Reading them raises CorruptInput for
what is none of ours, and NeedsOperator for a version that this release does not read. `ask` puts a request to Kafka and the parts
of its answer together; no client of Kafka is imported here.
"""

import getpass
import re
import secrets
import socket
import time
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal, Protocol

import msgspec
from msgspec import Meta

from headrace import doors, findings
from headrace.configuration.value_types import SOURCE_NAME
from headrace.errors import CorruptInput, NeedsOperator, NotConnected, ReplicationError, Retryable
from headrace.formats import ANSWER, REQUEST, UNREADABLE, explain
from headrace.printable import echo
from headrace.status.answer import Answer
from headrace.status.table import screen
from headrace.terminal import Terminal

#: Addresses of a source: where its edge receives requests, and where it sends answers.
REQUESTS, ANSWERS = "requests/", "answers/"
CONTENT_TYPE = "application/vnd.headrace.request+json"
ANSWER_CONTENT_TYPE = "application/vnd.headrace.answer+json"
#: No request is larger, in bytes, and none has a deadline further ahead, in seconds.
LARGEST_REQUEST, LONGEST_SECONDS = 256 * 1024, 6 * 3600.0
#: Characters of an answer that one part has: a message stays well below what routers let be overtaken.
PART_CHARACTERS = 24_000
#: No answer is longer in all, in characters, and so none has more parts.
LARGEST_ANSWER = 8_000_000
MOST_PARTS = -(-LARGEST_ANSWER // PART_CHARACTERS)
#: Characters that are kept for one request: an answer of the edge's, and one of a bridge's in its place.
_MOST_CHARACTERS = 2 * LARGEST_ANSWER
#: No deadline is later, in milliseconds since 1970, whatever the clocks: the end of the year 9999.
_LAST_DEADLINE = 253_402_300_799_999

#: `done`: the content is what the kind answers. `failed`: the edge tried, and an error ended it. `repeated`: a request that
#: changes something came twice, and was not done a second time. The others were not tried.
Outcome = Literal["done", "failed", "refused", "expired", "busy", "repeated"]

_Id = Annotated[str, Meta(pattern=r"^[A-Za-z0-9-]{8,64}$")]
_Source = Annotated[str, Meta(pattern=SOURCE_NAME, max_length=200)]
_Kind = Annotated[str, Meta(pattern=r"^[a-z][a-z-]{0,30}$")]
#: Printable: it is logged.
_Caller = Annotated[str, Meta(pattern=r"^[\x20-\x7e]{1,200}$")]
#: How long after its deadline the answer of a bridge to an expired request is awaited, in seconds.
GRACE_SECONDS = 3.0
_POLL_SECONDS = 0.5


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody at headquarters asks of an edge."""

    version: int = REQUEST.version
    #: Unique: the caller finds the answer by it, and an edge that it comes to twice handles it once.
    id: _Id
    source: _Source
    kind: _Kind
    #: Who asks, as the caller itself states.
    caller: _Caller
    #: When nobody waits for the answer any more, in milliseconds since 1970.
    deadline: Annotated[int, Meta(ge=0, le=_LAST_DEADLINE)]
    arguments: dict[str, Any] = {}

    def seconds_left(self, now: float | None = None) -> float:
        """Return the seconds to the deadline, negative when it has passed; `now` is in seconds since 1970."""
        return self.deadline / 1000 - (time.time() if now is None else now)


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A part of an answer; the contents of all parts, in order, are one JSON text."""

    version: int = ANSWER.version
    #: Of the request.
    id: _Id
    source: _Source
    kind: _Kind
    outcome: Outcome
    #: Whether the edge answers, or a bridge in its place.
    by: Literal["edge", "bridge"] = "edge"
    #: From 0 on.
    part: Annotated[int, Meta(ge=0, lt=MOST_PARTS)] = 0
    last: bool = True
    content: Annotated[str, Meta(max_length=PART_CHARACTERS)] = ""


class Content(msgspec.Struct, kw_only=True):
    """What the whole content of an answer holds."""

    #: Exit code of the command that the request runs.
    exit_code: int = 0
    #: What the kind answers; see docs/requests.md.
    data: Any = None
    #: Where the outcome is another one than `done`: why, and what to do about it.
    message: str = ""
    hint: str = ""


class _Versioned(msgspec.Struct):
    version: Annotated[int, Meta(ge=0, lt=1 << 31)] = 1


def new_request(
    source: str, kind: str, caller: str, seconds: float, arguments: dict[str, Any] | None = None
) -> Request:
    """Return a request with an id of its own, whose deadline is some seconds ahead."""
    deadline = int((time.time() + min(seconds, LONGEST_SECONDS)) * 1000)
    return Request(
        id=secrets.token_hex(16), source=source, kind=kind, caller=caller, deadline=deadline, arguments=arguments or {}
    )


def decode_request(data: bytes) -> Request:
    """Return the request that some bytes are."""
    if len(data) > LARGEST_REQUEST:
        raise CorruptInput(f"a request of {len(data)} bytes: {LARGEST_REQUEST} are the limit")
    request: Request = _decode(data, Request, REQUEST, "a request")
    return request


def decode_part(data: bytes) -> Part:
    """Return the part of an answer that some bytes are."""
    part: Part = _decode(data, Part, ANSWER, "an answer")
    return part


def _decode(data: bytes, kind: Any, form: Any, what: str) -> Any:
    try:
        form.check(msgspec.json.decode(data, type=_Versioned).version, what)
        return msgspec.json.decode(data, type=kind)
    except UNREADABLE as error:
        raise CorruptInput(f"this is not {what} of Headrace: {explain(error)}") from error


def parts(
    request: Request, outcome: Outcome, content: Content, by: Literal["edge", "bridge"] = "edge"
) -> Iterator[Part]:
    """Yield the parts of the answer to a request; one too long becomes a `failed` one."""
    text = msgspec.json.encode(content).decode()
    if len(text) > LARGEST_ANSWER:
        outcome = "failed"
        failure = Content(exit_code=3, message="the answer is too long", hint="Ask for less at a time.")
        text = msgspec.json.encode(failure).decode()
    starts = range(0, len(text), PART_CHARACTERS)
    for number, start in enumerate(starts):
        yield Part(
            id=request.id,
            source=request.source,
            kind=request.kind,
            outcome=outcome,
            by=by,
            part=number,
            last=number == len(starts) - 1,
            content=text[start : start + PART_CHARACTERS],
        )


def content_of(text: str) -> Content:
    """Return the content of a whole answer; raise CorruptInput for what is none."""
    try:
        return msgspec.json.decode(text, type=Content)
    except UNREADABLE as error:
        raise CorruptInput("the content of an answer is damaged") from error


encode = msgspec.json.encode


class Topics(Protocol):
    """The two topics, as who asks uses them; answers that were written before it was made are not read."""

    def send(self, key: str, value: bytes, seconds: float) -> None:
        """Write a request durably; raise NotConnected or NeedsOperator."""

    def read(self, seconds: float) -> Iterable[bytes]:
        """Return the answers that come, waiting for the first at most some seconds; raise NotConnected or NeedsOperator."""


def ask(topics: Topics, request: Request) -> Content:
    """Return the answer to a request.

    Raises:
        NotConnected: no answer came in time, or a bridge states why there is none.
        NeedsOperator: the edge refused it.
        Retryable: the edge has too much to do.
        Answered: an error at the edge, with its exit code.
    """
    seconds = request.seconds_left()
    topics.send(request.source, encode(request), max(1.0, seconds))
    collector = Collector(request)
    until = time.monotonic() + seconds + GRACE_SECONDS
    while (left := until - time.monotonic()) > 0:
        for value in topics.read(min(left, _POLL_SECONDS)):
            try:
                part = decode_part(value)
            except Exception as error:  # noqa: BLE001 - whatever it raises, it is about this record alone.
                # Of somebody else, or of a release that answers others.
                doors.ANSWER.refuse(error, request.source)
                continue
            content = collector.add(part)
            if content is not None:
                return content
    raise NotConnected(
        f"{request.source}: no answer within {seconds:.0f} s, from its edge or from a bridge",
        hint="Does a bridge run that serves this source, and does its file have [requests]? See 'headrace status'.",
    )


def caller() -> str:
    """Return who asks, by this machine: user and host."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "unknown"
    return re.sub(r"[^\x20-\x7e]", "?", f"{user}@{socket.gethostname()}")[:200]


class Answered(ReplicationError):  # noqa: N818 - a state, which reads best without a suffix.
    """An error of the command in the region, with its exit code there."""

    def __init__(self, content: Content, source: str) -> None:
        super().__init__(f"{source}: {content.message}", hint=content.hint)
        self.exit_code = content.exit_code


class Collector:
    """The answer to one request: the first that is complete counts, whoever sent it."""

    def __init__(self, request: Request) -> None:
        self._request = request
        #: Contents by part, for each that answers: an edge and a bridge may do so both.
        self._contents: dict[tuple[str, Outcome], dict[int, str]] = {}
        self._last: dict[tuple[str, Outcome], int] = {}
        self._characters = 0

    def add(self, part: Part) -> Content | None:
        """Add a part; return the content once it is whole, and raise what the answer means where it is no content.

        Raises:
            NeedsOperator: the edge refused the request, or did it before.
            Retryable: it was busy.
            NotConnected: the request expired.
            Answered: the edge tried, and an error ended it.
            CorruptInput: the parts are no answer.
        """
        if (part.id, part.source) != (self._request.id, self._request.source):
            return None
        responder = (part.by, part.outcome)
        contents = self._contents.setdefault(responder, {})
        if part.part not in contents:
            contents[part.part] = part.content
            self._characters += len(part.content)
            if self._characters > _MOST_CHARACTERS:
                raise CorruptInput(f"{part.source}: the parts that came are more than an answer")
        if part.last:
            self._last[responder] = part.part
        last = self._last.get(responder)
        if last is None or any(number not in contents for number in range(last + 1)):
            return None
        content = content_of("".join(contents[number] for number in range(last + 1)))
        if part.outcome == "done":
            return content
        raise _error_of(part, content)


def _error_of(part: Part, content: Content) -> ReplicationError:
    message = f"{part.source}: {content.message}"
    match part.outcome:
        case "failed":
            return Answered(content, part.source)
        case "busy":
            return Retryable(message, hint=content.hint)
        case "expired":
            return NotConnected(message, hint=content.hint)
        case _:
            return NeedsOperator(message, hint=content.hint)


def show(kind: str, content: Content, *, as_json: bool) -> None:
    """Print the data of an answer; raise CorruptInput where it is not what its kind answers."""
    if as_json:
        data = content.data
        # What the command in the region prints, where it prints something else for people.
        data = data["plan"] if isinstance(data, dict) and "plan" in data else data
        echo(msgspec.json.format(msgspec.json.encode(data), indent=1))
        return
    try:
        if kind == "status":
            out = Terminal()
            out.print(screen([msgspec.convert(content.data, Answer)], out.width))
        elif kind == "doctor":
            rows = msgspec.convert(content.data, list[dict[str, str]])
            findings.show([findings.Finding(**each) for each in rows], Terminal())  # type: ignore[arg-type]
        else:
            echo("\n".join(msgspec.convert(content.data["lines"], list[str])))
    except (TypeError, KeyError, *UNREADABLE) as error:
        raise CorruptInput(
            f"the edge's answer to {kind!r} is not understood",
            hint="With --json it is printed as it is. Are edge and headquarters of releases that go together?",
        ) from error
