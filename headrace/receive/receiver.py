"""Receives from one address, by one or several connections at the same time, and handles message after message.

Guarantees that a message is accepted only after it was handled; that what was accepted is not handled again by this process; that
after a message that was not accepted no later one is handled that came before its return: all that waits is released with it,
so that a broker sends them again in order. Called by the command.
"""

import logging
import threading
import time
from collections.abc import Sequence
from typing import Literal, NamedTuple

from headrace.amqp.connector import Connector
from headrace.amqp.links import Accept, Outcome, Reject, Release
from headrace.configuration.sections import Client
from headrace.errors import NotConnected
from headrace.receive.connection import Receiving
from headrace.receive.handling import Handle
from headrace.receive.inbox import Inbox, Waiting
from headrace.waiting import StopRequest

_log = logging.getLogger(__name__)

Answer = Literal["accept", "release", "reject"]
OnFailure = Literal["release", "reject", "stop"]
_OUTCOMES: dict[str, Outcome] = {
    "accept": Accept(),
    "release": Release(),
    "reject": Reject("headrace:rejected", "rejected by its receiver"),
}
_TURN_SECONDS = 0.25
_CLOSE_SECONDS = 5.0


class Rules(NamedTuple):
    """When to stop, and what to answer."""

    #: What is answered when a message was handled.
    answer: Answer = "accept"
    #: What is done when it was not.
    on_failure: OnFailure = "release"
    #: Messages to handle; None: no end.
    messages: int | None = None
    #: Seconds without a message after which it ends; None: never.
    timeout: float | None = None
    credit: int = 10


def receive(
    urls: Sequence[str], settings: Client, address: str, handle: Handle, rules: Rules, stopping: StopRequest
) -> bool:
    """Receive until `stopping`, `messages` or `timeout`; return False after a failure to handle, or where too few came.

    Raises:
        NotConnected: no connection worked until the timeout.
        NeedsOperator: the address is refused, the command cannot be run.
        ConfigurationError: certificates or user cannot be used.
    """
    inbox, worked = Inbox(), threading.Event()

    def connection(url: str) -> Receiving:
        return Receiving(settings, url, address, inbox, rules.credit, worked.set)

    connectors = [
        Connector([url], connection, inbox.fail, name=f"connection {number}") for number, url in enumerate(urls)
    ]
    for connector in connectors:
        connector.start()
    try:
        return _handle_all(inbox, handle, rules, stopping, worked)
    finally:
        for waiting in inbox.take_all():
            _settle(waiting, "release")
        for connector in connectors:
            connector.stop(_CLOSE_SECONDS)


def _handle_all(inbox: Inbox, handle: Handle, rules: Rules, stopping: StopRequest, worked: threading.Event) -> bool:
    handled, last_at, attached = 0, time.monotonic(), False
    while not stopping.is_set() and (rules.messages is None or handled < rules.messages):
        waiting = inbox.take(_TURN_SECONDS)
        if not attached and worked.is_set():
            attached, last_at = True, time.monotonic()
        if waiting is None:
            if rules.timeout is not None and time.monotonic() - last_at > rules.timeout:
                if not attached:
                    raise NotConnected(f"no connection within {rules.timeout:g} s", hint="See the lines above.")
                return rules.messages is None
            continue
        if inbox.contains(waiting.message):
            # Sent again, as its outcome was lost in transit.
            _settle(waiting, "accept")
        elif handle(waiting.message):
            handled += 1
            if rules.answer == "accept":
                inbox.remember(waiting.message)
            _answer(inbox, waiting, rules.answer)
        else:
            _log.warning("%s was not handled: %s", waiting.message.id or "a message", rules.on_failure)
            _answer(inbox, waiting, "release" if rules.on_failure == "stop" else rules.on_failure)
            if rules.on_failure == "stop":
                return False
        last_at = time.monotonic()
    return True


def _answer(inbox: Inbox, waiting: Waiting, answer: str) -> None:
    _settle(waiting, answer)
    if answer == "release":
        for later in inbox.take_all():
            _settle(later, "release")


def _settle(waiting: Waiting, answer: str) -> None:
    waiting.connection.settle(waiting.ticket, _OUTCOMES[answer])
