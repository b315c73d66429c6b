"""The commits of a Delta table and the note of progress that each of ours carries (`userMetadata`).

Progress is recorded in the commit that it describes, so neither can exist without the other. `note` uses Spark and works on
any file system; `local_note` reads the log's files themselves (log_files.py), for checks that start no Spark.
"""

import json
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from delta import DeltaTable
from pyspark.sql import SparkSession

from headrace.configuration.lake import local_path
from headrace.errors import NeedsOperator
from headrace.lake import delta_log as lake_log
from spark_jobs import storage
from spark_jobs.errors import damaged
from spark_jobs.state import log_files
from spark_jobs.state.log_files import LocalFiles, LogFiles

#: A key of every note, so that other programs' metadata is not taken for one.
_OURS = "headrace"
#: The setting by which a session's commits carry a note.
NOTE_SETTING = "spark.databricks.delta.commitInfo.userMetadata"
#: What changes files or properties of a table, and no rows.
_MAINTENANCE = {"OPTIMIZE", "REORG", "VACUUM START", "VACUUM END", "SET TBLPROPERTIES", "CLUSTER BY"}
#: Kind of note of commits by which a table becomes one for other readers.
READERS = "readers"
#: What adds or widens columns, and changes no rows: loads of release 0.1 carry no note on it.
_COLUMNS = {"ADD COLUMNS", "CHANGE COLUMN", "CHANGE COLUMNS"}
_LEFT = re.compile(r"_delta_log|\.?part-.*\.parquet(\.crc)?")

Note = dict[str, Any]
_LOCAL = LocalFiles()


def write(kind: str, **note: Any) -> str:
    """Return the text of a note."""
    return json.dumps({_OURS: kind, **note}, sort_keys=True)


def is_table(spark: SparkSession, path: str) -> bool:
    """Whether there is a Delta table at the path; raise NeedsOperator when something else is there."""
    # Delta lists the whole log, which has weeks of commits.
    if storage.is_local(spark, path) and _newest_version(f"{local_path(path)}/_delta_log", _LOCAL) >= 0:
        return True
    if DeltaTable.isDeltaTable(spark, path):
        return True
    refuse_others(path, storage.names(spark, path))
    return False


def refuse_others(path: str, names: Iterable[str]) -> None:
    """Raise NeedsOperator when names in a folder are not what a first write that died leaves: data, and no commit."""
    if any(not _LEFT.fullmatch(name) for name in names):
        raise NeedsOperator(
            f"{path} holds something that is not a Delta table",
            hint="Move it to another place, or name another [lake] root: the load makes its tables in empty folders.",
        )


def version(spark: SparkSession, path: str) -> int:
    """Return the newest version of the table."""
    number, _ = next(commits(spark, path))
    return number


def only_maintained(spark: SparkSession, path: str, after: int) -> bool:
    """Whether all commits after a version have changed files and no rows."""
    return find_maintained(spark, path, after) is not None


def find_maintained(spark: SparkSession, path: str, after: int) -> int | None:
    """Return the newest version if it has the rows of an earlier one.

    None when a commit since has changed rows, and when the table has no such version.
    """
    return _find_maintained(commits(spark, path), after)


def is_maintenance(info: Note) -> bool:
    """Whether a commit has changed files and no rows."""
    return str(info.get("operation")) in _MAINTENANCE or read_note(info, READERS) is not None


def is_foreign(info: Note) -> bool:
    """Whether a commit may have changed rows and carries no note of ours."""
    return not is_maintenance(info) and str(info.get("operation")) not in _COLUMNS and _read_note(info) is None


def _find_maintained(commits: Iterator[tuple[int, Note]], after: int, commit: str | None = None) -> int | None:
    newest = None
    for number, info in commits:
        newest = number if newest is None else newest
        if number <= after:
            return newest if number == after and commit in {None, identify(info)} else None
        if not is_maintenance(info):
            return None
    return None


def find_commit_time(spark: SparkSession, path: str, version: int) -> datetime | None:
    """Return when a version was committed, None when its commit is in the log no more."""
    for number, info in commits(spark, path):
        if number <= version:
            return time(info) if number == version else None
    return None


def first_after(spark: SparkSession, path: str, version: int) -> datetime | None:
    """Return when the first commit after a version was made: from then on files of that version count as replaced.

    None when there is no later commit; the beginning of time when that commit is in the log no more.
    """
    when, oldest = None, version
    for number, info in commits(spark, path):
        if number <= version:
            return when
        when, oldest = time(info), number
    return when if oldest <= version + 1 else datetime.fromtimestamp(0, UTC)


def mark(spark: SparkSession, path: str) -> tuple[int, str]:
    """Return the newest version of the table, and the id of its commit: of a table made again the versions begin at 0."""
    number, info = next(commits(spark, path))
    return number, identify(info)


def commit_id(spark: SparkSession, path: str, version: int) -> str | None:
    """Return the id of the commit that made a version; None when the log does not have it."""
    info = _read_commit(spark, path, version)
    return None if info is None else identify(info)


def after(spark: SparkSession, path: str, version: int) -> Iterator[tuple[int, Note]]:
    """Yield the versions after one, oldest first, each with its commit's own account of itself.

    Versions are consecutive, so nothing is listed and no Spark job runs, however long the log is.
    """
    while (info := _read_commit(spark, path, version := version + 1)) is not None:
        yield version, info


def _read_commit(spark: SparkSession, path: str, version: int) -> Note | None:
    file = _commit_file(path, version)
    if storage.is_local(spark, path):
        text = _LOCAL.read(local_path(file))
    else:
        text = storage.read(spark, file) if storage.exists(spark, file) else None
    return None if text is None else _info(text, file)


def identify(info: Note) -> str:
    """Return what distinguishes a commit from any other one: Delta's own id, or when it was made."""
    return str(info.get("txnId") or info.get("timestamp"))


def _commit_file(path: str, version: int) -> str:
    return lake_log.commit_file(f"{path}/_delta_log", version)


def metrics(spark: SparkSession, path: str) -> dict[str, int]:
    """Return what the newest commit reports that it wrote: numOutputRows, numFiles."""
    _, info = next(commits(spark, path))
    return {name: int(value) for name, value in (info.get("operationMetrics") or {}).items() if str(value).isdigit()}


def count_added(spark: SparkSession, path: str, after: int, upto: int) -> tuple[int, int] | None:
    """Return the rows, and their bytes, that commits after a version wrote, up to and including another.

    None when the log has not all of these commits any more.
    """
    rows, size, oldest = 0, 0, upto + 1
    for number, info in commits(spark, path):
        if number <= after:
            break
        oldest = number
        if number <= upto:
            wrote = info.get("operationMetrics") or {}
            rows += int(wrote.get("numOutputRows", 0))
            size += int(wrote.get("numOutputBytes", 0))
    return (rows, size) if oldest <= after + 1 else None


def note(spark: SparkSession, path: str, kind: str, version: int | None = None) -> tuple[int, Note] | None:
    """Return the newest note of a kind with its version, or None when no commit up to a version carries one."""
    return _newest(commits(spark, path, version), kind)


def noted_at(spark: SparkSession, path: str, kind: str) -> datetime | None:
    """Return when the newest note of a kind was committed; None when no commit in the log carries one."""
    return _noted_at(commits(spark, path), kind)


def local_noted_at(path: str, kind: str, files: LogFiles = _LOCAL) -> datetime | None:
    """Return the same by the log's files; starts no Spark."""
    return _noted_at(_read_commits(path, files), kind)


def local_note(path: str, kind: str, files: LogFiles = _LOCAL, version: int | None = None) -> tuple[int, Note] | None:
    """Return the newest note of a kind with its version by the log's files, or None; starts no Spark."""
    return _newest(_read_commits(path, files, version), kind)


def local_notes(path: str, kind: str, files: LogFiles = _LOCAL) -> Iterator[Note]:
    """Yield the notes of a kind in the log of a table, newest first; starts no Spark."""
    for _, info in _read_commits(path, files):
        if our_note := read_note(info, kind):
            yield our_note


def local_only_maintained(path: str, after: int, files: LogFiles = _LOCAL, *, commit: str | None = None) -> bool:
    """Whether all commits after a version of a table have changed files and no rows; starts no Spark.

    False for a table whose version was made by another commit than a known one.
    """
    return _find_maintained(_read_commits(path, files), after, commit) is not None


def local_added(path: str, after: int, files: LogFiles, *, commit: str | None, most: int) -> int | None:
    """Return how many rows commits after a version of a table wrote; starts no Spark.

    None when that version was made by another commit than a known one, and when more than `most` commits came after it.
    """
    rows = 0
    for number, info in islice(_read_commits(path, files), most):
        if number <= after:
            return rows if number == after and commit in {None, identify(info)} else None
        if not is_maintenance(info):
            rows += int((info.get("operationMetrics") or {}).get("numOutputRows", 0))
    return None


def _newest(commits: Iterator[tuple[int, Note]], kind: str) -> tuple[int, Note] | None:
    for number, info in commits:
        if our_note := read_note(info, kind):
            return number, our_note
    return None


def _noted_at(commits: Iterator[tuple[int, Note]], kind: str) -> datetime | None:
    return next((time(info) for _, info in commits if read_note(info, kind)), None)


def commits(spark: SparkSession, path: str, version: int | None = None) -> Iterator[tuple[int, Note]]:
    """Yield versions up to one, or all, with their commit's own `commitInfo`, newest first, back to the oldest that the log has.

    A commit's file is read when it is needed: commits before those that are read cost nothing.
    """
    if storage.is_local(spark, path):
        # On this machine the log's files are read without a Spark job.
        yield from _read_commits(local_path(path), _LOCAL, version)
        return
    number = log_files.version(spark, path) if version is None else version
    while number >= 0 and storage.exists(spark, file := _commit_file(path, number)):
        yield number, _info(storage.read(spark, file), file)
        number -= 1


def _read_commits(path: str, files: LogFiles, version: int | None = None) -> Iterator[tuple[int, Note]]:
    number = _newest_version(f"{path}/_delta_log", files) if version is None else version
    while number >= 0 and (text := files.read(file := _commit_file(path, number))) is not None:
        yield number, _info(text, file)
        number -= 1


def _newest_version(log: str, files: LogFiles) -> int:
    """Return the newest version in a log's folder, -1 when there is none."""
    try:
        checkpoint = json.loads(files.read(f"{log}/_last_checkpoint") or "{}")["version"]
    except (OSError, ValueError, KeyError, TypeError):
        checkpoint = None
    return lake_log.find_newest(
        checkpoint, lambda version: files.exists(lake_log.commit_file(log, version)), lambda: files.names(log)
    )


def time(info: Note) -> datetime:
    """Return when a commit was made."""
    return datetime.fromtimestamp(int(info.get("timestamp", 0)) / 1000, UTC)


def _info(commit: str, file: str) -> Note:
    """Return what a commit reports about itself, empty when it has no such line; raise NeedsOperator for a damaged file."""
    if not commit.rstrip().endswith("}"):
        raise damaged("its Delta log", file)
    for line in commit.splitlines():
        if line.startswith('{"commitInfo"'):
            try:
                return dict(json.loads(line)["commitInfo"])
            except (ValueError, TypeError) as error:
                raise damaged("its Delta log", file) from error
    return {}


def read_note(info: Note, kind: str) -> Note | None:
    """Return the note of a kind that a commit carries, or None."""
    our_note = _read_note(info)
    return our_note if our_note is not None and our_note[_OURS] == kind else None


def _read_note(info: Note) -> Note | None:
    """Return the note of ours that a commit carries, or None."""
    try:
        our_note = json.loads(info.get("userMetadata") or "null")
    except ValueError:
        return None
    return our_note if isinstance(our_note, dict) and _OURS in our_note else None
