"""dbt's models that read a table of the lake, by the manifest that dbt leaves of each run: `dbt/target/manifest.json` beside the
lake's file.

A model reads a table when a source of its project is that table (`headrace lake sources --dbt`), or when it reads a model that
does. The file is read again when it has changed, and of it what this needs alone; of one that is too large or is no manifest,
that is said in place of models. Called by the details of a table.
"""

from collections import defaultdict
from pathlib import Path
from typing import Any

import msgspec

from headrace.formats import UNREADABLE

#: Beside the lake's file.
PLACE = "dbt/target/manifest.json"
_MOST_BYTES, _MOST_MODELS, _LONGEST_NAME = 64_000_000, 5, 200
#: The databases of a lake whose tables are made of one of its own.
_DATABASES = ("silver", "silver_live", "valid", "history")


class _Needs(msgspec.Struct):
    nodes: list[str] = []


class _Settings(msgspec.Struct):
    materialized: str = ""


class _Node(msgspec.Struct):
    name: str = ""
    resource_type: str = ""
    depends_on: _Needs = msgspec.field(default_factory=_Needs)
    config: _Settings = msgspec.field(default_factory=_Settings)


class _Source(msgspec.Struct):
    schema: str = ""
    identifier: str = ""


class _Manifest(msgspec.Struct):
    nodes: dict[str, _Node]
    sources: dict[str, _Source]


class DbtModels:
    """What the manifest has; a file that is not there has no models."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._mark: Any = None
        self._manifest: _Manifest | None = None
        self._problem = ""

    def of(self, name: str) -> tuple[tuple[str, str], ...]:
        """Return the models that read a table, by its name in SQL, as the picture of lineage has them: nearest first."""
        self._read()
        if self._problem:
            return (("dbt.manifest.json", self._problem),)
        if self._manifest is None or not name:
            return ()
        readers = defaultdict(list)
        for key, node in self._manifest.nodes.items():
            for needed in node.depends_on.nodes:
                readers[needed].append(key)
        reached = [
            key
            for key, source in self._manifest.sources.items()
            if source.schema in _DATABASES and source.identifier.casefold() == name.casefold()
        ]
        models: dict[str, _Node] = {}
        # It grows while it is walked: what reads what was reached is reached.
        seen = set(reached)
        for key in reached:
            model = self._manifest.nodes.get(key)
            if model is not None and model.resource_type == "model":
                models[key] = model
            for reader in readers[key]:
                if reader not in seen:
                    seen.add(reader)
                    reached.append(reader)
        shown = [
            (f"dbt.{node.name[:_LONGEST_NAME]}", node.config.materialized[:_LONGEST_NAME]) for node in models.values()
        ]
        if len(shown) > _MOST_MODELS:
            return (*shown[: _MOST_MODELS - 1], ("dbt.…", f"and {len(shown) - _MOST_MODELS + 1} more models"))
        return tuple(shown)

    def _read(self) -> None:
        try:
            if not self._file.is_file():
                self._mark, self._manifest, self._problem = None, None, ""
                return
            stat = self._file.stat()
            mark = stat.st_mtime_ns, stat.st_size, stat.st_ino
            if mark == self._mark:
                return
            self._manifest = None
            if stat.st_size > _MOST_BYTES:
                self._problem = f"is larger than {_MOST_BYTES // 1_000_000} MB"
            else:
                self._manifest, self._problem = msgspec.json.decode(self._file.read_bytes(), type=_Manifest), ""
            self._mark = mark
        except OSError as error:
            self._mark, self._problem = None, f"cannot be read: {error.strerror or type(error).__name__}"
        except UNREADABLE:
            self._mark, self._problem = mark, "is no manifest of dbt's"
