"""Every field of a configuration file, from the classes: name, type, default, unit and the comment above it.

`headrace config reference`, `schema` and the documentation are made of this, so none of them can lag behind the code.
"""

import ast
import inspect as python
import json
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from msgspec import NODEFAULT, inspect

from headrace.configuration import units
from headrace.configuration.names import IN_WORDS
from headrace.configuration.secret import Secret

#: The part of a name that the file's writer chooses, by the section that is made of such names.
_CHOSEN = {
    "streams": "NAME",
    "deliveries": "NAME",
    "sources": "REGION/NAME",
    "tables": "SCHEMA.TABLE",
    "identities": "COMMON-NAME",
    "receivers": "COMMON-NAME",
}


@dataclass(frozen=True, kw_only=True)
class Field:
    """One field; `place` is `streams.NAME.topic` for one of a section that the writer names."""

    place: str
    #: What it takes, in words.
    takes: str
    #: As TOML writes it; empty when there is none.
    default: str
    required: bool
    #: How it can be given with a unit as text, `heartbeat = "10s"`; empty where it has no unit.
    as_text: str
    about: str


@dataclass(frozen=True, kw_only=True)
class Table:
    """A section of a file and its fields, those of sections inside it apart."""

    place: str
    about: str
    fields: tuple[Field, ...]


def tables(kind: type) -> list[Table]:
    """Return all sections of a file, the file's own fields first, in the order of the classes."""
    return list(_tables(inspect.type_info(kind), ""))


def _tables(struct: inspect.Type, place: str) -> Iterator[Table]:
    assert isinstance(struct, inspect.StructType)
    comments, fields, inner = comments_of(struct.cls), [], []
    for each in struct.fields:
        if each.encode_name == "path" and not place:
            continue
        here = f"{place}.{each.encode_name}" if place else each.encode_name
        sections = list(_sections(each.type, here, each.encode_name))
        inner += sections
        if sections and not _takes_more(each.type):
            continue
        fields.append(_field(each, here, comments.get(each.encode_name, "")))
    yield Table(place=place, about=_about(struct.cls), fields=tuple(fields))
    for kind, there in inner:
        yield from _tables(kind, there)


def _sections(kind: inspect.Type, place: str, name: str) -> Iterator[tuple[inspect.Type, str]]:
    for each in _alternatives(kind):
        if isinstance(each, inspect.StructType):
            yield each, place
        elif isinstance(each, inspect.DictType):
            yield from _sections(each.value_type, f"{place}.{_CHOSEN.get(name, 'NAME')}", name)
        elif isinstance(each, inspect.ListType):
            yield from _sections(each.item_type, f"{place}[]", name)


def _takes_more(kind: inspect.Type) -> bool:
    """Whether a field takes something else than a section, or sections, or nothing."""
    return any(
        not isinstance(each, inspect.StructType | inspect.NoneType) and not list(_sections(each, "", ""))
        for each in _alternatives(kind)
    )


def _field(field: inspect.Field, place: str, about: str) -> Field:
    default: Any = field.default
    if default is NODEFAULT and field.default_factory is not NODEFAULT:
        default = field.default_factory()
    named = units.plain_name(field.encode_name)
    return Field(
        place=place,
        takes=words(field.type),
        default="" if default is NODEFAULT or default is None else json.dumps(default, default=str),
        required=field.required,
        as_text=named[0] if named else "",
        about=about,
    )


def _alternatives(kind: inspect.Type) -> tuple[inspect.Type, ...]:
    if isinstance(kind, inspect.Metadata):
        return _alternatives(kind.type)
    return tuple(kind.types) if isinstance(kind, inspect.UnionType) else (kind,)


def words(kind: inspect.Type) -> str:
    """Return what a field takes, in words."""
    found = [_words(each) for each in _alternatives(kind) if not isinstance(each, inspect.NoneType)]
    return ", or ".join(found)


def _words(kind: inspect.Type) -> str:  # noqa: PLR0911 - a case for each type.
    if isinstance(kind, inspect.LiteralType):
        return "one of " + ", ".join(json.dumps(value) for value in kind.values)
    if isinstance(kind, inspect.BoolType):
        return "true or false"
    if isinstance(kind, inspect.IntType | inspect.FloatType):
        return ("whole number" if isinstance(kind, inspect.IntType) else "number") + _bounds(kind)
    if isinstance(kind, inspect.StrType):
        return IN_WORDS.get(kind.pattern or "", "text")
    if isinstance(kind, inspect.CustomType):
        return "secret: env:NAME, file:PATH or command:PROGRAM" if kind.cls is Secret else "path of a file"
    if isinstance(kind, inspect.ListType):
        return f"list of: {words(kind.item_type)}"
    if isinstance(kind, inspect.DictType):
        return f"table: {words(kind.key_type)} = {words(kind.value_type)}"
    return "section"


def _bounds(kind: inspect.IntType | inspect.FloatType) -> str:
    least = f"at least {kind.ge}" if kind.ge is not None else f"more than {kind.gt}" if kind.gt is not None else ""
    most = f"at most {kind.le}" if kind.le is not None else f"less than {kind.lt}" if kind.lt is not None else ""
    both = " and ".join(filter(None, (least, most)))
    return f", {both}" if both else ""


def _about(cls: type) -> str:
    return " ".join((cls.__doc__ or "").split())


@cache
def comments_of(cls: type) -> dict[str, str]:
    """Return the `#:` comment above each field of a class and of those that it extends."""
    found: dict[str, str] = {}
    for each in reversed(cls.__mro__):
        if each.__module__.startswith("headrace."):
            found |= _comments(each)
    return found


def _comments(cls: type) -> dict[str, str]:
    source = Path(python.getfile(cls)).read_text(encoding="utf-8")
    lines = source.splitlines()
    definition = next(
        node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef) and node.name == cls.__name__
    )
    found = {}
    for node in definition.body:
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        above: list[str] = []
        number = node.lineno - 2
        while number >= 0 and lines[number].strip().startswith("#:"):
            above.insert(0, lines[number].strip().removeprefix("#:").strip())
            number -= 1
        found[node.target.id] = textwrap.dedent(" ".join(above))
    return found
