"""Maintenance of the lake's own tables: `state`, `schemas`, `loads`, `verified`, `maintained`, which all streams share.

Their small files are put together, and those that were replaced longer ago than `keep_days` are removed. Of `loads` rows of a
stream go after a month, but for the newest of each source. Called by maintain.py.
"""

from collections.abc import Callable

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headrace.configuration.lake import LakeFile
from spark_jobs import run_log, storage
from spark_jobs.errors import is_conflict
from spark_jobs.maintenance import maintained
from spark_jobs.state import delta_log, published, retention, schema_texts
from spark_jobs.verify import report


def maintain(session: SparkSession, lake: LakeFile, stream: str) -> None:
    """Compact, prune and vacuum them, in a session that is set for both."""
    if delta_log.is_table(session, run_log.path(lake)):
        _unless_overtaken(run_log.prune, session, lake, stream)
    # `state` is compacted where its rows are pruned.
    own = [run_log.path(lake), schema_texts.path(lake), report.path(lake), maintained.path(lake)]
    for path in (*own, published.path(lake)):
        if delta_log.is_table(session, path):
            _unless_overtaken(retention.ensure, session, path, retention.of_own())
            if path in own:
                _unless_overtaken(session.sql, f"OPTIMIZE {storage.table(path)}")
            session.sql(f"VACUUM {storage.table(path)} RETAIN {lake.lake.keep_days * 24} HOURS")


def _unless_overtaken(function: Callable[..., object], *given: object) -> None:
    """Change a table, unless the maintenance of another stream changes it at the same time."""
    try:
        function(*given)
    except (PySparkException, Py4JError) as error:
        if not is_conflict(error):
            raise
