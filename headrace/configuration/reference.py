"""The reference of every field, as Markdown for docs/configuration.md, and as JSON Schema for editors."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from headrace.configuration import units
from headrace.configuration.bridge import BridgeFile
from headrace.configuration.edge import EdgeFile
from headrace.configuration.fields import Table, comments_of, tables
from headrace.configuration.lake import LakeFile
from headrace.configuration.load import File
from headrace.configuration.secret import Secret

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
- A field with a unit can be given as text without it: `heartbeat = "10s"` is `heartbeat_seconds = 10`, `size = "64KiB"` is
  `kilobytes = 64`. Units are `ms`, `s`, `min`, `h`, `d`; `KiB`, `MiB`, `GiB`, `TiB` (`KB` and `k` mean the same). Airflow reads
  `[spark]`, `[verify]` and sections called `schedule` by itself: these take the fields with units, and no references.
- `headrace config check FILE` checks a file without connecting to anything, `headrace config show FILE` prints all values and
  where each comes from, and `headrace config schema edge|bridge|lake` prints a JSON Schema for editors.
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
    made: dict[str, Any] = msgspec.json.schema(kind, schema_hook=_custom)
    for name, definition in made["$defs"].items():
        if "properties" in definition:
            _described(definition, _class_named(kind, name))
    made["$defs"][kind.__name__]["properties"].pop("path")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": f"Headrace: {kind.__name__}", **made}


def _custom(kind: type) -> dict[str, Any]:
    if kind is Secret:
        return {"type": "string", "pattern": _FROM_ELSEWHERE}
    if kind is Path:
        return {"type": "string", "minLength": 1}
    raise NotImplementedError(kind)


def _class_named(kind: type[File], name: str) -> type:
    found = {table_class.__name__: table_class for table_class in _classes(msgspec.inspect.type_info(kind))}
    return found[name]


def _classes(kind: Any) -> list[type]:
    if isinstance(kind, msgspec.inspect.StructType):
        return [kind.cls, *(inner for field in kind.fields for inner in _classes(field.type))]
    inside = getattr(kind, "types", ()) or [
        each for each in (getattr(kind, name, None) for name in ("type", "item_type", "value_type")) if each is not None
    ]
    return [inner for each in inside for inner in _classes(each)]


def _described(definition: dict[str, Any], cls: type) -> None:
    """Add comments, references in place of values, and the names without units."""
    comments, properties = comments_of(cls), definition["properties"]
    for name, each in list(properties.items()):
        about = {"description": comments[name]} if comments.get(name) else {}
        if each.get("type") in {"integer", "number", "boolean"} or "pattern" in each or "enum" in each:
            default = {"default": each.pop("default")} if "default" in each else {}
            properties[name] = {"anyOf": [each, {"type": "string", "pattern": _REFERENCE}]} | default | about
        else:
            each.update(about)
        if named := units.plain_name(name):
            properties[named[0]] = {"type": "string", "description": f"{name} as text with its unit."}
