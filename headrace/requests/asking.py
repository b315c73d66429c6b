"""Asking an edge: a request goes to Kafka, and the parts of its answer are awaited there, put together and shown.

Imports no client of Kafka.
"""

import getpass
import re
import socket
import time
from collections.abc import Iterable
from typing import Any, Protocol

import click
import msgspec
from rich.console import Console

from headrace import doors, findings
from headrace.errors import CorruptInput, NeedsOperator, NotConnected, ReplicationError, Retryable
from headrace.formats import UNREADABLE
from headrace.requests.message import Content, Outcome, Part, Request, content_of, decode_part, encode
from headrace.status.answer import Answer
from headrace.status.table import console, screen

#: How long after its deadline the answer of a bridge to an expired request is awaited, in seconds.
GRACE_SECONDS = 3.0
_POLL_SECONDS = 0.5


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
        contents.setdefault(part.part, part.content)
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
        click.echo(msgspec.json.format(msgspec.json.encode(data), indent=1))
        return
    try:
        if kind == "status":
            out = console()
            out.print(screen([msgspec.convert(content.data, Answer)], out.width))
        elif kind == "doctor":
            rows = msgspec.convert(content.data, list[dict[str, str]])
            findings.show([findings.Finding(**each) for each in rows], Console(highlight=False))  # type: ignore[arg-type]
        else:
            click.echo(_lines(content.data))
    except (TypeError, KeyError, *UNREADABLE) as error:
        raise CorruptInput(
            f"the edge's answer to {kind!r} is not understood",
            hint="With --json it is printed as it is. Are edge and headquarters of releases that go together?",
        ) from error


def _lines(data: Any) -> str:
    """Return the lines of an answer, without what a terminal would obey."""
    lines = msgspec.convert(data["lines"], list[str])
    return "\n".join("".join(each if each.isprintable() else "?" for each in line) for line in lines)
