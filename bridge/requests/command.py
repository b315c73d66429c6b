"""`headrace ask`: asks the edge of a source, over Kafka and the interconnect, and prints what the command there prints."""

import sys
import tomllib
from contextlib import closing
from pathlib import Path
from typing import Any

import click

from headrace.configuration.bridge import BridgeFile
from headrace.configuration.kafka import KafkaConnection
from headrace.configuration.lake import LakeFile
from headrace.configuration.load import load
from headrace.configuration.sections import Topics
from headrace.errors import ConfigurationError
from headrace.terminal import Terminal

#: Columns where there is no terminal: nothing is cut in a log.
_WIDTH = 1000


@click.command()
@click.argument("source")
@click.argument("kind", type=click.Choice(["status", "doctor", "snapshot"]))
@click.argument("tables", nargs=-1, metavar="[SCHEMA.TABLE]...")
@click.option(
    "--config",
    "path",
    required=True,
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="The bridge's or lake's file.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--all", "every", is_flag=True, help="With snapshot: copy every published table.")
@click.option("--replace", is_flag=True, help="With snapshot: consumers are first asked to forget the tables.")
@click.option("--status", is_flag=True, help="With snapshot: show how far each table is.")
@click.option("--pause", is_flag=True, help="With snapshot: read no more chunks for now.")
@click.option("--resume", is_flag=True, help="With snapshot: go on after --pause.")
@click.option("--cancel", is_flag=True, help="With snapshot: end these tables' snapshots, or all.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=1, max=3600),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for the answer; after that the request is dropped wherever it is.",
)
def ask(
    source: str, kind: str, tables: tuple[str, ...], path: Path, *, as_json: bool, timeout: float, **flags: bool
) -> None:
    """Ask the edge of SOURCE: its status, what its doctor finds, or, where its file allows it, for snapshots of tables.

    Needs nothing but Kafka: the request is a record that the bridge passes on, and the edge's file decides which kinds it answers
    (docs/requests.md). Exit codes are those of the command in the region; and 3 where the edge refuses, 5 where no answer comes.
    """
    from bridge.requests.worker import AskingTopics
    from headrace import requests
    from headrace.requests import new_request, show

    arguments = _arguments(kind, tables, **flags)
    connection, topics = _topics(path, source)
    with closing(AskingTopics(connection, topics)) as wire:
        content = requests.ask(wire, new_request(source, kind, requests.caller(), timeout, arguments))
    show(kind, content, as_json=as_json)
    sys.exit(content.exit_code)


def _arguments(
    kind: str, tables: tuple[str, ...], *, every: bool, replace: bool, status: bool, **steering: bool
) -> dict[str, Any]:
    """Return the arguments of a request; raise ConfigurationError for options that do not go together."""
    if kind != "snapshot":
        if tables or every or replace or status or any(steering.values()):
            raise ConfigurationError(f"tables and their options go with 'snapshot', not with {kind!r}")
        return {}
    given = [name for name, is_given in steering.items() if is_given] + ["status"] * status
    copies = every or (bool(tables) and given != ["cancel"])
    if len(given) + copies != 1 or (every and tables) or (replace and not copies):
        raise ConfigurationError(
            "give tables to copy (or --all), or one of --status, --pause, --resume and --cancel",
            hint="For example: headrace ask jakarta/bank snapshot public.orders --config bridge.toml",
        )
    width = Terminal().width if sys.stdout.isatty() else _WIDTH
    what = "copy" if copies else given[0]
    return {"do": what, "tables": list(tables), "replace": replace, "width": max(40, min(width, _WIDTH))}


def _topics(path: Path, source: str) -> tuple[KafkaConnection, Topics]:
    """Return how Kafka is reached, and the topics, by a bridge's or lake's file; raise ConfigurationError."""
    try:
        is_lake = "lake" in tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        # The loader has the better message.
        is_lake = False
    if is_lake:
        lake = load(path, LakeFile)
        sources = {each for stream in lake.streams.values() for each in stream.sources}
        connection: KafkaConnection = lake.kafka
        topics = lake.requests.topics(lake.kafka.prefix)
    else:
        file = load(path, BridgeFile)
        if file.requests is None:
            raise ConfigurationError(
                f"{path} has no [requests]: this bridge carries none",
                hint="Add [requests], run 'headrace bridge init', and start the bridge again (docs/requests.md).",
            )
        sources = {each for stream in file.streams.values() for each in stream.sources}
        connection, topics = file.kafka, file.requests.topics(file.kafka.prefix)
    if source not in sources:
        raise ConfigurationError(
            f"source {source!r} is in no stream of {path}", hint=f"There are: {', '.join(sorted(sources))}."
        )
    return connection, topics
