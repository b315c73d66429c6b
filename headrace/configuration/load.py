"""Reading a TOML file into a checked, frozen structure.

An error names the file, the line, the field and the rule in words. Relative folders and paths in a file are relative to the
file, so a command means the same wherever it is run. Any text may be `env:NAME` or `file:PATH`.
"""

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, cast

import msgspec

from headrace.configuration.explain import Resolved, TextError, explain, line_of, resolve
from headrace.configuration.secret import REFRESH_SECONDS, TIMEOUT_SECONDS, Secret
from headrace.errors import ConfigurationError

T = TypeVar("T", bound="File")


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A table of a configuration file."""

    def not_for_production(self) -> list[str]:
        """Return what `profile = "production"` refuses of this section itself, a sentence each."""
        return []


class Commands(Section, frozen=True, kw_only=True):
    """How secrets that are given as `command:PROGRAM …` are obtained."""

    #: A command that takes longer is killed.
    timeout_seconds: Annotated[float, msgspec.Meta(gt=0, le=300)] = TIMEOUT_SECONDS
    #: What a command printed is reused for this long, then it is run again when the secret is needed; 0: each time.
    refresh_seconds: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = REFRESH_SECONDS


class File(Section, frozen=True, kw_only=True):
    """A whole configuration file, which knows where it was read."""

    #: Where the file was read; not a field of the file.
    path: str = ""
    #: `production` refuses what is only good for trials: connections without TLS or without a check of the server's
    #: certificate, and topics with fewer than three replicas.
    profile: Literal["", "production"] = ""
    commands: Commands = Commands()

    def resolve(self, name: str) -> Path:
        """Return a path of the file made absolute: relative names are relative to the file."""
        return (Path(self.path).parent / name).absolute()


def load(path: str | Path, kind: type[T]) -> T:
    """Return the file as `kind`; raise ConfigurationError naming file, line, field and rule."""
    return read(path, kind)[0]


def read(path: str | Path, kind: type[T]) -> tuple[T, Resolved]:
    """Return the file as `kind`, as `load` does, and what its texts were resolved to."""
    path = Path(path).absolute()
    text, document = parsed(path)
    try:
        resolved = resolve(document, kind, path.parent)
    except TextError as error:
        line = line_of(text, error.place)
        raise ConfigurationError(f"{path}{f':{line}' if line else ''}: {'.'.join(error.place)}: {error}") from error
    try:
        file = _convert(resolved.values, path, kind)
    except msgspec.ValidationError as error:
        line, problem = explain(
            str(error), text, resolved.values, kind, resolved.renamed, lambda values: _convert(values, path, kind)
        )
        raise ConfigurationError(f"{path}{f':{line}' if line else ''}: {problem}") from error
    for secret in _secrets(file):
        if secret.command is not None:
            secret.command.timeout_seconds = file.commands.timeout_seconds
            secret.command.refresh_seconds = file.commands.refresh_seconds
    if file.profile == "production" and (refused := list(_find_refusals(file, ""))):
        raise ConfigurationError(
            f"{path}: not fit for production: {'; '.join(refused)}",
            hint='Change these fields, or take out profile = "production" where the file is for a trial.',
        )
    return file, resolved


def _find_refusals(value: Any, place: str) -> Iterator[str]:
    """Return what the profile of production refuses, with the section that it is in."""
    if isinstance(value, Section):
        yield from (f"[{place}] {reason}" if place else reason for reason in value.not_for_production())
        for name in value.__struct_fields__:
            yield from _find_refusals(getattr(value, name), f"{place}.{name}" if place else name)
    elif isinstance(value, dict):
        for name, each in value.items():
            yield from _find_refusals(each, f"{place}.{name}")


def _secrets(value: Any) -> Iterator[Secret]:
    """Yield all secrets of a file."""
    if isinstance(value, Secret):
        yield value
    elif isinstance(value, Section):
        for name in value.__struct_fields__:
            yield from _secrets(getattr(value, name))
    elif isinstance(value, dict):
        for each in value.values():
            yield from _secrets(each)
    elif isinstance(value, list):
        for each in value:
            yield from _secrets(each)


def parsed(path: Path) -> tuple[str, dict[str, Any]]:
    """Return a file's text and its values; raise ConfigurationError when it cannot be read, or is not TOML."""
    try:
        text = path.read_text(encoding="utf-8")
        return text, tomllib.loads(text)
    except OSError as error:
        raise ConfigurationError(
            f"{path}: cannot be read: {error.strerror}", hint="Name the file with --config."
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path}: not TOML: it is not UTF-8") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{path}: not TOML: {error}") from error


def _convert(document: dict[str, Any], path: Path, kind: type[T]) -> T:
    def decode(kind: type, value: Any) -> Any:
        if kind is Secret:
            return Secret(cast("str", value), path.parent)
        if kind is Path:
            if not isinstance(value, str) or not value:
                raise ValueError("a file is named by its path")
            return (path.parent / value).absolute()
        # By this msgspec knows that the hook has no answer.
        raise NotImplementedError(kind)

    return msgspec.convert(document | {"path": str(path)}, kind, dec_hook=decode)
