"""VACUUM of a table, where it can remove anything; and maintenance of the lake's own tables, which all streams share: `state`,
`schemas`, `loads`, `verified`, `maintained`.

VACUUM reads the whole log and folder by a dozen Spark jobs to find out what it can remove. Where the folder is on this machine,
it is looked at without Spark: only a file that is old enough and not one of the newest version's can go. Where that cannot be
known so, VACUUM runs.

Of the lake's own tables small files are put together, and those that were replaced longer ago than `keep_days` are removed. Of
`loads` rows of a stream go after a month, but for the newest of each source, and of `verified` all but the newest of each table.
`maintained` is read and written by maintenance alone. Called by maintain.py.
"""

import logging
import os
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import time

import msgspec
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.

from headrace.configuration.lake import LakeFile, local_path
from headrace.errors import ReplicationError
from headrace.lake import delta_log as file_log
from headrace.lake.storage import Storage
from spark_jobs import run_log, storage
from spark_jobs.errors import is_conflict
from spark_jobs.state import delta_log, log_files, published, retention, schema_texts
from spark_jobs.verify import report

_log = logging.getLogger(__name__)

#: Files from which on Spark looks, by all cores.
_MANY = 10_000
_COMMIT = re.compile(r"(\d{20})\.json")
#: What Delta, and Hadoop, write beside a commit; and how many versions behind the newest it is kept, however old it is.
_SUMS = re.compile(r"\.?(\d{20})\.(crc|json\.crc|crc\.crc)")
_KEPT_SUMS = 10
#: What a file of a log is called until it has its name, and Hadoop's checksum of it; and seconds after which nobody writes it.
_UNFINISHED = re.compile(r"\.[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.tmp(\.crc)?$")
_DAY = 24 * 60 * 60


def run(session: SparkSession, path: str, keep_days: int) -> None:
    """Remove a table's files that no version of the last days needs, in a session that is set for it."""
    if storage.is_local(session, path):
        folder = Path(local_path(path))
        tidy(folder / "_delta_log")
        if not may_remove(folder, timedelta(days=keep_days)):
            return
    session.sql(f"VACUUM {storage.table(path)} RETAIN {keep_days * 24} HOURS")


def tidy(log: Path) -> None:
    """Remove what nobody reads of a log's files on this machine, of more than a day ago.

    What processes that were killed have left may have values of rows. And of the sums beside each commit the next one needs the
    newest alone (an old version is read without), while each listing of the log, of which a load takes dozens, has the names of
    all. Where the folder cannot be read, or a file not be removed, that is logged: it is for the next time.
    """
    try:
        _tidy(log)
    except OSError as error:
        _log.warning("%s: what nobody reads of it stays: %s", log, error.strerror)


def _tidy(log: Path) -> None:
    names = os.listdir(log)  # noqa: PTH208 - of half a million, paths take their time.
    newest = max((int(match[1]) for match in map(_COMMIT.fullmatch, names) if match), default=0)
    before = time() - _DAY
    for name in names:
        sums = _SUMS.fullmatch(name)
        if _UNFINISHED.search(name) if sums is None else int(sums[1]) < newest - _KEPT_SUMS:
            # Another process removes it too, or has just finished it.
            with suppress(FileNotFoundError):
                if (log / name).stat().st_mtime < before:
                    (log / name).unlink()


def may_remove(folder: Path, keep: timedelta) -> bool:
    """Whether a table's folder may have something that was replaced so long ago."""
    before, old = time() - keep.total_seconds(), set[str]()
    for count, entry in enumerate(folder.iterdir()):
        if entry.name == "_delta_log":
            continue
        # Rows that changed, of a table that has them, are in folders.
        if count > _MANY or entry.is_dir():
            return True
        # Hadoop's own checksums go with their files.
        if entry.name.startswith("."):
            continue
        # The maintenance of another stream removes files of tables that all streams share.
        with suppress(FileNotFoundError):
            if entry.stat().st_mtime <= before:
                old.add(entry.name)
    return bool(old) and not old <= _needed(folder)


def _needed(folder: Path) -> set[str]:
    """Return the names of the newest version's files; none where they cannot be known here."""
    try:
        files = Storage(str(folder.parent.absolute()), {})
        version = file_log.newest(files, folder.name)
        known = file_log.read(files, folder.name, version).files if version is not None else ()
    except (ReplicationError, OSError, ValueError, KeyError, TypeError):
        return set()
    paths = {path for file in known for path in (file.path, file_log.vector_path(folder.name, file.deleted)) if path}
    return {path.removeprefix(f"{folder.name}/") for path in paths}


#: Structure of `maintained`: when each table was maintained, a row for each time.
_STRUCTURE = "array<struct<stream: string, name: string, maintained_at: timestamp>>"


def maintain_own_tables(session: SparkSession, lake: LakeFile, stream: str) -> None:
    """Compact, prune and vacuum them, in a session that is set for both."""
    if delta_log.is_table(session, run_log.path(lake)):
        _unless_overtaken(run_log.prune, session, lake, stream)
    if delta_log.is_table(session, report.path(lake)):
        _unless_overtaken(report.prune, session, lake)
    if storage.is_local(session, lake.root):
        # Of some nothing else is ever removed.
        for log in Path(local_path(lake.root)).glob("*/_delta_log"):
            tidy(log)
    # `state` is compacted where its rows are pruned.
    own = [run_log.path(lake), schema_texts.path(lake), report.path(lake), _maintained(lake)]
    for path in (*own, published.path(lake)):
        if delta_log.is_table(session, path):
            _unless_overtaken(retention.ensure, session, path, retention.of_own())
            if path in own and not log_files.is_whole(session, path):
                _unless_overtaken(session.sql, f"OPTIMIZE {storage.table(path)}")
            run(session, path, lake.lake.keep_days)


def _unless_overtaken(function: Callable[..., object], *given: object) -> None:
    """Change a table, unless the maintenance of another stream changes it at the same time."""
    try:
        function(*given)
    except (PySparkException, Py4JError) as error:
        if not is_conflict(error):
            raise


def _maintained(lake: LakeFile) -> str:
    return f"{lake.root}/maintained"


def read_times(spark: SparkSession, lake: LakeFile, stream: str) -> dict[str, datetime]:
    """Return when each table of a stream was maintained last, by the names that were recorded."""
    if not delta_log.is_table(spark, _maintained(lake)):
        return {}
    rows = spark.read.format("delta").load(_maintained(lake)).filter(F.col("stream") == stream)
    newest = rows.groupBy("name").agg(F.unix_millis(F.max("maintained_at")).alias("at"))
    return {row["name"]: datetime.fromtimestamp(row["at"] / 1000, UTC) for row in newest.collect()}


def record_times(spark: SparkSession, lake: LakeFile, stream: str, names: Iterable[str]) -> None:
    """Record that tables were maintained now."""
    now = datetime.now(UTC)
    rows = [{"stream": stream, "name": name, "maintained_at": now} for name in names]
    # From text, so that no Python process is started for a few rows.
    frame = spark.range(1).select(F.inline(F.from_json(F.lit(msgspec.json.encode(rows).decode()), _STRUCTURE)))
    try:
        frame.coalesce(1).write.format("delta").mode("append").save(_maintained(lake))
    except (PySparkException, Py4JError) as error:
        # Two streams make the table at the same time: these are maintained once more.
        if not is_conflict(error):
            raise


def forget_times(spark: SparkSession, lake: LakeFile, stream: str, before: datetime) -> None:
    """Remove rows of a stream from before a time: all of its tables were maintained since, and have newer ones."""
    old = f"stream = {storage.text(stream)} AND maintained_at < timestamp_millis({int(before.timestamp() * 1000)})"
    spark.sql(f"DELETE FROM {storage.table(_maintained(lake))} WHERE {old}")  # noqa: S608 - quoted.
