"""Values of a file's texts, put in before the file is checked: `env:NAME`, `file:PATH`, and fields without their unit.

Secrets keep their references, which are followed when they are needed. Called by load.py.
"""

import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec import inspect

from headrace.configuration import units
from headrace.configuration.secret import Secret

Place = tuple[str, ...]
#: `extra` of a field's type that takes URIs: `file:` is one of their schemes there, not a reference.
URI = {"uri": True}


class TextError(ValueError):
    """A text leads nowhere, or is not what its field takes; `place` is where it is in the file."""

    def __init__(self, place: Place, message: str) -> None:
        super().__init__(message)
        self.place = place


@dataclass
class Resolved:
    """A file's values with all references followed."""

    values: dict[str, Any]
    #: Where a value came from, if not from the file's own text: `env:NAME` or `file:PATH`, by field.
    origins: dict[Place, str] = field(default_factory=dict)
    #: Fields that were given by another name, by the field, and the name that the file has.
    renamed: dict[Place, str] = field(default_factory=dict)


def resolve(given: Mapping[str, Any], kind: type, folder: Path) -> Resolved:
    """Return a file's values as its fields take them; raise TextError where a reference or a unit is wrong."""
    found = Resolved({})
    found.values = _section(given, inspect.type_info(kind), (), _Reading(folder, found))
    return found


@dataclass
class _Reading:
    folder: Path
    found: Resolved


def _section(given: Mapping[str, Any], wanted: inspect.Type, place: Place, reading: _Reading) -> dict[str, Any]:
    assert isinstance(wanted, inspect.StructType)
    if getattr(wanted.cls, "VERBATIM", False):
        # Airflow's DAGs read this section by themselves, with the standard library alone.
        return dict(given)
    fields = {each.encode_name: each.type for each in wanted.fields}
    plain = {named[0]: (name, named[1]) for name in fields if (named := units.plain_name(name)) is not None}
    values: dict[str, Any] = {}
    for name, value in given.items():
        here = (*place, name)
        if name in fields or name not in plain:
            values[name] = _value(value, fields.get(name), here, reading) if name in fields else value
            continue
        full, unit = plain[name]
        if full in given:
            raise TextError(here, f"give either '{name}' or '{full}', not both")
        text = _followed(value, here, reading) if isinstance(value, str) else value
        if not isinstance(text, str):
            raise TextError(here, f'is given as text with its unit, such as {name} = "{_example(unit)}"')
        try:
            values[full] = units.converted(text, unit)
        except ValueError as error:
            raise TextError(here, str(error)) from error
        reading.found.renamed[*place, full] = name
    return values


def _value(value: Any, wanted: inspect.Type | None, place: Place, reading: _Reading) -> Any:
    if isinstance(wanted, inspect.Metadata):
        if wanted.extra == URI:
            return value
        wanted = wanted.type
    kinds = wanted.types if isinstance(wanted, inspect.UnionType) else (wanted,)
    if isinstance(value, str):
        return _text(value, kinds, place, reading)
    for kind in kinds:
        if isinstance(value, dict) and isinstance(kind, inspect.StructType):
            return _section(value, kind, place, reading)
        if isinstance(value, dict) and isinstance(kind, inspect.DictType):
            return {key: _value(each, kind.value_type, (*place, key), reading) for key, each in value.items()}
        if isinstance(value, list) and isinstance(kind, inspect.ListType):
            return [_value(each, kind.item_type, place, reading) for each in value]
    return value


def _text(value: str, kinds: Sequence[inspect.Type | None], place: Place, reading: _Reading) -> Any:
    if any(isinstance(kind, inspect.CustomType) and kind.cls is Secret for kind in kinds):
        return value
    text = _followed(value, place, reading)
    takes_text = any(isinstance(kind, inspect.StrType | inspect.CustomType | inspect.LiteralType) for kind in kinds)
    return text if text is value or takes_text else _number(text)


def _followed(text: str, place: Place, reading: _Reading) -> str:
    """Return what a reference leads to; the text itself when it is none."""
    kind, _, name = text.partition(":")
    if kind not in {"env", "file"} or not name or name.startswith("/" * 2):
        return text
    reading.found.origins[place] = text
    if kind == "env":
        if name not in os.environ:
            raise TextError(place, f"environment variable {name} is not set")
        return os.environ[name]
    path = reading.folder / name
    try:
        return path.read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise TextError(place, f"{path} cannot be read: {reason}") from error


def _number(text: str) -> Any:
    """Return what a text from elsewhere means for a field that takes no text: a number or a boolean, as TOML writes it."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _example(unit: str) -> str:
    return {"megabytes": "64MiB", "kilobytes": "64KiB", "days": "7d", "hours": "2h", "minutes": "5min"}.get(unit, "30s")
