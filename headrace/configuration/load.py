"""Reading a TOML file into a checked, frozen structure.

An error names the file, the line where it can be found, the field, and the rule. Relative folders and paths in a file are
relative to the file, so a command means the same wherever it is run.
"""

import copy
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
    try:
        return _convert(given, path, kind)
    except msgspec.ValidationError as error:
        raise ConfigurationError(_explain(path, text, str(error), given, kind)) from error


def _convert(given: dict[str, Any], path: Path, kind: type[T]) -> T:
    def decode(wanted: type, value: Any) -> Any:
        if wanted is Secret:
            return Secret(cast("str", value), path.parent)
        if wanted is Path:
            if not isinstance(value, str) or not value:
                raise ValueError("a file is named by its path")
            return (path.parent / value).absolute()
        # By this msgspec knows that the hook has no answer.
        raise NotImplementedError(wanted)

    return msgspec.convert(given | {"path": str(path)}, kind, dec_hook=decode)


def _explain(path: Path, text: str, problem: str, given: dict[str, Any], kind: type[File]) -> str:
    """Return the problem with its place: msgspec names the field as `$.source.name` or `$.streams[...].topic`."""
    rule, _, where = problem.partition(" - at `")
    if where.startswith("key` in `"):
        # A key itself is wrong: it is one of those of the table that is named.
        where = where.removeprefix("key` in `") + "[...]"
    parts = re.findall(r"[^.\[\]]+|\[\.\.\.\]|\[\d+\]", where.replace("`", "").removeprefix("$"))
    parts = _named(parts, problem, given, path, kind)
    named = re.search(r"unknown field `([^`]+)`|missing required field `([^`]+)`", rule)
    if named:
        parts.append(named.group(1) or named.group(2))
    line = _line(text, parts)
    place = f"{path}:{line}" if line else str(path)
    return f"{place}: {'.'.join(parts) or 'the file'}: {rule}"


def _named(parts: list[str], problem: str, given: dict[str, Any], path: Path, kind: type[File]) -> list[str]:
    """Return the parts with each `[...]` replaced by the key meant: the one that alone still has the problem."""
    for index, part in enumerate(parts):
        if part != "[...]":
            continue
        for key in _at(given, parts[:index]):
            alone = copy.deepcopy(given)
            entries = _at(alone, parts[:index])
            for other in set(entries) - {key}:
                del entries[other]
            try:
                _convert(alone, path, kind)
            except msgspec.ValidationError as error:
                if str(error) == problem:
                    return _named([*parts[:index], key, *parts[index + 1 :]], problem, given, path, kind)
    return parts


def _at(given: dict[str, Any], parts: list[str]) -> dict[str, Any]:
    for part in parts:
        given = given[part]
    return given


def _line(text: str, wanted: list[str]) -> int:
    """Return the line on which a field, or the nearest table above it, stands; 0 when neither is there."""
    section: list[str] = []
    best, depth = 0, 0
    for number, line in enumerate(text.splitlines(), 1):
        header = re.match(r"\s*\[+([^\]]+)\]+", line)
        key = re.match(r"""\s*(?:"([^"]+)"|'([^']+)'|([^"'=\s]+))\s*=""", line)
        if header:
            section = [
                "".join(part) for part in re.findall(r"""\s*(?:"([^"]+)"|'([^']+)'|([^"'.\s]+))""", header.group(1))
            ]
            here = section
        elif key:
            here = [*section, *([key.group(1) or key.group(2)] if key.group(3) is None else key.group(3).split("."))]
        else:
            continue
        shared = min(len(here), len(wanted))
        if here[:shared] == wanted[:shared] and shared > depth:
            best, depth = number, shared
    return best
