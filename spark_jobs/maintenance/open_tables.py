"""Tables as every reader of Delta knows them, or no more, as `readers` of the lake's file has it. Called by maintenance.

An open table has no deletion vectors, no columns widened in place and no names that Parquet does not take. Loads make new tables
like this; a table that they made otherwise is changed here, once: its files are written again, and its protocol is lowered.
"""

import logging

from delta import DeltaTable
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark_jobs import storage
from spark_jobs.errors import is_conflict
from spark_jobs.silver import merge, target_schema
from spark_jobs.silver.commit import NOTE_SETTING
from spark_jobs.state import delta_log

_VECTORS, _MAPPING = "deletionVectors", "columnMapping"
#: What readers may not know, in the order in which it is dropped.
_FEATURES = (_VECTORS, "typeWidening", "typeWidening-preview", _MAPPING)
_PROPERTY = "delta.enableDeletionVectors"

_log = logging.getLogger(__name__)


def apply(session: SparkSession, path: str, *, is_open: bool) -> None:
    """Keep a table as every reader knows it from now on, or as Delta does; where Delta refuses it, the table stays as it is."""
    row = DeltaTable.forPath(session, path).detail().select("properties", "tableFeatures").first()
    properties, features = (dict(row[0] or {}), set(row[1] or [])) if row is not None else ({}, set[str]())
    dropped = [name for name in _FEATURES if name in features]
    session.conf.set(NOTE_SETTING, delta_log.write(delta_log.READERS))
    try:
        if not is_open and properties.get(_PROPERTY) == "false":
            _set(session, path, "true")
        if is_open and properties.get(_PROPERTY) != "false":
            _set(session, path, "false")
        if is_open and dropped:
            _drop(session, path, dropped)
    except (PySparkException, Py4JError) as error:
        if is_conflict(error):
            raise
        why = error.getCondition() if isinstance(error, PySparkException) else type(error).__name__
        _log.warning("%s still needs readers that know %s: %s", path, ", ".join(dropped), why)
    finally:
        session.conf.unset(NOTE_SETTING)


def _drop(session: SparkSession, path: str, features: list[str]) -> None:
    table = storage.table(path)
    if _MAPPING in features:
        for name in DeltaTable.forPath(session, path).toDF().columns:
            if target_schema.is_mapped(name):
                other = target_schema.open_name(name)
                session.sql(f"ALTER TABLE {table} RENAME COLUMN {storage.name(name)} TO {storage.name(other)}")
        if merge.columns(session, path):
            # Delta keeps the mapped names of these columns, and cannot read the table without the mapping.
            session.sql(f"ALTER TABLE {table} CLUSTER BY NONE")
    for name in features:
        session.sql(f"ALTER TABLE {table} DROP FEATURE `{name}`")


def _set(session: SparkSession, path: str, value: str) -> None:
    session.sql(f"ALTER TABLE {storage.table(path)} SET TBLPROPERTIES ('{_PROPERTY}' = '{value}')")
