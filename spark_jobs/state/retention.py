"""How long Delta keeps what was replaced: properties of tables and settings of sessions, by the lake's `keep_days`.

Delta 4.4 refuses a version that is older than its table's `delta.deletedFileRetentionDuration` and not the newest, whether or
not its files are there: an idle table would become unreadable between a load's commit and its publication. What VACUUM removed
decides in this project: `maintain` keeps what a published version needs, so sessions of the lake do not check a version's age.
The properties serve other readers, and Delta itself: it forgets the names of replaced files after that time, and removes commits
from the log after `delta.logRetentionDuration`.
"""

from datetime import UTC, datetime, timedelta

from delta import DeltaTable
from pyspark.sql import SparkSession

from headrace.configuration.lake import LakeFile
from spark_jobs import storage
from spark_jobs.state import delta_log

FILES, LOG = "delta.deletedFileRetentionDuration", "delta.logRetentionDuration"
_DEFAULT = "spark.databricks.delta.properties.defaults."
_BY_AGE = "spark.databricks.delta.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration"
#: Without it VACUUM takes no other retention than the table's property, or none.
_IGNORED = "spark.databricks.delta.vacuum.retentionWindowIgnore.enabled"
#: Refuses a retention that is shorter than the table's property.
_CHECKED = "spark.databricks.delta.retentionDurationCheck.enabled"
#: VACUUM's own commits change nothing, and would make the published version one that is not the newest.
_LOGGED = "spark.databricks.delta.vacuum.logging.enabled"
#: Days for which Delta keeps a log by default.
_LOG_DAYS = 30


def properties(lake: LakeFile) -> dict[str, str]:
    """Return the properties of the lake's tables.

    A day more than VACUUM keeps files: what Delta no longer names, VACUUM would remove too early. A state that was published
    `keep_days` ago may name a version that was half as old by then (see `renew`): its commit has to be in the log.
    """
    keep = lake.lake.keep_days
    return {FILES: f"interval {keep + 1} days", LOG: f"interval {max(_LOG_DAYS, 2 * keep)} days"}


def settings(lake: LakeFile) -> dict[str, str]:
    """Return the settings by which every session reads versions of any age, and makes tables with these properties."""
    made = {_DEFAULT + name.removeprefix("delta."): value for name, value in properties(lake).items()}
    return {_BY_AGE: "false"} | made


def for_vacuum(session: SparkSession) -> None:
    """Let VACUUM in this session keep files for the time in its statement, and write no commit."""
    for name, value in ((_IGNORED, "false"), (_CHECKED, "false"), (_LOGGED, "false")):
        session.conf.set(name, value)


def ensure(session: SparkSession, lake: LakeFile, path: str) -> bool:
    """Give a table the properties; return whether it had others."""
    wanted = properties(lake)
    found = DeltaTable.forPath(session, path).detail().select("properties").first()
    if found and all(found["properties"].get(name) == value for name, value in wanted.items()):
        return False
    _set(session, path, wanted)
    return True


def renew(session: SparkSession, lake: LakeFile, path: str, version: int) -> None:
    """Give a table the properties; if its version was committed long ago, do so again, which makes a new version of its rows.

    So a version that is published is never old enough for its commit to be cleaned out of the log, nor for other readers to be
    refused once a load has committed a newer one.
    """
    made = delta_log.committed(session, path, version)
    old = made is None or datetime.now(UTC) - made > timedelta(days=lake.lake.keep_days + 1) / 2
    if not ensure(session, lake, path) and old:
        _set(session, path, properties(lake))


def _set(session: SparkSession, path: str, wanted: dict[str, str]) -> None:
    listed = ", ".join(f"'{name}' = '{value}'" for name, value in wanted.items())
    session.sql(f"ALTER TABLE {storage.table(path)} SET TBLPROPERTIES ({listed})")
