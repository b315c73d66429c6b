"""The commits of a Delta table and the note of progress that each of ours carries (`userMetadata`).

Progress is recorded in the commit that it describes, so neither can exist without the other. `note` asks Spark and works on
any file system; `local_note` reads the log's files of a local path, for checks that start no Spark.
"""

import json
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

Note = dict[str, Any]


def write(kind: str, **note: Any) -> str:
    """Return the text of a note."""
    return json.dumps({_OURS: kind, **note}, sort_keys=True)


def is_table(spark: SparkSession, path: str) -> bool:
    """Whether a Delta table stands at the path; raise NeedsOperator when something else does."""
    if DeltaTable.isDeltaTable(spark, path):
        return True
    if storage.names(spark, path):
        raise NeedsOperator(
            f"{path} holds something that is not a Delta table",
            hint="Move it away, or name another [lake] root: the load makes its tables in an empty place.",
        )
    return False


def version(spark: SparkSession, path: str) -> int:
    """Return the newest version of the table."""
    (newest,) = DeltaTable.forPath(spark, path).history(1).select("version").collect()
    return int(newest["version"])


def note(spark: SparkSession, path: str, kind: str) -> tuple[int, Note] | None:
    """Return the newest note of a kind with its version, or None when no commit carries one."""
    table = DeltaTable.forPath(spark, path)
    for history in (table.history(_NEAR), table.history()):
        for commit in history.select("version", "userMetadata").collect():
            if found := _parse(commit["userMetadata"], kind):
                return int(commit["version"]), found
    return None


def local_note(path: str, kind: str) -> Note | None:
    """Return the newest note of a kind in the log of a table on this machine, or None; starts no Spark."""
    for file in sorted(Path(path, "_delta_log").glob("*.json"), reverse=True):
        for line in file.read_text(encoding="utf-8").splitlines():
            action = json.loads(line) if '"commitInfo"' in line else {}
            if found := _parse(action.get("commitInfo", {}).get("userMetadata"), kind):
                return found
    return None


def _parse(text: str | None, kind: str) -> Note | None:
    try:
        found = json.loads(text or "null")
    except ValueError:
        return None
    return found if isinstance(found, dict) and found.get(_OURS) == kind else None
