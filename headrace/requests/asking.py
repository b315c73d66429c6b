"""Asking an edge: a request goes to Kafka, and the parts of its answer are awaited there. Imports no client of Kafka."""

import getpass
import re
import socket
import time
from collections.abc import Iterable
from typing import Protocol

from headrace import doors
from headrace.errors import NotConnected
from headrace.requests.collect import Collector
from headrace.requests.message import Content, Request, decode_part, encode

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
