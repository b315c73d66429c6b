"""`headrace receive`: prints what is delivered to an address, or gives it to a command."""

import signal
import sys
from pathlib import Path
from typing import Any

import click

from headrace import logs
from headrace.waiting import StopRequest

_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)


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
    from headrace.receive.receiver import Rules, command_runner, printer
    from headrace.receive.receiver import receive as receive_all

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
    from headrace.configuration.secret import Secret
    from headrace.configuration.sections import Client
    from headrace.errors import ConfigurationError

    if any(not url.startswith(("amqp://", "amqps://")) for url in urls):
        raise ConfigurationError("--connect takes amqps://HOST:PORT, or amqp:// inside a trusted network")
    try:
        return Client(password=Secret(password, Path.cwd()) if password else None, **who)
    except ValueError as error:
        raise ConfigurationError(str(error), hint="See 'headrace receive --help'.") from error
