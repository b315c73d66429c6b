"""How long Delta keeps what was replaced: properties of tables and settings of sessions, by the lake's `keep_days`.

Delta 4.4 refuses a version that is older than its table's `delta.deletedFileRetentionDuration` and not the newest, whether or
not its files are there: an idle table would become unreadable between a load's commit and its publication. What VACUUM removed
decides in this project: `maintain` keeps what a published version needs, so sessions of the lake do not check a version's age.
The properties serve other readers, and Delta itself: it forgets the names of replaced files after that time, and removes commits
from the log after `delta.logRetentionDuration`.
"""

from datetime import UTC, datetime, timedelta

from pyspark.sql import SparkSession

from headrace.configuration.lake import LakeFile
from spark_jobs import storage
from spark_jobs.state import delta_log, log_files

FILES, LOG = "delta.deletedFileRetentionDuration", "delta.logRetentionDuration"
_DEFAULT = "spark.databricks.delta.properties.defaults."
_BY_AGE = "spark.databricks.delta.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration"
#: Without it VACUUM takes no other retention than the table's property, or none.
_IGNORED = "spark.databricks.delta.vacuum.retentionWindowIgnore.enabled"
#: Refuses a retention that is shorter than the table's property.
_CHECKED = "spark.databricks.delta.retentionDurationCheck.enabled"
#: VACUUM's own commits change nothing, and would make the published version one that is not the newest.
_LOGGED = "spark.databricks.delta.vacuum.logging.enabled"
#: Days for which logs and replaced files of the lake's own tables are kept: of them the newest version is read alone.
_OWN_DAYS = 2


def properties(lake: LakeFile) -> dict[str, str]:
    """Return the properties of tables of silver and of history.

    A day more than VACUUM keeps files: what Delta no longer names, VACUUM would remove too early. A state that was published
    `keep_days` ago may name a version that was half as old by then (see `renew`): its commit has to be in the log. No longer
    than that: on a file system each look at a table lists its whole log.
    """
    keep = lake.lake.keep_days
    return _interval(keep + 1, keep + (keep + 1) // 2 + 2)


def of_bronze(lake: LakeFile) -> dict[str, str]:
    """Return the properties of tables of bronze: what came since a table stopped is read by the log, longer ago by the rows."""
    return _interval(lake.lake.keep_days + 1, lake.lake.keep_days + 2)


def of_own() -> dict[str, str]:
    """Return the properties of the lake's own tables."""
    return _interval(_OWN_DAYS, _OWN_DAYS)


def _interval(files: int, log: int) -> dict[str, str]:
    # Delta refuses a log that is kept for a shorter time than files.
    return {FILES: f"interval {files} days", LOG: f"interval {log} days"}


def settings(lake: LakeFile) -> dict[str, str]:
    """Return the settings by which every session reads versions of any age, and makes tables with these properties."""
    defaults = {_DEFAULT + name.removeprefix("delta."): value for name, value in properties(lake).items()}
    return {_BY_AGE: "false"} | defaults


def for_vacuum(session: SparkSession) -> None:
    """Let VACUUM in this session keep files for the time in its statement, and write no commit."""
    for name, value in ((_IGNORED, "false"), (_CHECKED, "false"), (_LOGGED, "false")):
        session.conf.set(name, value)


def ensure(session: SparkSession, path: str, target: dict[str, str]) -> bool:
    """Give a table properties; return whether it had others."""
    properties = log_files.properties(session, path)
    if all(properties.get(name) == value for name, value in target.items()):
        return False
    _set(session, path, target)
    return True


def renew(session: SparkSession, lake: LakeFile, path: str, version: int) -> None:
    """Give a table the properties; if its version was committed long ago, do so again, which makes a new version of its rows.

    So a version that is published is never old enough for its commit to be cleaned out of the log, nor for other readers to be
    refused once a load has committed a newer one.
    """
    committed_at = delta_log.find_commit_time(session, path, version)
    old = committed_at is None or datetime.now(UTC) - committed_at > timedelta(days=lake.lake.keep_days + 1) / 2
    if not ensure(session, path, properties(lake)) and old:
        _set(session, path, properties(lake))


def _set(session: SparkSession, path: str, target: dict[str, str]) -> None:
    listed = ", ".join(f"'{name}' = '{value}'" for name, value in target.items())
    session.sql(f"ALTER TABLE {storage.table(path)} SET TBLPROPERTIES ({listed})")
