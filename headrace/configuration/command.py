"""`headrace config`: check a file without connecting to anything, show what it means, and print what a file may hold."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import msgspec

from headrace.configuration.edge import GONE_IN_0_3
from headrace.configuration.explain import Place, Resolved, line_of
from headrace.configuration.lake import LakeFile, is_reference, is_secret
from headrace.configuration.load import File, parsed, read
from headrace.configuration.secret import Secret
from headrace.errors import ConfigurationError
from headrace.printable import echo

_KINDS = ("edge", "bridge", "lake")
_EXPECTATION = "Correct the expression. Loads go on without it, and 'headrace lake tables' shows the reason."


@click.group()
def config() -> None:
    """Check a configuration file, show what it means, and print what a file may hold. Connects to nothing."""


@config.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--kind", type=click.Choice(_KINDS), help="What the files are; by default found from their sections.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object for each file, on a line.")
@click.pass_context
def check(context: click.Context, files: tuple[Path, ...], kind: str | None, *, as_json: bool) -> None:
    """Check FILES: exit code 0 when all are right, 2 when one is not. All of them are checked.

    What still works and will be gone in release 0.3 is named with what to write in its place.
    """
    wrong = False
    for path in files:
        file, error, old = None, None, list[str]()
        try:
            file, resolved = _read(path, kind)
            text, given = parsed(path.absolute())
            old = deprecated(given, text, resolved)
            if isinstance(file, LakeFile) and (problems := file.wrong_expectations()):
                raise ConfigurationError("\n".join(f"{path}: {sentence}" for sentence in problems), hint=_EXPECTATION)
        except ConfigurationError as problem:
            wrong, error = True, problem
        if as_json:
            message = error.message if error else None
            echo(json.dumps({"file": str(path), "ok": error is None, "error": message, "deprecated": old}))
        elif error is not None:
            echo(error.message)
            if error.hint:
                echo(f"  What to do: {error.hint}")
        else:
            echo(f"{path}: ok, {_name_of(type(file))}")
            for sentence in old:
                echo(f"  Deprecated: {sentence}")
    if wrong:
        context.exit(2)


@config.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--kind", type=click.Choice(_KINDS), help="What the file is; by default found from its sections.")
@click.option("--set", "only_set", is_flag=True, help="Leave out what is as it is by default.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def show(file: Path, kind: str | None, *, only_set: bool, as_json: bool) -> None:
    """Show every value of FILE with its defaults, and where each comes from. Secrets are shown as their references."""
    settings, resolved = _read(file, kind)
    text, given = parsed(file.absolute())
    shown = [each for each in values(settings, given, text, resolved) if not (only_set and each.origin == "default")]
    if as_json:
        echo(json.dumps({each.place: {"value": each.value, "from": each.origin} for each in shown}, indent=2))
        return
    width = min(60, max((len(f"{each.place} = {each.text}") for each in shown), default=0))
    for each in shown:
        echo(f"{f'{each.place} = {each.text}':<{width}}  # {each.origin}")


@config.command()
@click.argument("kind", type=click.Choice(_KINDS))
def schema(kind: str) -> None:
    """Print the JSON Schema of a file, for editors that complete and check TOML by one."""
    from headrace.configuration import reference

    echo(json.dumps(reference.schema(reference.KINDS[kind]), indent=2))


@config.command("reference")
def reference_command() -> None:
    """Print the reference of all fields as Markdown."""
    from headrace.configuration import reference

    echo(reference.markdown(), nl=False)


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


@dataclass(frozen=True)
class Value:
    """One value of a file."""

    place: str
    value: Any
    #: `line 4`, `line 4, env:NAME`, or `default`.
    origin: str

    @property
    def text(self) -> str:
        """The value as TOML writes it; nothing where there is none."""
        return "" if self.value is None else json.dumps(self.value, ensure_ascii=False)


def values(file: File, given: Mapping[str, Any], text: str, resolved: Resolved) -> list[Value]:
    """Return all values of a file, in the order of its fields."""

    def origin(place: Place) -> str:
        written = (*place[:-1], resolved.renamed.get(place, place[-1]))
        if not _has(given, written):
            return "default"
        line = f"line {line_of(text, written)}"
        reference = resolved.origins.get(written)
        return f"{line}, {reference}" if reference else line

    return [Value(_dotted(place), _shown(place, value), origin(place)) for place, value in _leaves(file, ())]


def deprecated(given: Mapping[str, Any], text: str, resolved: Resolved) -> list[str]:
    """Return a sentence for each field that works as before in this release, and not in 0.3: where it is, and what to write."""
    sentences = []
    for place, former in resolved.renamed.items():
        value = resolved.values
        for name in place:
            value = value[name]
        written = (*place[:-1], former)
        sentences.append(f"line {line_of(text, written)}: {_dotted(written)}: write {place[-1]} = {value}")
    for name in sorted(given.get("records", {}).keys() & GONE_IN_0_3):
        place = ("records", name)
        sentences.append(
            f"line {line_of(text, place)}: {_dotted(place)}: write nothing, and choose the form by [records] profile"
        )
    return sentences


def _shown(place: Place, value: Any) -> Any:
    # What logs Kafka's Java client in may hold a secret.
    if place[:-1] == ("spark", "settings") and is_reference(place[-1], value):
        return Secret(value).reference
    return "(not shown)" if "jaas" in place[-1] or (place[0] == "spark" and is_secret(place[-1])) else value


def _leaves(value: Any, place: Place) -> Iterator[tuple[Place, Any]]:
    if isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            if (*place, name) != ("path",):
                yield from _leaves(getattr(value, name), (*place, name))
    elif isinstance(value, dict) and value:
        for name, each in value.items():
            yield from _leaves(each, (*place, name))
    else:
        yield place, _plain(value)


def _plain(value: Any) -> Any:
    """Return a value as JSON knows it."""
    if isinstance(value, Secret):
        return value.reference
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, msgspec.Struct):
        return {name: _plain(getattr(value, name)) for name in value.__struct_fields__}
    return value


def _has(given: Any, place: Place) -> bool:
    for name in place:
        if not isinstance(given, dict) or name not in given:
            return False
        given = given[name]
    return True


def _dotted(place: Place) -> str:
    return ".".join(name if name.replace("_", "").replace("-", "").isalnum() else f'"{name}"' for name in place)
