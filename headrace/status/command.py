"""The command `headrace status`: a running edge or bridge by its file, or the local servers without one."""

import sys
import time
from importlib.metadata import entry_points
from pathlib import Path

import click
import msgspec
from rich.live import Live
from rich.markup import escape

from headrace.errors import ReplicationError
from headrace.status.answer import Answer
from headrace.status.client import fetch
from headrace.status.table import console, screen

#: Between two looks of --watch, in seconds.
_EVERY = 2.0


@click.command()
@click.option(
    "--config",
    "paths",
    multiple=True,
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="An edge's file, or a bridge's for all of its sources; repeat for more.",
)
@click.option(
    "--at",
    multiple=True,
    metavar="HOST:PORT",
    help="Ask here instead of at the file's [metrics] listen; repeat for bridges that share the file's sources.",
)
@click.option("--watch", is_flag=True, help="Ask again every two seconds, until interrupted.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON: with --watch, an object a line.")
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(".headrace"),
    show_default=True,
    help="Without --config: the folder of the local servers.",
)
@click.pass_context
def status(
    context: click.Context, paths: tuple[Path, ...], at: tuple[str, ...], folder: Path, *, watch: bool, as_json: bool
) -> None:
    """Show how sources are doing: position, rate, the lag of each hop, what waits where.

    At headquarters with the bridge's file, in a region with the edge's. Where nobody answers, it shows what is durable: the
    edge's checkpoint, the positions in Kafka. Without --config it shows the servers that 'headrace up' started.

    Exit code 1 unless everything asked is ready.
    """
    if not paths:
        (local,) = entry_points(group="headrace.status", name="local")
        context.invoke(local.load(), folder=folder, as_json=as_json)
    elif watch:
        _watch(paths, at, as_json=as_json)
    else:
        answers = [fetch(path, at) for path in paths]
        _print(answers, as_json=as_json, indent=1)
        sys.exit(0 if all(answer.running and answer.ready for answer in answers) else 1)


def _print(answers: list[Answer], *, as_json: bool, indent: int = 0) -> None:
    if as_json:
        document = msgspec.json.encode(answers[0] if len(answers) == 1 else answers)
        click.echo(msgspec.json.format(document, indent=indent))
    else:
        out = console()
        out.print(screen(answers, out.width))


def _watch(paths: tuple[Path, ...], at: tuple[str, ...], *, as_json: bool) -> None:
    if as_json:
        while True:
            _print([fetch(path, at) for path in paths], as_json=True, indent=-1)
            time.sleep(_EVERY)
    out = console()
    with Live(console=out, auto_refresh=False, screen=out.is_terminal) as live:
        while True:
            try:
                shown = screen([fetch(path, at) for path in paths], out.width)
            except ReplicationError as error:
                # It may be back at the next look.
                shown = escape(f"{error.message}. {error.hint}")
            live.update(shown, refresh=True)
            time.sleep(_EVERY)
