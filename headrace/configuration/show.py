"""The values of a file, defaults included, and where each comes from. Secrets stay references."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from headrace.configuration.explain import line_of
from headrace.configuration.lake import is_reference, is_secret
from headrace.configuration.load import File
from headrace.configuration.secret import Secret
from headrace.configuration.texts import Place, Resolved


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
