"""Whether versions of bronze that were noted with what is published are versions of the bronze that is there now.

A version is known by the id of its own commit. Bronze that was made again, or put back from an older copy, has another commit
there, or none: then nothing is known of what came after it, and all of it is read. Called by loads, replays and live rows.
"""

from dataclasses import replace

from pyspark.sql import SparkSession

from spark_jobs.state import delta_log
from spark_jobs.state.published_rows import Published


def known_versions(spark: SparkSession, path: str, state: Published) -> Published:
    """Return what is published, without its versions of bronze where the table at the path has not these versions."""
    if state.bronze_version is None:
        return state
    commit = delta_log.commit_id(spark, path, state.bronze_version)
    # Earlier releases noted no commit.
    same = commit is not None and state.bronze_commit in {None, commit}
    return state if same else without_versions(state)


def without_versions(state: Published) -> Published:
    """Return what is published, of which no version of bronze is known."""
    tables = {name: replace(table, bronze_after=None) for name, table in state.tables.items()}
    return replace(state, bronze_version=None, bronze_commit=None, bronze_done=None, unfinished={}, tables=tables)
