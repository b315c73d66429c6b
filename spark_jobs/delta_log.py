"""The commits of a Delta table and the note of progress that each of ours carries (`userMetadata`).

Progress is recorded in the commit that it describes, so neither can exist without the other. `note` asks Spark and works on
any file system; `local_note` reads the log's files of a local path, for checks that start no Spark.
"""

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from delta import DeltaTable
from pyspark.sql import SparkSession

from headrace.errors import NeedsOperator
from spark_jobs import storage

#: A key of every note, so that nobody else's metadata is taken for one.
_OURS = "headrace"
#: How many commits, newest first, are looked at before the whole log is: maintenance stands between loads now and then.
_NEAR = 20
_MAINTENANCE = {"OPTIMIZE", "VACUUM START", "VACUUM END"}
_LEFT = re.compile(r"_delta_log|\.?part-.*\.parquet(\.crc)?")

Note = dict[str, Any]


def write(kind: str, **note: Any) -> str:
    """Return the text of a note."""
    return json.dumps({_OURS: kind, **note}, sort_keys=True)


def is_table(spark: SparkSession, path: str) -> bool:
    """Whether a Delta table stands at the path; raise NeedsOperator when something else does."""
    if DeltaTable.isDeltaTable(spark, path):
        return True
    refuse_others(path, storage.names(spark, path))
    return False


def refuse_others(path: str, names: Iterable[str]) -> None:
    """Raise NeedsOperator when names in a folder are not what a first write that died leaves: data, and no commit."""
    if any(not _LEFT.fullmatch(name) for name in names):
        raise NeedsOperator(
            f"{path} holds something that is not a Delta table",
            hint="Move it away, or name another [lake] root: the load makes its tables in an empty place.",
        )


def version(spark: SparkSession, path: str) -> int:
    """Return the newest version of the table."""
    number, _ = next(_commits(spark, path))
    return number


def only_maintained(spark: SparkSession, path: str, after: int) -> bool:
    """Whether all commits after a version have changed files and no rows."""
    return _only_maintained(_commits(spark, path), after)


def _only_maintained(commits: Iterator[tuple[int, Note]], after: int) -> bool:
    for number, info in commits:
        if number <= after:
            return True
        if str(info.get("operation")) not in _MAINTENANCE:
            return False
    return False


def mark(spark: SparkSession, path: str) -> tuple[int, str]:
    """Return the newest version of the table, and when it was written: of a table made anew the versions begin again."""
    number, info = next(_commits(spark, path))
    return number, str(info.get("timestamp"))


def has_property(spark: SparkSession, path: str, name: str) -> bool:
    """Whether a property of the table is set to true."""
    found = DeltaTable.forPath(spark, path).detail().select("properties").first()
    return bool(found and found["properties"].get(name) == "true")


def metrics(spark: SparkSession, path: str) -> dict[str, int]:
    """Return what the newest commit says that it wrote: numOutputRows, numFiles."""
    _, info = next(_commits(spark, path))
    return {name: int(value) for name, value in (info.get("operationMetrics") or {}).items() if str(value).isdigit()}


def added(spark: SparkSession, path: str, after: int, upto: int) -> tuple[int, int]:
    """Return the rows, and their bytes, that commits after a version wrote, up to and including another."""
    rows = size = 0
    for number, info in _commits(spark, path):
        if number <= after:
            break
        if number <= upto:
            wrote = info.get("operationMetrics") or {}
            rows += int(wrote.get("numOutputRows", 0))
            size += int(wrote.get("numOutputBytes", 0))
    return rows, size


def note(spark: SparkSession, path: str, kind: str) -> tuple[int, Note] | None:
    """Return the newest note of a kind with its version, or None when no commit carries one."""
    return _newest(_commits(spark, path), kind)


def local_note(path: str, kind: str) -> Note | None:
    """Return the newest note of a kind in the log of a table on this machine, or None; starts no Spark."""
    found = _newest(_local_commits(path), kind)
    return found[1] if found else None


def local_notes(path: str, kind: str) -> Iterator[Note]:
    """Yield the notes of a kind in the log of a table on this machine, newest first; starts no Spark."""
    for _, info in _local_commits(path):
        if found := _parse(info.get("userMetadata"), kind):
            yield found


def local_only_maintained(path: str, after: int) -> bool:
    """Whether all commits after a version of a table on this machine have changed files and no rows; starts no Spark."""
    return _only_maintained(_local_commits(path), after)


def _newest(commits: Iterator[tuple[int, Note]], kind: str) -> tuple[int, Note] | None:
    for number, info in commits:
        if found := _parse(info.get("userMetadata"), kind):
            return number, found
    return None


def _commits(spark: SparkSession, path: str) -> Iterator[tuple[int, Note]]:
    """Yield versions with their commit's own account of itself, newest first."""
    if "://" not in path:
        # On this machine the log's files tell it without a Spark job.
        yield from _local_commits(path)
        return
    table = DeltaTable.forPath(spark, path)
    for history in (table.history(_NEAR), table.history()):
        for commit in history.select("version", "timestamp", "operation", "userMetadata", "operationMetrics").collect():
            yield int(commit["version"]), commit.asDict()


def _local_commits(path: str) -> Iterator[tuple[int, Note]]:
    for file in sorted(Path(path, "_delta_log").glob("*.json"), reverse=True):
        if not file.stem.isdigit():
            continue
        for line in file.read_text(encoding="utf-8").splitlines():
            if line.startswith('{"commitInfo"'):
                yield int(file.stem), json.loads(line)["commitInfo"]
                break


def _parse(text: str | None, kind: str) -> Note | None:
    try:
        found = json.loads(text or "null")
    except ValueError:
        return None
    return found if isinstance(found, dict) and found.get(_OURS) == kind else None
