"""A Delta table at a version, by its log: the files that it consists of, which of their rows are deleted, and its columns.

Begins at the newest checkpoint that is not behind the version, and applies the commits since.

Delta's protocol, "Deletion Vector Format": a descriptor has the vector itself (storage type `i`) or names a place in a file
(`u`: by a UUID, under the table). A vector is a magic number and 32-bit Roaring bitmaps, each with the upper half of its numbers.
"""

import json
import re
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote
from uuid import UUID

from headrace.errors import CorruptInput, NeedsOperator
from headrace.lake.storage import Storage

_MAGIC = 1681511377
#: Roaring's cookies, of bitmaps without runs and with them.
_PLAIN, _WITH_RUNS = 12346, 12347
#: Containers with more numbers are bitmaps of 8,192 bytes; with fewer containers than this, those with runs have no offsets.
_ARRAY_MOST, _OFFSETS_FROM = 4096, 4
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_UUID_LENGTH = 20


def deleted_rows(storage: Storage, table: str, descriptor: dict[str, Any]) -> Iterator[int]:
    """Yield the numbers of deleted rows; raise CorruptInput for bytes that are no vector."""
    kind, text, size = descriptor["storageType"], descriptor["pathOrInlineDv"], int(descriptor["sizeInBytes"])
    if kind == "i":
        vector = _z85(text)[:size]
    elif (path := vector_path(table, descriptor)) is not None:
        with storage.opened(path) as file:
            file.seek(int(descriptor.get("offset") or 0))
            # Its size, as the descriptor has it, is ahead of it, and a checksum behind it.
            (written,) = struct.unpack(">I", file.read(4))
            vector = bytes(file.read(size))
        if written != size:
            raise CorruptInput(f"{storage.root}/{path}: the deletion vector has {written} bytes, its log says {size}")
    else:
        raise NeedsOperator(f"{storage.root}/{table}: a deletion vector is outside of the table, as in a clone")
    try:
        yield from decode_vector(vector)
    except (struct.error, IndexError) as error:
        raise CorruptInput(f"{storage.root}/{table}: a deletion vector ends too early") from error


def vector_path(table: str, descriptor: dict[str, Any] | None) -> str | None:
    """Return the path of the file that has a vector; None where there is no vector, or it is in the log or elsewhere."""
    if descriptor is None or descriptor["storageType"] != "u":
        return None
    text = descriptor["pathOrInlineDv"]
    prefix, name = text[:-_UUID_LENGTH], UUID(bytes=_z85(text[-_UUID_LENGTH:]))
    return "/".join(filter(None, (table, prefix, f"deletion_vector_{name}.bin")))


def decode_vector(vector: bytes) -> Iterator[int]:
    """Yield the numbers of a vector; raise CorruptInput, struct.error or IndexError for bytes that are none."""
    magic, bitmaps = struct.unpack_from("<IQ", vector)
    if magic != _MAGIC:
        raise CorruptInput("a deletion vector begins with another number than Delta's")
    at = 12
    for _ in range(bitmaps):
        (high,) = struct.unpack_from("<I", vector, at)
        numbers, at = _bitmap(vector, at + 4)
        yield from ((high << 32) | number for number in numbers)


def _bitmap(data: bytes, at: int) -> tuple[list[int], int]:
    """Return the numbers of a Roaring bitmap in its portable form, and where it ends."""
    (cookie,) = struct.unpack_from("<I", data, at)
    runs = b""
    if cookie & 0xFFFF == _WITH_RUNS:
        count, at = (cookie >> 16) + 1, at + 4
        runs, at = data[at : at + (count + 7) // 8], at + (count + 7) // 8
    elif cookie == _PLAIN:
        (count,) = struct.unpack_from("<I", data, at + 4)
        at += 8
    else:
        raise CorruptInput("a deletion vector holds no Roaring bitmap")
    heads = [struct.unpack_from("<HH", data, at + 4 * place) for place in range(count)]
    at += 4 * count
    if not runs or count >= _OFFSETS_FROM:
        at += 4 * count
    found: list[int] = []
    for place, (key, fewer) in enumerate(heads):
        base, size = key << 16, fewer + 1
        if runs and runs[place // 8] >> (place % 8) & 1:
            (number,) = struct.unpack_from("<H", data, at)
            pairs = struct.unpack_from(f"<{2 * number}H", data, at + 2)
            for start, length in zip(pairs[::2], pairs[1::2], strict=True):
                found += range(base + start, base + start + length + 1)
            at += 2 + 4 * number
        elif size > _ARRAY_MOST:
            bits = int.from_bytes(data[at : at + 8192], "little")
            if len(data) < at + 8192:
                raise struct.error
            found += _set_bits(bits, base)
            at += 8192
        else:
            found += [base + low for low in struct.unpack_from(f"<{size}H", data, at)]
            at += 2 * size
    return found, at


def _set_bits(bits: int, base: int) -> list[int]:
    digits = bin(bits)[:1:-1]
    found, place = [], digits.find("1")
    while place >= 0:
        found.append(base + place)
        place = digits.find("1", place + 1)
    return found


def _z85(text: str) -> bytes:
    """Return the bytes of a text in Z85: five characters for four bytes."""
    found = bytearray()
    for start in range(0, len(text), 5):
        number = 0
        for character in text[start : start + 5]:
            number = number * 85 + _Z85.index(character)
        found += number.to_bytes(4, "big")
    return bytes(found)


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
    log = f"{table}/_delta_log"
    number = find_newest(
        _read_hint(storage, log).get("version"),
        lambda version: storage.exists(commit_file(log, version)),
        lambda: storage.names(log),
    )
    return None if number < 0 else number


def find_newest(checkpoint: Any, has: Callable[[int], bool], names: Callable[[], Iterable[str]]) -> int:
    """Return the newest version in a log's folder, -1 when there is none: one of the few after the last checkpoint.

    `has` is whether a version's commit is there. The folder's `names` are read only where the last checkpoint is not known:
    they are as many as the days for which the log is kept have commits.
    """
    number = checkpoint if isinstance(checkpoint, int) else -1
    if number < 0 or not has(number):
        return max((int(match[1]) for name in names() if (match := _COMMIT.fullmatch(name))), default=-1)
    # Versions have no gaps, and on an object store each look is a request: twice as far each time, then back by halves.
    step = 1
    while has(number + step):
        number, step = number + step, step * 2
    while step := step // 2:
        number += step if has(number + step) else 0
    return number


def commit_file(log: str, version: int) -> str:
    """Return the path of a version's commit in a log's folder."""
    return f"{log}/{version:020d}.json"


def commits(storage: Storage, table: str, version: int | None = None) -> Iterator[tuple[int, Action]]:
    """Yield versions up to one, or all, with what their commit says of itself, newest first, as far as the log has them."""
    number = newest(storage, table) if version is None else version
    while number is not None and number >= 0:
        try:
            lines = storage.read(commit_file(f"{table}/_delta_log", number)).decode(errors="replace").splitlines()
        except FileNotFoundError:
            return
        info = next((line for line in lines if line.startswith('{"commitInfo"')), "{}")
        try:
            commit = json.loads(info).get("commitInfo")
        except ValueError as error:
            raise NeedsOperator(
                f"{storage.root}/{table}: the commit of version {number} is damaged",
                hint="Put it back from a copy of the lake.",
            ) from error
        yield number, dict(commit or {})
        number -= 1


def _read_hint(storage: Storage, log: str) -> Action:
    """Return what Delta noted of the newest checkpoint; empty where that is not known."""
    try:
        hint = json.loads(storage.read(f"{log}/_last_checkpoint"))
    except (FileNotFoundError, ValueError):
        return {}
    return hint if isinstance(hint, dict) else {}


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
    log = f"{table}/_delta_log"
    begin, parts = _find_checkpoint(storage, log, version)
    for part in parts:
        yield from _checkpoint(storage, f"{log}/{part}")
    for number in range(begin + 1, version + 1):
        try:
            commit = storage.read(commit_file(log, number))
        except FileNotFoundError as error:
            raise _gone(storage, table, version) from error
        for line in commit.decode().splitlines():
            if line.strip():
                yield json.loads(line)


def _find_checkpoint(storage: Storage, log: str, version: int) -> tuple[int, list[str]]:
    """Return the newest checkpoint that is not behind a version, and its files; -1 and none where there is none."""
    hint = _read_hint(storage, log)
    number, count = hint.get("version"), hint.get("parts") or 1
    if isinstance(number, int) and isinstance(count, int) and 0 <= number <= version and "v2Checkpoint" not in hint:
        parts = [f"{number:020d}.checkpoint.{place:010d}.{count:010d}.parquet" for place in range(1, count + 1)]
        parts = parts if count > 1 else [f"{number:020d}.checkpoint.parquet"]
        if all(storage.exists(f"{log}/{part}") for part in parts):
            return number, parts
    checkpoints: dict[int, list[str]] = {}
    for name in storage.names(log):
        if (match := _CHECKPOINT.fullmatch(name)) and int(match[1]) <= version:
            checkpoints.setdefault(int(match[1]), []).append(name)
    for number in sorted(checkpoints, reverse=True):
        parts = sorted(checkpoints[number])
        match = _CHECKPOINT.fullmatch(parts[0])
        if match and int(match[3] or 1) == len(parts):
            return number, parts
    return -1, []


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
