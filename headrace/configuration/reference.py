"""The reference of every field, as Markdown for docs/configuration.md, and as JSON Schema for editors.

What a field may hold is read from its type: pattern, bounds, choices, default and unit.
"""

import ast
import inspect as python
import json
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from msgspec import NODEFAULT, inspect

from headrace.configuration import value_types
from headrace.configuration.bridge import BridgeFile
from headrace.configuration.edge import EdgeFile
from headrace.configuration.lake import LakeFile
from headrace.configuration.load import File
from headrace.configuration.secret import Secret
from headrace.configuration.value_types import IN_WORDS

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
    with_unit = value_types.plain_name(field.encode_name)
    return Field(
        place=place,
        takes=words(field.type),
        default="" if default is NODEFAULT or default is None else json.dumps(default, default=str),
        required=field.required,
        as_text=with_unit[0] if with_unit else "",
        about=about,
    )


def _alternatives(kind: inspect.Type) -> tuple[inspect.Type, ...]:
    if isinstance(kind, inspect.Metadata):
        return _alternatives(kind.type)
    return tuple(kind.types) if isinstance(kind, inspect.UnionType) else (kind,)


def words(kind: inspect.Type) -> str:
    """Return what a field takes, in words."""
    kinds = [_words(each) for each in _alternatives(kind) if not isinstance(each, inspect.NoneType)]
    return ", or ".join(kinds)


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
    comments: dict[str, str] = {}
    for each in reversed(cls.__mro__):
        if each.__module__.startswith("headrace."):
            comments |= _comments(each)
    return comments


def _comments(cls: type) -> dict[str, str]:
    source = Path(python.getfile(cls)).read_text(encoding="utf-8")
    lines = source.splitlines()
    definition = next(
        node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef) and node.name == cls.__name__
    )
    comments = {}
    for node in definition.body:
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        above: list[str] = []
        number = node.lineno - 2
        while number >= 0 and lines[number].strip().startswith("#:"):
            above.insert(0, lines[number].strip().removeprefix("#:").strip())
            number -= 1
        comments[node.target.id] = textwrap.dedent(" ".join(above))
    return comments


KINDS: Mapping[str, type[File]] = {"edge": EdgeFile, "bridge": BridgeFile, "lake": LakeFile}

_REFERENCE = "^(env|file):.+"
_FROM_ELSEWHERE = "^(env|file|command):.+"
_HEAD = """# Configuration

Every field of the three files, made from the classes that read them (`headrace config reference`); do not edit it by hand.

- Any text may be `env:NAME`, an environment variable, or `file:PATH`, a file's content; so may a number or `true`. Paths are
  relative to the configuration file. Secrets (passwords, tokens, keys of hashes) are given in no other way, and are read when
  needed.
- A secret may also be `command:PROGRAM ARGUMENTS`: what the program prints, in one line, such as
  `command:aws rds generate-db-auth-token --hostname db.example --port 5432 --username headrace`. It is run without a shell, in
  the folder of the file; `[commands]` has its time limit and how long its answer is used. One that fails or hangs is run again
  with the next attempt to connect. Its arguments and what it prints are in no log.
- Deprecated, gone in release 0.3: a field with a unit as text without it, `heartbeat = "10s"` for `heartbeat_seconds = 10`,
  `size = "64KiB"` for `kilobytes = 64`. Units are `ms`, `s`, `min`, `h`, `d`; `KiB`, `MiB`, `GiB`, `TiB` (`KB` and `k` mean the
  same). Airflow reads `[spark]`, `[verify]` and sections called `schedule` by itself: these take the fields with units, and no
  references.
- `headrace config check FILE` checks a file without connecting to anything, and names what is deprecated in it;
  `headrace config show FILE` prints all values and where each comes from, and `headrace config schema edge|bridge|lake` prints a
  JSON Schema for editors.
- `profile = "production"` at the top of a file refuses what is only good for trials: connections without TLS or without a check
  of the server's certificate, and topics with fewer than three replicas.
"""


def markdown() -> str:
    """Return the whole reference."""
    parts = [_HEAD]
    for name, kind in KINDS.items():
        parts.append(f"\n## The file of {'an' if name == 'edge' else 'a'} {name}\n")
        parts += [_section(table) for table in tables(kind) if table.fields]
    return "".join(parts)


def _section(table: Table) -> str:
    lines = [f"\n### `[{table.place}]`\n" if table.place else "\n### At the top\n"]
    if table.place and table.about:
        lines.append(f"\n{_cell(table.about)}\n")
    lines.append("\n| field | takes | default | |\n|---|---|---|---|\n")
    for field in table.fields:
        name = field.place.removeprefix(f"{table.place}.")
        shown = f"`{name}`" + (f", or `{field.as_text}`" if field.as_text and "schedule" not in field.place else "")
        default = "**required**" if field.required else f"`{_cell(field.default)}`" if field.default else ""
        lines.append(f"| {shown} | {_cell(field.takes)} | {default} | {_cell(field.about)} |\n")
    return "".join(lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def schema(kind: type[File]) -> dict[str, Any]:
    """Return the JSON Schema of a file, for editors that complete and check TOML by one."""
    document: dict[str, Any] = msgspec.json.schema(kind, schema_hook=_custom)
    for name, definition in document["$defs"].items():
        if "properties" in definition:
            _describe(definition, _class_named(kind, name))
    document["$defs"][kind.__name__]["properties"].pop("path")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"Headrace: {kind.__name__}",
        **document,
    }


def _custom(kind: type) -> dict[str, Any]:
    if kind is Secret:
        return {"type": "string", "pattern": _FROM_ELSEWHERE}
    if kind is Path:
        return {"type": "string", "minLength": 1}
    raise NotImplementedError(kind)


def _class_named(kind: type[File], name: str) -> type:
    classes = {table_class.__name__: table_class for table_class in _classes(msgspec.inspect.type_info(kind))}
    return classes[name]


def _classes(kind: Any) -> list[type]:
    if isinstance(kind, msgspec.inspect.StructType):
        return [kind.cls, *(inner for field in kind.fields for inner in _classes(field.type))]
    inside = getattr(kind, "types", ()) or [
        each for each in (getattr(kind, name, None) for name in ("type", "item_type", "value_type")) if each is not None
    ]
    return [inner for each in inside for inner in _classes(each)]


def _describe(definition: dict[str, Any], cls: type) -> None:
    """Add comments, references in place of values, and the names without units."""
    comments, properties = comments_of(cls), definition["properties"]
    for name, each in list(properties.items()):
        about = {"description": comments[name]} if comments.get(name) else {}
        if each.get("type") in {"integer", "number", "boolean"} or "pattern" in each or "enum" in each:
            default = {"default": each.pop("default")} if "default" in each else {}
            properties[name] = {"anyOf": [each, {"type": "string", "pattern": _REFERENCE}]} | default | about
        else:
            each.update(about)
        if with_unit := value_types.plain_name(name):
            properties[with_unit[0]] = {"type": "string", "description": f"{name} as text with its unit."}
