"""Tables behind their stream: they stopped, failed, lost their folder, or lack a history that is configured by now.

What a stopped table needs of bronze came after a version that is remembered when it stops, so no load reads bronze from its
beginning for it; and it is tried again only when something of it came, the lake's file changed, or a new release runs. Called
by the load.
"""

import hashlib
from dataclasses import replace
from pathlib import PurePosixPath

import msgspec
from pyspark.sql import SparkSession

from headrace import __version__
from headrace.configuration.lake import LakeFile
from spark_jobs import storage
from spark_jobs.silver import scd2_load, table_task
from spark_jobs.silver.table_task import LoadContext, TableTask
from spark_jobs.state.published import Published, Table

#: How often a table is tried, by as many loads, before it stops with what it failed with.
_TRIES = 3


def found(spark: SparkSession, lake: LakeFile, before: Published) -> dict[str, Table]:
    """Return the tables that are behind the stream, by name."""
    # One listing for all tables, however many there are.
    there = set(storage.names(spark, table_task.folder(lake, before.stream))) if before.tables else set()
    return lagging(lake, before, there)


def lagging(lake: LakeFile, before: Published, there: set[str]) -> dict[str, Table]:
    """Return the tables that are behind the stream, by name; `there` are the folders of tables."""
    behind = {}
    for name, one in before.tables.items():
        gone = one.version is not None and PurePosixPath(table_task.path(lake, before.stream, name)).name not in there
        without = lake.stream(before.stream).history_of(name) and scd2_load.missing(one)
        if gone:
            behind[name] = replace(
                one, version=None, positions={}, schemas={}, since=None, problem=None, bronze_after=None, failures=0
            )
        elif without or one.problem is not None or one.positions != before.positions:
            behind[name] = one
    return behind


def stopped(lake: LakeFile, context: LoadContext, task: TableTask, problem: str) -> Table:
    """Return a table that stops: as it was, with the reason, and what is known of where it goes on."""
    return replace(_left(context, task), problem=problem, tried=tried(lake, context.stream))


def failed(lake: LakeFile, context: LoadContext, task: TableTask, error: str) -> Table:
    """Return a table that could not be loaded for a reason that may pass: as it was, and stopped once it failed often enough."""
    failures = task.known.failures + 1
    if failures < _TRIES:
        return replace(_left(context, task), failures=failures)
    return replace(stopped(lake, context, task, f"failed {failures} times: {error}"), failures=failures)


def _left(context: LoadContext, task: TableTask) -> Table:
    """Return a table as it was, with what is known of where it goes on."""
    known = task.known
    # All of it came after a version; in the first load of a stream, after none.
    rest = context.rest if task.after is not None else -1 if context.first else None
    return replace(known, changes=0, bronze_after=known.bronze_after if known.lags else rest)


def tried(lake: LakeFile, stream: str) -> str:
    """Return a digest of what decides, in addition to bronze, whether a table can go on."""
    section = lake.stream(stream)
    deciding = (
        section.history,
        section.deletes,
        section.on_incompatible,
        section.on_unsupported,
        section.tables,
        __version__,
    )
    return hashlib.blake2b(msgspec.json.encode(deciding), digest_size=8).hexdigest()
