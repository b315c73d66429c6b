"""VACUUM of a table, where it can remove anything: it reads the whole log and folder by a dozen Spark jobs to find that out.

Where the folder is on this machine, it is looked at without Spark: only a file that is old enough and not one of the newest
version's can go. Where that cannot be known so, VACUUM runs. Called by maintenance.
"""

from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from time import time

from pyspark.sql import SparkSession

from headrace.errors import ReplicationError
from headrace.lake import delta_log
from headrace.lake.storage import Storage
from spark_jobs import storage

#: Files from which on Spark looks, by all cores.
_MANY = 10_000


def run(session: SparkSession, path: str, keep_days: int) -> None:
    """Remove a table's files that no version of the last days needs, in a session that is set for it."""
    if not storage.is_local(session, path) or may_remove(Path(storage.local(path)), timedelta(days=keep_days)):
        session.sql(f"VACUUM {storage.table(path)} RETAIN {keep_days * 24} HOURS")


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
        # As an address: a name may have what addresses have a meaning for.
        files = Storage(folder.parent.absolute().as_uri(), {})
        version = delta_log.newest(files, folder.name)
        known = delta_log.read(files, folder.name, version).files if version is not None else ()
    except (ReplicationError, OSError, ValueError, KeyError, TypeError):
        return set()
    paths = {path for file in known for path in (file.path, delta_log.vector_path(folder.name, file.deleted)) if path}
    return {path.removeprefix(f"{folder.name}/") for path in paths}
