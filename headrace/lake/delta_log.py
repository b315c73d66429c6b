"""A Delta table at a version, by its log: the files that it consists of, with their deletion vectors, and its columns.

Begins at the newest checkpoint that is not behind the version, and applies the commits since.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from headrace.errors import NeedsOperator
from headrace.lake.storage import Storage

_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10}))?\.parquet")
#: What tables of the lake may need of a reader; `checkConstraints` and the like concern writers alone.
_READ = {"deletionVectors", "columnMapping", "typeWidening", "typeWidening-preview", "timestampNtz"}
_READ |= {"vacuumProtocolCheck"}
#: Above this a table lists its features by name.
_BY_NAME = 3

Action = dict[str, Any]


@dataclass(frozen=True)
class DataFile:
    """A Parquet file of a table."""

    #: Path under the lake's root.
    path: str
    #: Descriptor of its deletion vector; None when no row of it is deleted.
    deleted: Action | None


@dataclass(frozen=True)
class TableVersion:
    """A table at a version."""

    version: int
    files: tuple[DataFile, ...]
    #: Columns, as JSON of Delta's.
    schema: str


def newest(storage: Storage, table: str) -> int | None:
    """Return the newest version of a table; None when there is no such table."""
    return max((int(m[1]) for name in _names(storage, table) if (m := _COMMIT.fullmatch(name))), default=None)


def read(storage: Storage, table: str, version: int) -> TableVersion:
    """Return a table at a version; raise NeedsOperator when its log has that no more, or the table needs another reader."""
    files: dict[tuple[str, str], Action] = {}
    schema: str | None = None
    for action in _actions(storage, table, version):
        if (protocol := action.get("protocol")) is not None:
            _refuse_others(storage, table, protocol)
        if (metadata := action.get("metaData")) is not None:
            if metadata.get("partitionColumns"):
                raise NeedsOperator(f"{storage.root}/{table} is partitioned, and cannot be read here")
            schema = metadata["schemaString"]
        for change in ("remove", "add"):
            if (file := action.get(change)) is not None:
                key = (file["path"], _id(file.get("deletionVector")))
                if change == "add":
                    files[key] = file
                else:
                    files.pop(key, None)
    if schema is None:
        raise _gone(storage, table, version)
    return TableVersion(
        version=version,
        schema=schema,
        files=tuple(
            DataFile(f"{table}/{unquote(file['path'])}", file.get("deletionVector")) for file in files.values()
        ),
    )


def _actions(storage: Storage, table: str, version: int) -> Iterator[Action]:
    """Yield what the log has of a table up to a version, in order."""
    log, names = f"{table}/_delta_log", _names(storage, table)
    checkpoints: dict[int, list[str]] = {}
    for name in names:
        if (match := _CHECKPOINT.fullmatch(name)) and int(match[1]) <= version:
            checkpoints.setdefault(int(match[1]), []).append(name)
    begin = -1
    for number in sorted(checkpoints, reverse=True):
        parts = sorted(checkpoints[number])
        match = _CHECKPOINT.fullmatch(parts[0])
        if match and int(match[3] or 1) == len(parts):
            begin = number
            for part in parts:
                yield from _checkpoint(storage, f"{log}/{part}")
            break
    commits = {int(match[1]): name for name in names if (match := _COMMIT.fullmatch(name))}
    for number in range(begin + 1, version + 1):
        if number not in commits:
            raise _gone(storage, table, version)
        for line in storage.read(f"{log}/{commits[number]}").decode().splitlines():
            if line.strip():
                yield json.loads(line)


def _checkpoint(storage: Storage, path: str) -> Iterator[Action]:
    import pyarrow.parquet as pq  # noqa: PLC0415 - an extra.

    with storage.opened(path) as opened, pq.ParquetFile(opened) as file:
        # Statistics are most of it, and nothing here needs them.
        columns = [
            leaf
            for leaf in (file.schema.column(place).path for place in range(len(file.schema)))
            if leaf.partition(".")[0] in {"protocol", "metaData", "add"} and ".stats" not in leaf
        ]
        for batch in file.iter_batches(columns=columns):
            for row in batch.to_pylist():
                yield {name: value for name, value in row.items() if value is not None}


def _names(storage: Storage, table: str) -> list[str]:
    return storage.names(f"{table}/_delta_log")


def _id(vector: Action | None) -> str:
    """Return by what a file with this deletion vector is told from the same file with another one."""
    return "" if vector is None else f"{vector['storageType']}{vector['pathOrInlineDv']}@{vector.get('offset')}"


def _refuse_others(storage: Storage, table: str, protocol: Action) -> None:
    needed = set(protocol.get("readerFeatures") or [])
    if int(protocol["minReaderVersion"]) > _BY_NAME or needed - _READ:
        listed = ", ".join(sorted(needed - _READ)) or f"reader version {protocol['minReaderVersion']}"
        raise NeedsOperator(
            f"{storage.root}/{table} needs a reader that knows {listed}", hint="Read it with Spark, or a newer release."
        )


def _gone(storage: Storage, table: str, version: int) -> NeedsOperator:
    return NeedsOperator(
        f"{storage.root}/{table}: version {version} is in its log no more",
        hint="Maintenance keeps what was published within [lake] keep_days. Ask for a newer state.",
    )
