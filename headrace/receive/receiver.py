"""`headrace receive`: receives from one address, by one or several connections at the same time, and handles message after
message.

What is done with each message: its body is printed, or given to a command. Guarantees that a message is accepted only after that
is done; that what was accepted is not handled again by this process; that after a message that was not accepted no later one is
handled that came before its return: all that waits is released with it, so that a broker sends them again in order.

A connection receives from the address; what comes goes to the inbox, outcomes come back by ticket. Everything runs in the
connection's thread but `settle`. What has no outcome when the connection ends is sent again by the other side.
"""

import itertools
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import click

from headrace import doors, logs
from headrace.amqp.connection import Connection, Connector
from headrace.amqp.errors import TOO_LARGE, Role, hide_password
from headrace.amqp.links import TRANSFER_LIMIT, Accept, Arriving, Outcome, Reject, Release, close, discard, settle
from headrace.configuration.secret import Secret
from headrace.configuration.sections import Client
from headrace.errors import ConfigurationError, CorruptInput, NeedsOperator, NotConnected
from headrace.receive.message import Inbox, Received, Waiting, decode
from headrace.waiting import StopRequest

_NOT_FOUND = "Check the address, and [deliveries.NAME] address in the bridge's file."
_ROLE = Role("receiver", "receive from", if_not_found=_NOT_FOUND)
_numbers = itertools.count(1)
#: The largest message that is received, in bytes: Kafka's records are smaller.
_LARGEST_MESSAGE = 256 << 20
_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)


class Receiving(Connection):
    """One connection with one link."""

    def __init__(
        self, settings: Client, url: str, address: str, inbox: Inbox, credit: int, attached: Callable[[], None]
    ) -> None:
        super().__init__(settings, url, f"headrace-receive/{address}", _ROLE)
        self._address = address
        self._inbox = inbox
        self._credit = credit
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
        # A bridge would take two links of one name for one.
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

    def on_link_remote_open(self, event: Any) -> None:
        """Note that the other side accepted the attach; an answer without a source is the first half of a refusal."""
        if event.link.remote_source.address:
            self.worked = True
            self._attached()
            _log.info("receiving from %s at %s", self._address, hide_password(self.url))

    def on_link_remote_close(self, event: Any) -> None:
        """End; whoever closes it can do so again at once: attempts come more seldom each time."""
        self.worked = False
        super().on_link_remote_close(event)

    def on_delivery(self, event: Any) -> None:
        """Take a message in once it is complete."""
        link, delivery = event.link, event.delivery
        if self.is_ending:
            discard(link, delivery)
        elif delivery.aborted:
            self._arriving.drop()
            delivery.settle()
            link.flow(1)
        elif delivery.readable:
            self._read(link, delivery)

    def _read(self, link: Any, delivery: Any) -> None:
        """Take a message in or reject it, once it is complete; end the connection where it is too large."""
        try:
            data = self._arriving.read(link, delivery)
        except CorruptInput as error:
            doors.MEMORY.refuse(error, self._address)
            close(link, TRANSFER_LIMIT if link.credit < 0 else TOO_LARGE, error.message)
            # It may come again at once: attempts come more seldom each time.
            self.worked = False
            self.end(NotConnected(f"{self._address} at {hide_password(self.url)}: {error.message}"))
            return
        if data is None:
            return
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


def receive_all(
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


@click.command()
@click.argument("address")
@click.argument("command", nargs=-1)
@click.option(
    "--connect",
    "urls",
    required=True,
    multiple=True,
    metavar="URL",
    help="amqps://HOST:PORT of a bridge, router or broker; again for each further one: all of them are received from.",
)
@click.option("--authority", type=_FILE, help="Certificates of the authorities to trust, PEM.")
@click.option("--certificate", type=_FILE, help="This receiver's own certificate, PEM.")
@click.option("--key", type=_FILE, help="Its key.")
@click.option("--user", help="For routers and brokers that require a password.")
@click.option("--password", metavar="REFERENCE", help="env:NAME or file:PATH.")
@click.option("--json", "as_json", is_flag=True, help="A line of JSON instead of the body: id, key, headers, body.")
@click.option("--count", type=click.IntRange(min=1), help="End after so many messages.")
@click.option("--timeout", type=click.FloatRange(min=0), help="End when nothing came for so many seconds.")
@click.option(
    "--answer",
    type=click.Choice(["accept", "release", "reject"]),
    default="accept",
    show_default=True,
    help="What is answered when a message was printed, or the command ended with exit code 0.",
)
@click.option(
    "--on-failure",
    type=click.Choice(["release", "reject", "stop"]),
    default="release",
    show_default=True,
    help="When the command ends otherwise: have it sent again, make a dead letter of it, or release it and end.",
)
@click.option("--credit", type=click.IntRange(1, 1000), default=10, show_default=True, help="Messages held at once.")
def receive(
    address: str,
    command: tuple[str, ...],
    urls: tuple[str, ...],
    *,
    as_json: bool,
    count: int | None,
    timeout: float | None,
    answer: Any,
    on_failure: Any,
    credit: int,
    **who: Any,
) -> None:
    """Print what is delivered to ADDRESS, a line each, or give each to a COMMAND.

    A message is accepted when its line is written, or the command has ended with exit code 0. The command gets the body, or with
    --json the line, as standard input, and HEADRACE_ID, HEADRACE_ADDRESS and HEADRACE_KEY in its environment. What this process
    has accepted it does not handle again; to remember across restarts see examples/receiver.

    Exit codes: 0 done; 1 fewer than --count came, or the command failed and --on-failure is stop; 2 wrong command line; 3 the
    other side refuses this receiver, or the command cannot be run; 5 no connection within --timeout.

        headrace receive alerts/jakarta --connect amqps://bridge.example:5671 -- ./mark-card
    """
    logs.serve("receive")
    stopping = StopRequest()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: stopping.set())
    handle = command_runner(command, as_json=as_json) if command else printer(as_json=as_json)
    rules = Rules(answer, on_failure, count, timeout, credit)
    if not receive_all(urls, _client(urls, **who), address, handle, rules, stopping):
        sys.exit(1)


def _client(urls: tuple[str, ...], *, password: str | None, **who: Any) -> Any:
    """Return who connects; raise ConfigurationError where that does not fit."""
    if any(not url.startswith(("amqp://", "amqps://")) for url in urls):
        raise ConfigurationError("--connect takes amqps://HOST:PORT, or amqp:// inside a trusted network")
    try:
        return Client(password=Secret(password, Path.cwd()) if password else None, **who)
    except ValueError as error:
        raise ConfigurationError(str(error), hint="See 'headrace receive --help'.") from error
