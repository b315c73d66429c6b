"""`headrace bridge`: run, and what an operator does around it."""

import gc
import json
import sys
from pathlib import Path
from typing import Any, BinaryIO

import click

from headrace import logs
from headrace.configuration.bridge import BridgeFile
from headrace.configuration.load import load
from headrace.configuration.new import new_bridge
from headrace.printable import echo
from headrace.process import HOLD, give_back_freed, run_part
from headrace.status.answer import SourceStatus

_CONFIG = click.option(
    "--config", "path", required=True, type=click.Path(path_type=Path), help="The bridge's file, TOML."
)
_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group()
def bridge() -> None:
    """Receive batches and commit them to Kafka, exactly once."""


bridge.add_command(new_bridge)


@bridge.command()
@_CONFIG
@click.option(
    "--recommit-seconds",
    type=click.FloatRange(min=1),
    default=3600.0,
    show_default=True,
    help="Idle sources commit their position again after so long, before Kafka forgets it.",
)
@HOLD
def run(path: Path, recommit_seconds: float, *, hold: bool) -> None:
    """Serve the sources of a file until SIGTERM or SIGINT; SIGHUP takes over sources that were added to the file or removed."""
    from bridge.bridge import Bridge

    # Before there are threads.
    give_back_freed()
    file = load(path, BridgeFile)
    logs.serve("bridge")
    served = Bridge(file, recommit_seconds=recommit_seconds)
    # What is loaded stays: to look through it for garbage again and again would hold records up, for 17 ms each time.
    gc.freeze()
    sources = [source for stream in file.streams.values() for source in stream.sources]
    listen = file.metrics.listen
    run_part("bridge", served.run, served.stop, sources=sources, listen=listen, hold=hold, reload=served.reload)


@bridge.command()
@_CONFIG
@click.option(
    "--table",
    "tables",
    multiple=True,
    metavar="SCHEMA.TABLE",
    help="A table that a pattern of the file names: make its topic.",
)
def init(path: Path, tables: tuple[str, ...]) -> None:
    """Make the topics that are missing, and add partitions where sources own more than there are."""
    from bridge.kafka.client import admin
    from bridge.kafka.topics import make

    file = load(path, BridgeFile)
    for topic in make(admin(file.kafka), file, tables):
        echo(f"topic {topic.topic}: {topic.partitions} partitions, {topic.what}")
    for name, stream in file.streams.items():
        for source, partitions in stream.sources.items():
            echo(f"source {source}: {', '.join(f'{topic}{list(partitions)}' for topic in file.topics(name))}")


@bridge.command()
@_CONFIG
@_JSON
def doctor(path: Path, as_json: bool) -> None:
    """Look at everything that the bridge needs, change nothing, and report what is wrong and what fixes it.

    Brokers, topics, positions, the schema registry, certificates, the interconnect; also while bridges run. Exit code 3 when
    something is wrong; warnings alone are 0.
    """
    from bridge.doctor import examine
    from headrace.errors import NeedsOperator
    from headrace.findings import as_json as in_json
    from headrace.findings import is_wrong, show
    from headrace.terminal import Terminal

    findings = list(examine(load(path, BridgeFile)))
    if as_json:
        echo(in_json(findings))
    else:
        show(findings, Terminal())
    if is_wrong(findings):
        sys.exit(NeedsOperator.exit_code)


@bridge.command()
@_CONFIG
@_JSON
def positions(path: Path, as_json: bool) -> None:
    """Show each source's committed position, by whom and when it was committed, and which tables are withheld."""
    from bridge.positions.survey import survey

    positions_of_sources = survey(load(path, BridgeFile))
    if as_json:
        echo(json.dumps(positions_of_sources, indent=2))
        return
    columns = ("source", "position", "epoch", "partitions", "committed_at", "bridge", "withheld")
    _table(
        (*columns, "error") if any(each["error"] for each in positions_of_sources) else columns,
        [
            {**each, "partitions": _listed(each["offsets"]), "withheld": ", ".join(each["withheld"])}
            for each in positions_of_sources
        ],
    )


@bridge.command()
@_CONFIG
@_JSON
def topics(path: Path, as_json: bool) -> None:
    """Show who owns which partition of which topic."""
    from bridge.kafka.client import admin
    from bridge.kafka.topics import owners

    file = load(path, BridgeFile)
    partitions = owners(admin(file.kafka), file)
    if as_json:
        echo(json.dumps(partitions, indent=2))
        return
    _table(("stream", "topic", "holds", "partition", "source", "in_kafka"), partitions)


@bridge.command("dead-letters")
@_CONFIG
@_JSON
@click.option("--open", "only_open", is_flag=True, help="Only those whose rows have not come since.")
@click.argument("stream")
def dead_letters(path: Path, stream: str, *, as_json: bool, only_open: bool) -> None:
    """Show the changes of STREAM whose rows were too large to be sent, or could not be decoded: position, key, size, column.

    One is open until a later record brings the row of that key, or removes it; then it is replaced. Reads all of the
    stream's topics. To have the rows after all, raise [records] largest_megabytes at the edge and the topic's max.message.bytes;
    keep what --json prints, and give it to the edge: headrace edge snapshot --dead-letters FILE.
    """
    from bridge import whole_topics

    file = load(path, BridgeFile)
    file.stream(stream)
    rows = [each for each in whole_topics.dead_letters(file, stream) if each["state"] == "open" or not only_open]
    if as_json:
        echo(json.dumps(rows, indent=2))
    elif rows:
        _show(("state", "source", "table", "op", "bytes", "position", "offset", "sha256", "column", "key"), rows)
    else:
        echo(f"stream {stream}: no {'open ' * only_open}dead letters")


@bridge.command()
@_CONFIG
@click.option("--connect", "form", flag_value="connect", help="Kafka Connect's, for JsonConverter's schema.content.")
@click.option("--json-schema", "form", flag_value="json-schema", help="JSON Schema, draft 2020-12.")
@click.option("--avro", "form", flag_value="avro", help="Avro, with Debezium's names.")
@click.option("--sql", "form", flag_value="sql", help="CREATE TABLE, for PostgreSQL.")
@click.option("--key", "of_key", is_flag=True, help="The schema of the records' keys instead of that of their values.")
@click.option("--source", metavar="REGION/NAME", help="Of this source; needed where a table differs between sources.")
@click.argument("table", metavar="SCHEMA.TABLE")
def schema(path: Path, form: str | None, table: str, source: str | None, *, of_key: bool) -> None:
    """Print the schema of a table's records for another tool, made of the table's newest schema record in Kafka.

    One of --connect, --json-schema, --avro and --sql has to be given. Reads all of the stream's own topic.
    """
    from bridge.whole_topics import read_newest
    from headrace.schemas.printed import render_schema

    if form is None:
        raise click.UsageError("one of --connect, --json-schema, --avro, --sql is missing")
    echo(render_schema(form, *read_newest(load(path, BridgeFile), table, source), of_key=of_key))


@bridge.command()
@_CONFIG
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
def move(path: Path, sources: tuple[str, ...]) -> None:
    """Have each SOURCE go on, from its committed position, in the partitions that the file names now.

    Sources that swap partitions have to be named together. Refused, with nothing changed, where a partition holds the position of
    another source. Records in former partitions stay there. First stop all bridges that share sources with this file, and name
    the new partitions in their files too.
    """
    from bridge.kafka.client import admin
    from bridge.positions.survey import move as move_sources

    file = load(path, BridgeFile)
    streams = {source: file.stream_of(source) for source in sources}
    for source, moved in move_sources(file, admin(file.kafka), sources).items():
        stream = streams[source]
        partitions = list(file.stream(stream).sources[source])
        begins = f"goes on after {moved.position}" if moved.position is not None else "has no records, and begins"
        echo(f"source {source}: {begins} in {file.topic(stream)}{partitions}")


@bridge.command()
@_CONFIG
@click.option("--discard-withheld", is_flag=True, help="Give up records that wait for the schema registry.")
@click.argument("source")
def forget(path: Path, source: str, *, discard_withheld: bool) -> None:
    """Forget the committed position of SOURCE, which was retired; its records stay.

    First take it out of the files of all bridges that share sources with this one, and stop these bridges: refused while one of
    them runs, which may serve it. Its partitions are free for another source afterwards.
    """
    from bridge.kafka.client import admin
    from bridge.positions.survey import forget as forget_source

    file = load(path, BridgeFile)
    held = forget_source(file, admin(file.kafka), source, discard_withheld=discard_withheld)
    partitions = ", ".join(f"{topic}[{partition}]" for topic, partition in sorted(held.offsets))
    echo(f"source {source}: forgotten; it was at {held.position or 'no position'} in {partitions}, which are free now")


@bridge.command("export")
@_CONFIG
def export_positions(path: Path) -> None:
    """Print the committed position of each source as JSON, for 'headrace bridge import'.

    Keep a fresh copy outside Kafka, by a timer, for the day on which the cluster is lost. Bridges may run meanwhile. Ends with 3
    where the position of a source cannot be read: the others are printed. So write to a new file, and replace the former copy
    after exit code 0 only.
    """
    import msgspec

    from bridge.positions import transfer
    from headrace.errors import NeedsOperator

    export, errors = transfer.export_positions(load(path, BridgeFile))
    echo(msgspec.json.format(msgspec.json.encode(export)).decode())
    for source, error in errors.items():
        echo(f"source {source} is left out: {error.message}. {error.hint}", err=True)
    if errors:
        sys.exit(NeedsOperator.exit_code)


@bridge.command("import")
@_CONFIG
@click.option("--source", "sources", multiple=True, metavar="REGION/NAME", help="Only this source; may be given again.")
@click.option("--accept-gap", is_flag=True, help="Go on although records before the position are missing in the topic.")
@click.argument("export", type=click.File("rb"))
def import_positions(path: Path, sources: tuple[str, ...], export: BinaryIO, *, accept_gap: bool) -> None:
    """Commit the positions in EXPORT, a file of 'headrace bridge export' (- reads standard input).

    For a cluster that has none of these sources' positions yet; one that is there is never replaced. First make the topics with
    'headrace bridge init', and stop all bridges of the group.
    """
    from bridge.kafka.client import admin
    from bridge.positions import transfer

    file = load(path, BridgeFile)
    exported = transfer.read_export(export.read(), export.name)
    for source, done in transfer.import_positions(
        file, admin(file.kafka), exported, only=sources, accept_gap=accept_gap
    ):
        echo(f"source {source}: {done}")


def _listed(offsets: list[dict[str, Any]]) -> str:
    return ", ".join(f"{each['topic']}[{each['partition']}]@{each['offset']}" for each in offsets)


def _show(columns: tuple[str, ...], rows: list[dict[str, Any]]) -> None:
    """Print a table that folds what is long where a person reads it, and nothing where a program does."""
    from rich.table import Table

    from headrace.terminal import Terminal, in_style

    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in columns:
        table.add_column(column, overflow="fold", justify="right" if column == "bytes" else "left")
    for row in rows:
        table.add_row(*(in_style(row[column] or "-", "yellow" * (row[column] == "open")) for column in columns))
    console = Terminal() if sys.stdout.isatty() else Terminal(width=10_000)
    console.print(table)


def _table(columns: tuple[str, ...], rows: list[dict[str, Any]]) -> None:
    """Print columns side by side, none of them cut off: positions are there to be copied."""
    lines = [[column.replace("_", " ") for column in columns]]
    lines += [[str(row[column]) if row[column] not in {None, ""} else "-" for column in columns] for row in rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(columns))]
    for line in lines:
        echo("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())


def read_status(file: BridgeFile) -> list[SourceStatus]:
    """Return the status of each source by its position in Kafka, whether or not a bridge runs; for `headrace status`."""
    from bridge.positions.survey import survey

    return [
        SourceStatus(
            source=each["source"],
            state="not asked",
            reason=each["error"] or "",
            position=each["position"],
            committed_at=each["committed_at"],
        )
        for each in survey(file)
    ]
