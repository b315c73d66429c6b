"""`headrace source add`: walks through what a new source needs at every place, and shows what is done and what is left."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args
from urllib.parse import urlsplit

import click

from headrace.configuration.bridge import BridgeFile
from headrace.configuration.edge import EdgeFile
from headrace.configuration.lake import LakeFile
from headrace.configuration.load import load
from headrace.configuration.value_types import IN_WORDS, SOURCE_NAME
from headrace.errors import ConfigurationError
from headrace.source_plan import Engine, NewSource, Step, plan

_FILE = click.Path(path_type=Path, dir_okay=False)
_LOOK_SECONDS = 120


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
        click.echo(
            json.dumps(
                [step._asdict() for step in steps] + [{"place": place, "found": f} for place, f in findings_of.items()]
            )
        )
        return
    _show(name, steps)
    for place, findings in findings_of.items():
        for finding in findings:
            click.echo(f"{place} doctor, {finding['level']}: {finding['check']}: {finding['text']}")


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
    click.echo(f"What {name} needs; {left} to do by the files:" if left else f"What {name} needs; the files are ready:")
    for number, step in enumerate(steps, 1):
        click.echo(f"\n{number}. {step.place} ({step.state}): {step.text}")
        for command in step.run:
            click.echo(f"     {command}")
        if step.content:
            click.echo(f"   in {step.file}:")
            for line in step.content.splitlines():
                click.echo(f"     {line}")
