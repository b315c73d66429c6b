"""A request and the parts of its answer, as JSON: values of Kafka records at headquarters, bodies of AMQP messages to the region.

A bridge carries these bytes unchanged in both directions. The key of a record is the source. Reading them raises CorruptInput for
what is none of ours, and NeedsOperator for a version that this release does not read.
"""

import re
import secrets
import time
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from headrace.configuration.value_types import SOURCE_NAME
from headrace.errors import CorruptInput
from headrace.formats import ANSWER, REQUEST, UNREADABLE

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
#: No deadline is later, in milliseconds since 1970, whatever the clocks: the end of the year 9999.
_LAST_DEADLINE = 253_402_300_799_999

#: `done`: the content is what the kind answers. `failed`: the edge tried, and an error ended it. `repeated`: a request that
#: changes something came twice, and was not done a second time. The others were not tried.
Outcome = Literal["done", "failed", "refused", "expired", "busy", "repeated"]

_WITH_VALUE = re.compile(r"^(Invalid (?:enum )?value) .*(?= - at )", re.DOTALL)

_Id = Annotated[str, Meta(pattern=r"^[A-Za-z0-9-]{8,64}$")]
_Source = Annotated[str, Meta(pattern=SOURCE_NAME, max_length=200)]
_Kind = Annotated[str, Meta(pattern=r"^[a-z][a-z-]{0,30}$")]
#: Printable: it is logged.
_Caller = Annotated[str, Meta(pattern=r"^[\x20-\x7e]{1,200}$")]


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
        # The decoder's message names a field; where it has its value, that is left out.
        reason = (
            _WITH_VALUE.sub(r"\1", str(error)) if isinstance(error, msgspec.ValidationError) else "it is no JSON object"
        )
        raise CorruptInput(f"this is not {what} of Headrace: {reason}") from error


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
