"""What is wrong with a file, in words: file, line, field, rule, and the nearest name where one is unknown.

msgspec reports the field as `$.source.name` or `$.streams[...].topic`, and a rule with a regular expression; people get neither.
"""

import copy
import difflib
import os
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from msgspec import inspect

from headrace.configuration import value_types
from headrace.configuration.secret import Secret
from headrace.configuration.value_types import IN_WORDS

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


def resolve(document: Mapping[str, Any], kind: type, folder: Path) -> Resolved:
    """Return a file's values as its fields take them; raise TextError where a reference or a unit is wrong."""
    resolved = Resolved({})
    resolved.values = _section(document, inspect.type_info(kind), (), _Reading(folder, resolved))
    return resolved


@dataclass
class _Reading:
    folder: Path
    resolved: Resolved


def _section(table: Mapping[str, Any], kind: inspect.Type, place: Place, reading: _Reading) -> dict[str, Any]:
    assert isinstance(kind, inspect.StructType)
    if getattr(kind.cls, "VERBATIM", False):
        # Airflow's DAGs read this section by themselves, with the standard library alone.
        return dict(table)
    fields = {each.encode_name: each.type for each in kind.fields}
    plain = {
        with_unit[0]: (name, with_unit[1]) for name in fields if (with_unit := value_types.plain_name(name)) is not None
    }
    values: dict[str, Any] = {}
    for name, value in table.items():
        here = (*place, name)
        if name in fields or name not in plain:
            values[name] = _value(value, fields.get(name), here, reading) if name in fields else value
            continue
        full, unit = plain[name]
        if full in table:
            raise TextError(here, f"give either '{name}' or '{full}', not both")
        text = _follow(value, here, reading) if isinstance(value, str) else value
        if not isinstance(text, str):
            raise TextError(here, f'is given as text with its unit, such as {name} = "{_example(unit)}"')
        try:
            values[full] = value_types.convert(text, unit)
        except ValueError as error:
            raise TextError(here, str(error)) from error
        reading.resolved.renamed[*place, full] = name
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
    text = _follow(value, place, reading)
    takes_text = any(isinstance(kind, inspect.StrType | inspect.CustomType | inspect.LiteralType) for kind in kinds)
    return text if text is value or takes_text else _number(text)


def _follow(text: str, place: Place, reading: _Reading) -> str:
    """Return what a reference leads to; the text itself when it is none."""
    kind, _, name = text.partition(":")
    if kind not in {"env", "file"} or not name or name.startswith("/" * 2):
        return text
    reading.resolved.origins[place] = text
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


_KINDS = {"str": "a text", "int": "a whole number", "float": "a number", "bool": "true or false", "array": "a list"}
_KINDS |= {"object": "a section", "null": "nothing"}


def explain(
    problem: str,
    text: str,
    document: dict[str, Any],
    kind: type,
    renamed: dict[Place, str],
    convert: Callable[..., Any],
) -> tuple[int, str]:
    """Return the line of a problem that msgspec found, 0 where it is not known, and the problem in words."""
    rule, _, where = problem.partition(" - at `")
    if where.startswith("key` in `"):
        # A key itself is wrong: it is one of those of the table that is named.
        where = where.removeprefix("key` in `") + "[...]"
    parts = re.findall(r"[^.\[\]]+|\[\.\.\.\]|\[\d+\]", where.replace("`", "").removeprefix("$"))
    parts = _name_parts(parts, problem, document, convert)
    unknown = re.search(r"unknown field `([^`]+)`", rule)
    missing = re.search(r"missing required field `([^`]+)`", rule)
    if unknown:
        rule = f"there is no field '{unknown[1]}' here{_suggestion(unknown[1], _fields(kind, parts))}"
        parts.append(unknown[1])
    elif missing:
        rule = "this required field is missing"
        parts.append(missing[1])
    else:
        rule = _in_words(rule)
    as_written = [*parts[:-1], renamed.get(tuple(parts), parts[-1])] if parts else parts
    return line_of(text, as_written), f"{'.'.join(as_written) or 'the file'}: {rule}"


def _in_words(rule: str) -> str:
    pattern = re.fullmatch(r"Expected `str` matching regex (.+)", rule)
    if pattern:
        # msgspec shows the expression as Python would.
        expression = next((each for each in IN_WORDS if pattern[1] in {repr(each), f"'{each}'"}), None)
        return f"expected {IN_WORDS[expression]}" if expression else rule
    kind = re.fullmatch(r"Expected `([a-z| ]+)`, got `([a-z]+)`", rule)
    if kind:
        kinds = " or ".join(
            _KINDS.get(each.strip(), each.strip()) for each in kind[1].split("|") if each.strip() != "null"
        )
        return f"expected {kinds}, not {_KINDS.get(kind[2], kind[2])}"
    bound = re.fullmatch(r"Expected `(?:int|float)` (>=|<=|>|<) (\S+)", rule)
    if bound:
        words = {">=": "at least", "<=": "at most", ">": "more than", "<": "less than"}
        return f"expected {words[bound[1]]} {bound[2]}"
    if re.fullmatch(r"Expected `(array|object)` of length >= 1", rule):
        return "expected at least one entry"
    if re.fullmatch(r"Expected `str` of length >= 1", rule):
        return "expected a text that is not empty"
    return rule


def _suggestion(name: str, fields: list[str]) -> str:
    near = difflib.get_close_matches(name, fields, n=1, cutoff=0.6)
    if near:
        return f"; did you mean '{near[0]}'?"
    return f"; there are {', '.join(fields)}" if fields else ""


def _fields(kind: type, parts: Sequence[str]) -> list[str]:
    """Return the names of the fields that a section of a file may have."""
    section: inspect.Type | None = inspect.type_info(kind)
    for part in parts:
        section = _inside(section, part)
    structs = [each for each in _alternatives(section) if isinstance(each, inspect.StructType)]
    names = [field.encode_name for struct in structs for field in struct.fields if field.encode_name != "path"]
    return sorted({*names, *(with_unit[0] for name in names if (with_unit := value_types.plain_name(name)))})


def _inside(kind: inspect.Type | None, part: str) -> inspect.Type | None:
    for each in _alternatives(kind):
        if isinstance(each, inspect.StructType):
            return next((field.type for field in each.fields if field.encode_name == part), None)
        if isinstance(each, inspect.DictType):
            return each.value_type
        if isinstance(each, inspect.ListType):
            return each.item_type
    return None


def _alternatives(kind: inspect.Type | None) -> tuple[inspect.Type | None, ...]:
    if isinstance(kind, inspect.Metadata):
        return _alternatives(kind.type)
    return tuple(kind.types) if isinstance(kind, inspect.UnionType) else (kind,)


def _name_parts(parts: list[str], problem: str, document: dict[str, Any], convert: Callable[..., Any]) -> list[str]:
    """Return the parts with each `[...]` replaced by the key meant: the one that alone still has the problem."""
    for index, part in enumerate(parts):
        if part != "[...]":
            continue
        for key in _at(document, parts[:index]):
            alone = copy.deepcopy(document)
            entries = _at(alone, parts[:index])
            for other in set(entries) - {key}:
                del entries[other]
            try:
                convert(alone)
            except msgspec.ValidationError as error:
                if str(error) == problem:
                    return _name_parts([*parts[:index], key, *parts[index + 1 :]], problem, document, convert)
    return parts


def _at(table: dict[str, Any], parts: list[str]) -> dict[str, Any]:
    for part in parts:
        table = table[part]
    return table


def line_of(text: str, place: Sequence[str]) -> int:
    """Return the line of a field, or of the nearest table above it; 0 when the file has neither."""
    section: list[str] = []
    best, depth = 0, 0
    place = list(place)
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
        shared = min(len(here), len(place))
        if here[:shared] == place[:shared] and shared > depth:
            best, depth = number, shared
    return best
