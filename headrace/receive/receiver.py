"""Receives from one address, by one or several connections at the same time, and handles message after message.

Guarantees that a message is accepted only after it was handled; that what was accepted is not handled again by this process; that
after a message that was not accepted no later one is handled that came before its return: all that waits is released with it,
so that a broker sends them again in order. Called by the command.

What is done with each message: printed, or given to a command. A message is accepted only when that is done.

A connection that receives from one address; what comes goes to the inbox, outcomes come back by ticket.

Everything runs in the connection's thread but `settle`. Nothing is accepted by itself. What has no outcome when the connection
ends is sent again by the other side.
"""

import itertools
import logging
import os
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

from headrace import doors
from headrace.amqp.connection import Connection, Connector
from headrace.amqp.errors import Role, hide_password
from headrace.amqp.links import Accept, Arriving, Outcome, Reject, Release, settle
from headrace.configuration.sections import Client
from headrace.errors import CorruptInput, NeedsOperator, NotConnected
from headrace.receive.message import Inbox, Received, Waiting, decode
from headrace.waiting import StopRequest

_ROLE = Role(
    "receiver",
    "receive from",
    if_not_found="Check the address, and [deliveries.NAME] address in the bridge's file.",
)
_numbers = itertools.count(1)
#: The largest message that is received, in bytes: Kafka's records are smaller.
_LARGEST_MESSAGE = 256 << 20


class Receiving(Connection):
    """One connection with one link."""

    def __init__(
        self, settings: Client, url: str, address: str, inbox: Inbox, credit: int, attached: Callable[[], None]
    ) -> None:
        super().__init__(settings, url, f"headrace-receive/{address}", _ROLE)
        self._address = address
        self._inbox = inbox
        self._credit = credit
        #: Called when the other side has accepted the attach.
        self._attached = attached
        self._link: Any = None
        self._arriving = Arriving(_LARGEST_MESSAGE)
        self._unsettled: dict[int, Any] = {}
        self._outcomes: deque[tuple[int, Outcome]] = deque()

    def settle(self, ticket: int, outcome: Outcome) -> None:
        """Settle a delivery; from any thread."""
        self._outcomes.append((ticket, outcome))
        self.wake()

    def attach(self) -> None:
        """Attach to the address."""
        # A name of its own for each process: a bridge would take two of one name for one.
        self._link = self.loop.attach_receiver(self.connection, self._address, f"{self._address}/{next(_numbers)}")
        self._link.flow(self._credit)

    def woken(self) -> None:
        """Give outcomes, and the credit of what they are for again."""
        while self._outcomes:
            ticket, outcome = self._outcomes.popleft()
            delivery = self._unsettled.pop(ticket, None)
            if delivery is not None:
                settle(delivery, outcome)
                self._link.flow(1)

    def close_links(self) -> None:
        """Give the outcomes that wait, and close the link: what has none is sent again."""
        self.woken()
        if self._link is not None:
            self._link.close()

    def ended(self) -> None:
        """Forget what was unsettled."""
        self._unsettled.clear()
        self._link = None

    # What Proton calls.

    def on_link_remote_open(self, event: Any) -> None:
        """Note that the other side accepted the attach; an answer without a source is the first half of a refusal."""
        if event.link.remote_source.address:
            self.worked = True
            self._attached()
            _log.info("receiving from %s at %s", self._address, hide_password(self.url))

    def on_delivery(self, event: Any) -> None:
        """Take a message in once it is complete."""
        link, delivery = event.link, event.delivery
        if delivery.aborted:
            self._arriving.drop()
            delivery.settle()
            link.flow(1)
        elif delivery.readable:
            try:
                data = self._arriving.read(link, delivery)
            except CorruptInput as error:
                doors.MEMORY.refuse(error, self._address)
                self.end(NeedsOperator(f"{self._address} at {hide_password(self.url)}: {error.message}"))
                return
            if data is not None:
                self._take(link, delivery, data)

    def _take(self, link: Any, delivery: Any, data: bytes | bytearray) -> None:
        """Take a message in, or reject it."""
        message = decode(data)
        if message is None:
            settle(delivery, Reject("amqp:decode-error", "this is no AMQP message with a body of bytes or text"))
            link.flow(1)
            return
        ticket = next(_numbers)
        self._unsettled[ticket] = delivery
        self._inbox.put(Waiting(self, ticket, message))


#: Characters of an environment variable; the system takes 128 kB.
_LONGEST_VARIABLE = 16_000

#: Does it, and returns whether it succeeded.
Handle = Callable[[Received], bool]


def printer(*, as_json: bool) -> Handle:
    """Return what writes each message as a line to standard output, its body or JSON, and flushes it."""
    out = sys.stdout.buffer

    def handle(message: Received) -> bool:
        try:
            out.write((message.line() if as_json else message.body) + b"\n")
            out.flush()
        except OSError as error:
            raise NeedsOperator(
                f"standard output takes nothing more: {error.strerror}", hint="What was not written was not accepted."
            ) from error
        return True

    return handle


def command_runner(command: Sequence[str], *, as_json: bool) -> Handle:
    """Return what runs a command for each message, with its body or JSON as standard input; exit code 0 is success."""

    def handle(message: Received) -> bool:
        about = {"HEADRACE_ID": message.id, "HEADRACE_ADDRESS": message.address}
        if isinstance(message.key, str):
            about["HEADRACE_KEY"] = message.key
        # One that no environment takes is left out, and is in the JSON.
        about = {name: text for name, text in about.items() if "\0" not in text and len(text) <= _LONGEST_VARIABLE}
        data = message.line() + b"\n" if as_json else message.body
        try:
            process = subprocess.run(command, input=data, env=os.environ | about, check=False)
        except OSError as error:
            raise NeedsOperator(
                f"{command[0]!r} cannot be run: {error.strerror}", hint="Check the command after '--'."
            ) from error
        return process.returncode == 0

    return handle


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
