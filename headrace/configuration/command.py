"""`headrace config`: check a file without connecting to anything, show what it means, and print what a file may hold."""

import json
from pathlib import Path
from typing import Any

import click

from headrace.configuration.load import File, parsed, read
from headrace.configuration.show import values
from headrace.errors import ConfigurationError

_KINDS = ("edge", "bridge", "lake")


@click.group()
def config() -> None:
    """Check a configuration file, show what it means, and print what a file may hold. Connects to nothing."""


@config.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--kind", type=click.Choice(_KINDS), help="What the files are; by default found from their sections.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object for each file, on a line.")
@click.pass_context
def check(context: click.Context, files: tuple[Path, ...], kind: str | None, *, as_json: bool) -> None:
    """Check FILES: exit code 0 when all are right, 2 when one is not. All of them are checked."""
    wrong = False
    for path in files:
        found, error = None, None
        try:
            found, _ = _read(path, kind)
        except ConfigurationError as problem:
            wrong, error = True, problem
        if as_json:
            click.echo(json.dumps({"file": str(path), "ok": error is None, "error": error.message if error else None}))
        elif error is not None:
            click.echo(error.message)
            if error.hint:
                click.echo(f"  What to do: {error.hint}")
        else:
            click.echo(f"{path}: ok, {_name_of(type(found))}")
    if wrong:
        context.exit(2)


@config.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--kind", type=click.Choice(_KINDS), help="What the file is; by default found from its sections.")
@click.option("--set", "only_set", is_flag=True, help="Leave out what is as it is by default.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def show(file: Path, kind: str | None, *, only_set: bool, as_json: bool) -> None:
    """Show every value of FILE with its defaults, and where each comes from. Secrets are shown as their references."""
    found, resolved = _read(file, kind)
    text, given = parsed(file.absolute())
    shown = [each for each in values(found, given, text, resolved) if not (only_set and each.origin == "default")]
    if as_json:
        click.echo(json.dumps({each.place: {"value": each.value, "from": each.origin} for each in shown}, indent=2))
        return
    width = min(60, max((len(f"{each.place} = {each.text}") for each in shown), default=0))
    for each in shown:
        click.echo(f"{f'{each.place} = {each.text}':<{width}}  # {each.origin}")


@config.command()
@click.argument("kind", type=click.Choice(_KINDS))
def schema(kind: str) -> None:
    """Print the JSON Schema of a file, for editors that complete and check TOML by one."""
    from headrace.configuration import reference

    click.echo(json.dumps(reference.schema(reference.KINDS[kind]), indent=2))


@config.command("reference")
def reference_command() -> None:
    """Print the reference of all fields as Markdown."""
    from headrace.configuration import reference

    click.echo(reference.markdown(), nl=False)


def _read(path: Path, kind: str | None) -> tuple[File, Any]:
    from headrace.configuration.reference import KINDS

    return read(path, KINDS[kind or _kind_of(path)])


def _kind_of(path: Path) -> str:
    """Return what a file is, by the sections that only it has."""
    _, given = parsed(path.absolute())
    for kind, sections in (("edge", {"source", "state"}), ("lake", {"lake"}), ("bridge", {"interconnect", "streams"})):
        if sections & given.keys() and not (kind == "bridge" and "source" in given):
            return kind
    raise ConfigurationError(
        f"{path}: is of no known kind: it has neither [source] of an edge, nor [streams] of a bridge, nor [lake]",
        hint="Give --kind edge, bridge or lake, and see which sections are missing.",
    )


def _name_of(kind: type) -> str:
    from headrace.configuration.reference import KINDS

    return next(f"the file of {'an' if name == 'edge' else 'a'} {name}" for name, each in KINDS.items() if each is kind)
