"""Prints what an edge answered as the command in the region prints it."""

from typing import Any

import click
import msgspec
from rich.console import Console

from headrace import findings
from headrace.errors import CorruptInput
from headrace.requests.message import Content
from headrace.status.answer import Answer
from headrace.status.table import console, screen


def show(kind: str, content: Content, *, as_json: bool) -> None:
    """Print the data of an answer; raise CorruptInput where it is not what its kind answers."""
    if as_json:
        data = content.data
        # What the command in the region prints, where it prints something else for people.
        data = data["plan"] if isinstance(data, dict) and "plan" in data else data
        click.echo(msgspec.json.format(msgspec.json.encode(data), indent=1))
        return
    try:
        if kind == "status":
            out = console()
            out.print(screen([msgspec.convert(content.data, Answer)], out.width))
        elif kind == "doctor":
            found = msgspec.convert(content.data, list[dict[str, str]])
            findings.show([findings.Finding(**each) for each in found], Console(highlight=False))  # type: ignore[arg-type]
        else:
            click.echo(_lines(content.data))
    except (msgspec.ValidationError, TypeError, KeyError, ValueError) as error:
        raise CorruptInput(
            f"the edge's answer to {kind!r} is not understood",
            hint="With --json it is printed as it is. Are edge and headquarters of releases that go together?",
        ) from error


def _lines(data: Any) -> str:
    """Return the lines of an answer, without what a terminal would obey."""
    lines = msgspec.convert(data["lines"], list[str])
    return "\n".join("".join(each if each.isprintable() else "?" for each in line) for line in lines)
