"""`headrace source add`: what a new source needs at every place, in order, and what of it is done and what is left.

The places are database, certificate, router, edge, bridge, topic, lake. `plan` is pure: it looks at the files that are given, and
neither connects to anything nor writes.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple, get_args
from urllib.parse import urlsplit

import click

from headrace.configuration.bridge import BridgeFile
from headrace.configuration.edge import EdgeFile
from headrace.configuration.lake import LakeFile
from headrace.configuration.load import load
from headrace.configuration.value_types import IN_WORDS, SOURCE_NAME
from headrace.errors import ConfigurationError
from headrace.printable import echo

Engine = Literal["postgresql", "mariadb", "mysql"]
State = Literal["done", "to do", "look"]
_FILE = click.Path(path_type=Path, dir_okay=False)
_LOOK_SECONDS = 120


class Step(NamedTuple):
    """What is done at one place."""

    place: str
    #: `look`: it cannot be seen from here whether it is done.
    state: State
    #: A sentence.
    text: str
    #: Commands, and SQL for a database, to be run in this order.
    run: list[str]
    #: The file that is changed, and what it needs; empty for none.
    file: str = ""
    content: str = ""


class NewSource(NamedTuple):
    """The source, and the files that there are."""

    source: str
    engine: Engine
    bridge: BridgeFile
    #: The stream that it joins.
    stream: str
    #: Where its edge's file is or will be.
    edge_path: Path
    edge: EdgeFile | None = None
    lake: LakeFile | None = None
    #: Where edges connect to, `amqps://HOST:PORT`; empty when it is not known.
    interconnect: str = ""


def plan(new: NewSource) -> list[Step]:
    """Return the steps; raise ConfigurationError when the files do not fit the source."""
    if new.edge is not None and new.edge.source.name != new.source:
        raise ConfigurationError(
            f"{new.edge_path} is the file of {new.edge.source.name}, not of {new.source}",
            hint="Name another file in --edge: each source has an edge, a file and a state folder of its own.",
        )
    return [*_database(new), *_identity(new), *_edge(new), *_bridge(new), *_lake(new), _check(new)]


def partitions_of(new: NewSource) -> list[int]:
    """Return the partitions that the source has by the bridge's file, else the first that no source of the stream owns."""
    owned = new.bridge.stream(new.stream).sources
    if new.source in owned:
        return list(owned[new.source])
    return [1 + max(partition for partitions in owned.values() for partition in partitions)]


def _database(new: NewSource) -> Iterator[Step]:
    if new.engine == "postgresql":
        run = [
            "alter system set wal_level = 'logical';  -- then restart the server",
            "alter system set max_slot_wal_keep_size = '50GB'; select pg_reload_conf();  -- what the disk can spare",
            "create role headrace login replication password '…';",
            "grant select on all tables in schema public to headrace;  -- for snapshots and 'headrace verify'",
            "-- The publication: 'headrace edge doctor' prints its statement, of tables that it does not harm.",
        ]
    else:
        mariadb = "replication slave, replication master admin, binlog monitor"
        grants = mariadb if new.engine == "mariadb" else "replication slave, replication client"
        run = [
            "set global binlog_format = 'ROW'; set global binlog_row_image = 'FULL'; set global binlog_row_metadata = 'FULL';",
            "create user headrace identified by '…';",
            f"grant {grants} on *.* to headrace;",
            "grant select on *.* to headrace;",
        ]
        if new.engine == "mysql":
            run.append("grant reload on *.* to headrace;  -- for 'headrace verify'")
    yield Step(
        "database",
        "look",
        "The server writes a log with rows, and has a user for the edge. On a managed server see docs/cloud.md.",
        run,
    )


def _identity(new: NewSource) -> Iterator[Step]:
    """Yield how the interconnect knows the edge."""
    interconnect = new.bridge.interconnect
    name = new.source.replace("/", "-")
    certs = [f"headrace certs certs --source {new.source}"]
    if interconnect.listen is not None and interconnect.certificate is None:
        yield Step("certificate", "done", "The bridge listens without certificates and takes whoever reaches it.", [])
        return
    yield Step(
        "certificate",
        "look",
        f"The edge has a certificate with the common name {new.source}: {name}.pem and {name}.key, on its machine alone.",
        certs,
    )
    if interconnect.listen is None:
        region = new.source.partition("/")[0]
        group = {
            "users": new.source,
            "remoteHosts": "*",
            "targets": f"cdc/{new.source}, answers/{new.source}",
            "sources": f"requests/{new.source}",
        }
        yield Step(
            "router",
            "look",
            "The policy of the router that the edge connects to has a group for it; interior routers have one for the region "
            f"{region}. With a broker: its security-settings (infra/artemis).",
            [],
            "infra/router/policy",
            json.dumps({name: group}, indent=2),
        )


def _edge(new: NewSource) -> Iterator[Step]:
    path = new.edge_path
    database = {"postgresql": "postgresql://headrace@HOST/DATABASE"}.get(new.engine, f"{new.engine}://headrace@HOST")
    where = new.interconnect or "amqps://HOST:PORT"
    command = f"headrace edge new --source {new.source} --database {database} --interconnect {where} --output {path}"
    if new.edge is None:
        yield Step("edge", "to do", f"There is no file {path} yet.", [command])
    else:
        yield Step("edge", "done", f"{path} is the file of {new.source}.", [f"headrace config check {path}"])


def _bridge(new: NewSource) -> Iterator[Step]:
    file, name = new.bridge, new.stream
    stream, partitions = file.stream(name), partitions_of(new)
    init = f"headrace bridge init --config {file.path}"
    topics = ", ".join(f"{topic}{partitions}" for topic in file.topics(name))
    if new.source in stream.sources:
        yield Step("bridge", "done", f"The source owns {topics} by {file.path}.", [])
    else:
        yield Step(
            "bridge",
            "to do",
            f"The source gets {topics}: the first partitions that no source of the stream owns. The same in the files of all "
            f"bridges of the group {file.group}.",
            [],
            file.path,
            f"[streams.{name}.sources]\n{json.dumps(new.source)} = {partitions}\n",
        )
    yield Step("topic", "look", "Kafka has the partitions.", [init])
    yield Step(
        "bridge",
        "look",
        "The bridges take the file over while they run.",
        [
            "kill -HUP PID  # of each 'headrace bridge run'; or start it again",
            f"headrace bridge doctor --config {file.path}",
        ],
    )
    path = new.edge_path
    yield Step(
        "edge",
        "look",
        "The edge is initialised, and runs under a supervisor.",
        [
            f"headrace edge doctor --config {path}",
            f"headrace edge init --snapshot --config {path}  # without --snapshot the rows that are there stay behind",
            f"headrace edge run --config {path}",
        ],
    )


def _lake(new: NewSource) -> Iterator[Step]:
    lake = new.lake
    if lake is None:
        return
    if new.stream not in lake.streams:
        names = json.dumps(sorted({*new.bridge.stream(new.stream).sources, new.source}))
        content = f"[streams.{new.stream}]\nsources = {names}\n"
        yield Step("lake", "to do", f"{lake.path} has no stream {new.stream}.", [], lake.path, content)
    elif new.source in lake.stream(new.stream).sources:
        yield Step("lake", "done", f"{lake.path} has the source.", [])
    else:
        names = json.dumps([*lake.stream(new.stream).sources, new.source])
        text = "The next load then takes its records, from the first."
        yield Step("lake", "to do", text, [], lake.path, f"[streams.{new.stream}]\nsources = {names}\n")


def _check(new: NewSource) -> Step:
    run = [f"headrace status --config {new.bridge.path}"]
    if new.lake is not None:
        run += [
            f"headrace lake load {new.stream} --config {new.lake.path}",
            f"headrace verify {new.stream} --config {new.lake.path}",
        ]
    return Step("check", "look", "Its changes arrive.", run)


@click.group()
def source() -> None:
    """Add a source: what is needed at its database, its edge, the bridge, the router, Kafka and the lake."""


@source.command()
@click.argument("name", metavar="REGION/NAME")
@click.option("--bridge", "bridge_path", type=_FILE, required=True, help="The file of the bridges that will serve it.")
@click.option("--stream", help="The stream that it joins; needed where the bridge's file has several.")
@click.option("--lake", "lake_path", type=_FILE, help="The lake's file, if the stream is loaded.")
@click.option("--edge", "edge_path", type=_FILE, help="The edge's file; REGION-NAME.toml when left out.")
@click.option(
    "--engine", type=click.Choice(get_args(Engine)), help="The kind of database, where there is no edge's file yet."
)
@click.option("--interconnect", default="", metavar="URL", help="Where edges connect to.")
@click.option("--look", is_flag=True, help="Also run the doctors of the bridge and, if its file is there, of the edge.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def add(
    name: str,
    bridge_path: Path,
    stream: str | None,
    lake_path: Path | None,
    edge_path: Path | None,
    engine: Engine | None,
    interconnect: str,
    *,
    look: bool,
    as_json: bool,
) -> None:
    """Show what REGION/NAME needs to be captured, step by step; nothing is changed.

    Run it again after a step: what the files have by then is done.
    """
    if not re.match(SOURCE_NAME, name):
        raise ConfigurationError(f"{name!r}: expected {IN_WORDS[SOURCE_NAME]}")
    bridge = load(bridge_path, BridgeFile)
    edge_path = edge_path or Path(f"{name.replace('/', '-')}.toml")
    edge = load(edge_path, EdgeFile) if edge_path.exists() else None
    new = NewSource(
        source=name,
        engine=_engine(edge, engine),
        bridge=bridge,
        stream=_stream(bridge, name, stream),
        edge_path=edge_path,
        edge=edge,
        lake=load(lake_path, LakeFile) if lake_path is not None else None,
        interconnect=interconnect or _address(bridge),
    )
    steps = plan(new)
    findings_of = _run_doctors(new) if look else {}
    if as_json:
        echo(
            json.dumps(
                [step._asdict() for step in steps] + [{"place": place, "found": f} for place, f in findings_of.items()]
            )
        )
        return
    _show(name, steps)
    for place, findings in findings_of.items():
        for finding in findings:
            echo(f"{place} doctor, {finding['level']}: {finding['check']}: {finding['text']}")


def _engine(edge: EdgeFile | None, option: Engine | None) -> Engine:
    if edge is None:
        return option or "postgresql"
    engines: tuple[Engine, ...] = get_args(Engine)
    return next(each for each in engines if getattr(edge.source, each) is not None)


def _stream(bridge: BridgeFile, name: str, option: str | None) -> str:
    """Return the stream that the source is in, or joins."""
    present = next((each for each, stream in bridge.streams.items() if name in stream.sources), None)
    if present is not None and option not in (None, present):
        raise ConfigurationError(f"{name} is in stream {present} of {bridge.path}, not in {option}")
    if present is None and option is None and len(bridge.streams) > 1:
        raise ConfigurationError(
            f"{bridge.path} has several streams: {', '.join(sorted(bridge.streams))}", hint="Name one with --stream."
        )
    chosen = present or option or next(iter(bridge.streams))
    bridge.stream(chosen)
    return chosen


def _address(bridge: BridgeFile) -> str:
    """Return where edges connect to, as far as the bridge's file has it."""
    if bridge.interconnect.listen is None:
        return ""
    port = urlsplit(f"//{bridge.interconnect.listen}").port
    return f"{'amqps' if bridge.interconnect.certificate else 'amqp'}://BRIDGE:{port}"


def _run_doctors(new: NewSource) -> dict[str, list[dict[str, str]]]:
    """Return what the doctors find that is not right, by part; they are commands of their own packages."""
    files = {"bridge": new.bridge.path} | ({"edge": str(new.edge_path)} if new.edge is not None else {})
    findings_of = {}
    for part, path in files.items():
        process = subprocess.run(
            [sys.executable, "-m", "headrace", part, "doctor", "--json", "--config", path],
            capture_output=True,
            text=True,
            timeout=_LOOK_SECONDS,
            check=False,
        )
        try:
            findings = json.loads(process.stdout)
        except ValueError:
            last = process.stderr.strip().splitlines()[-1:] or [f"exit code {process.returncode}"]
            findings = [{"check": "doctor", "level": "wrong", "text": last[0], "fix": ""}]
        findings_of[part] = [each for each in findings if each["level"] != "ok"]
    return findings_of


def _show(name: str, steps: list[Step]) -> None:
    left = sum(step.state == "to do" for step in steps)
    echo(f"What {name} needs; {left} to do by the files:" if left else f"What {name} needs; the files are ready:")
    for number, step in enumerate(steps, 1):
        echo(f"\n{number}. {step.place} ({step.state}): {step.text}")
        for command in step.run:
            echo(f"     {command}")
        if step.content:
            echo(f"   in {step.file}:")
            for line in step.content.splitlines():
                echo(f"     {line}")
