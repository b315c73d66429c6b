"""Reading a TOML file into a checked, frozen structure.

An error names the file, the line where it can be found, the field, and the rule. Relative folders in a file are relative
to the file, so a command means the same wherever it is run.
"""

import re
import tomllib
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec

from headrace.configuration.secret import Secret
from headrace.errors import ConfigurationError

T = TypeVar("T", bound="File")

SOURCE_NAME = r"^[a-z0-9][a-z0-9_-]*/[a-z0-9][a-z0-9_.-]*$"
STREAM_NAME = r"^[a-z0-9][a-z0-9_-]*$"


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A table of a configuration file."""


class File(Section, frozen=True, kw_only=True):
    """A whole configuration file, which knows where it was read."""

    #: Where the file was read; not a field of the file.
    path: str = ""

    def beside(self, name: str) -> Path:
        """Return a path of the file made absolute: relative names are relative to the file."""
        return (Path(self.path).parent / name).absolute()


def load(path: str | Path, kind: type[T]) -> T:
    """Return the file as `kind`; raise ConfigurationError naming file, line, field and rule."""
    path = Path(path).absolute()
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(
            f"{path}: cannot be read: {error.strerror}", hint="Name the file with --config."
        ) from error
    try:
        given = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{path}: not TOML: {error}") from error
    given.pop("path", None)
    try:
        loaded = msgspec.convert(given | {"path": str(path)}, kind, dec_hook=_decode)
    except msgspec.ValidationError as error:
        raise ConfigurationError(_explain(path, text, str(error))) from error
    return loaded


def _decode(kind: type, value: Any) -> Any:
    if kind is Secret:
        return Secret(cast("str", value))
    raise NotImplementedError(kind)


def _explain(path: Path, text: str, problem: str) -> str:
    """Return the problem with its place: msgspec names the field as `$.source.name` or `$.streams[...]`."""
    rule, _, where = problem.partition(" - at `")
    field = where.rstrip("`").removeprefix("$.").removeprefix("$")
    named = re.search(r"unknown field `([^`]+)`|missing required field `([^`]+)`", rule)
    extra = (named.group(1) or named.group(2)) if named else ""
    full = ".".join(part for part in (field, extra) if part)
    line = _line(text, full)
    place = f"{path}:{line}" if line else str(path)
    return f"{place}: {full or 'the file'}: {rule}"


def _line(text: str, field: str) -> int:
    """Return the line on which a dotted field, or the nearest table above it, stands; 0 when neither is there."""
    wanted = [part for part in re.split(r"[.\[\]]+", field) if part and part != "..."]
    section: list[str] = []
    best, depth = 0, 0
    for number, line in enumerate(text.splitlines(), 1):
        header = re.match(r"\s*\[+([^\]]+)\]+", line)
        key = re.match(r"""\s*(["']?)([^"'=\s]+)\1\s*=""", line)
        if header:
            section = [part.strip("\"' ") for part in re.split(r"\.(?=(?:[^\"]*\"[^\"]*\")*[^\"]*$)", header.group(1))]
            here = section
        elif key:
            here = [*section, *key.group(2).split(".")]
        else:
            continue
        shared = next(
            (i for i, (a, b) in enumerate(zip(here, wanted, strict=False)) if a != b), min(len(here), len(wanted))
        )
        if shared == len(here) and shared > depth:
            best, depth = number, shared
    return best
