"""`headrace status`: a running edge or bridge by its file, or the local servers without one.

A part's status is that of its endpoint if one answers, else what is durable, which the part's own code looks up. The core imports
no part: it finds what reads an edge's checkpoint, or what Kafka holds for a bridge, by the entry points of `headrace.status`.
"""

import http.client
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path

import click
import msgspec
from rich.live import Live

from headrace import __version__
from headrace.configuration.bridge import BridgeFile
from headrace.configuration.edge import EdgeFile
from headrace.configuration.load import load
from headrace.errors import ConfigurationError, ReplicationError
from headrace.formats import UNREADABLE
from headrace.printable import echo
from headrace.status.answer import Answer, SourceStatus, refused_inputs
from headrace.status.table import screen
from headrace.terminal import Terminal

_TIMEOUT = 5.0
#: What answers with more bytes than this is no part: a bridge of thousands of sources needs a third of it.
_LARGEST_ANSWER = 32 << 20
#: The state of a source that another bridge serves.
_ELSEWHERE = "elsewhere"
#: The state of a source that the bridge itself serves.
_SERVING = "serving"

#: Returns what is durable for the sources of a file.
Durable = Callable[[EdgeFile | BridgeFile], list[SourceStatus]]
#: Between two looks of --watch, in seconds.
_EVERY = 2.0


def fetch(path: Path, at: tuple[str, ...] = ()) -> Answer:
    """Return what the part of a file answers, or what is durable where nobody does.

    Args:
        path: an edge's or a bridge's file.
        at: `host:port` of the endpoints of all who serve the file's sources; that of the file when none is given.

    Raises:
        ConfigurationError: it is neither.
        NotConnected, NeedsOperator: nobody answers, and what is durable cannot be read.
    """
    file = _load_file(path)
    part = "edge" if isinstance(file, EdgeFile) else "bridge"
    listens = at or tuple(filter(None, [file.metrics.listen]))
    answers, silences = [], []
    for listen in listens:
        answer, why = answer_of(listen)
        if answer is None:
            silences.append(why)
        else:
            answers.append(answer)
    if answers:
        return _merge(answers, silences)
    why = "; ".join(silences) or "[metrics] listen is not in the file, so the status of what runs cannot be read"
    return Answer(part=part, running=False, version=__version__, reason=why, sources=_find_status_reader(part)(file))


def _merge(answers: list[Answer], silences: list[str]) -> Answer:
    """Return one answer, in which each source is shown as the bridge that serves it sees it."""
    sources: dict[str, SourceStatus] = {}
    for answer in answers:
        for source in answer.sources:
            former = sources.get(source.source)
            # A bridge that the group dropped shows what it had as waiting, until the group reports who has it.
            if former is None or rank(source) > rank(former):
                sources[source.source] = source
    merged = answers[0]
    merged.address = ", ".join(answer.address for answer in answers)
    merged.ready = not silences and all(answer.ready for answer in answers)
    merged.reason = "; ".join([*(answer.reason for answer in answers), *silences])
    asked = len(answers) + len(silences)
    merged.sources = [judge(source, asked) for source in sources.values()]
    refused: dict[str, Counter[str]] = {}
    for each in (each for answer in answers for each in answer.refused):
        refused.setdefault(each.door, Counter())[each.sender] += each.count
    merged.refused = refused_inputs(refused)
    merged.deliveries = [delivery for answer in answers for delivery in answer.deliveries]
    return merged


def rank(source: SourceStatus) -> int:
    """Return how much a bridge's view of a source counts: most where it serves the source."""
    return {_SERVING: 2, _ELSEWHERE: 0}.get(source.state, 1)


def judge(source: SourceStatus, asked: int) -> SourceStatus:
    """Return a source as the best view of it shows it, where so many bridges were asked: of several, one has to serve it."""
    if asked < 2 or source.state != _ELSEWHERE:
        return source
    reason = (
        "no bridge that answers serves it: ask all bridges of the group (--at), and look whether all files of bridges have "
        "the source; it may pass while bridges start or stop"
    )
    return msgspec.structs.replace(source, state="not served", reason=reason)


def _load_file(path: Path) -> EdgeFile | BridgeFile:
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError):
        # The loader words it better.
        tables = {"source": {}}
    if "source" in tables:
        return load(path, EdgeFile)
    if "streams" in tables and "interconnect" in tables:
        return load(path, BridgeFile)
    raise ConfigurationError(
        f"{path} is neither an edge's nor a bridge's file",
        hint="Name one with --config: it has [source] or [streams.NAME].",
    )


def answer_of(listen: str, timeout: float = _TIMEOUT) -> tuple[Answer | None, str]:
    """Return what answers at `host:port` within `timeout` seconds, or None and why there is no answer."""
    host, _, port = listen.rpartition(":")
    host = "127.0.0.1" if host in {"", "0.0.0.0"} else host
    if port == "0":
        return None, "[metrics] listen names no port: give --at with the one that the log names"
    connection = http.client.HTTPConnection(host, int(port), timeout=timeout)
    try:
        connection.request("GET", "/status")
        # What is cut is no JSON.
        answer = msgspec.json.decode(connection.getresponse().read(_LARGEST_ANSWER), type=Answer)
    except OSError as error:
        return None, f"nobody answers at {host}:{port}: {error.strerror or error}"
    except (http.client.HTTPException, *UNREADABLE):
        return None, f"what answers at {host}:{port} is no part of Headrace"
    finally:
        connection.close()
    answer.address = f"{host}:{port}"
    return answer, ""


def _find_status_reader(part: str) -> Durable:
    (point,) = entry_points(group="headrace.status", name=part)
    read_status: Durable = point.load()
    return read_status


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
        echo(msgspec.json.format(document, indent=indent))
    else:
        out = Terminal()
        out.print(screen(answers, out.width))


def _watch(paths: tuple[Path, ...], at: tuple[str, ...], *, as_json: bool) -> None:
    if as_json:
        while True:
            _print([fetch(path, at) for path in paths], as_json=True, indent=-1)
            time.sleep(_EVERY)
    out = Terminal()
    with Live(console=out, auto_refresh=False, screen=out.is_terminal) as live:
        while True:
            try:
                shown = screen([fetch(path, at) for path in paths], out.width)
            except ReplicationError as error:
                # It may be back at the next look.
                shown = f"{error.message}. {error.hint}"
            live.update(shown, refresh=True)
            time.sleep(_EVERY)
