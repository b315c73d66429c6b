"""Transactions that had not ended where a load stopped: of each source alone, from which version of bronze on it is read again.

A source with an unfinished transaction holds up no other one, and is itself read again only once something ended. Called by the
load, and where bronze is read beyond what is published.

Tables behind their stream: they stopped, failed, lost their folder, or lack a history that is configured now.

What a stopped table needs of bronze came after a version that is remembered when it stops, so no load reads bronze from its
beginning for it; and it is tried again only when something of it came, the lake's file changed, or a new release runs. Called
by the load.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import PurePosixPath

import msgspec
from pyspark.sql import SparkSession

from headrace import __version__
from headrace.configuration.lake import LakeFile
from spark_jobs import storage
from spark_jobs.bronze import increment
from spark_jobs.bronze.increment import Since
from spark_jobs.silver import scd2, table_task
from spark_jobs.silver.profiles import BatchProfile
from spark_jobs.silver.table_task import LoadContext, TableTask
from spark_jobs.state.published import Published, Table
from spark_jobs.state.published_rows import Unfinished

#: How often a table is tried, by as many loads, before it stops with what it failed with.
_TRIES = 3


def find_lagging(spark: SparkSession, lake: LakeFile, before: Published) -> dict[str, Table]:
    """Return the tables that are behind the stream, by name."""
    # One listing for all tables, however many there are.
    there = set(storage.names(spark, table_task.folder(lake, before.stream))) if before.tables else set()
    return select_lagging(lake, before, there)


def select_lagging(lake: LakeFile, before: Published, there: set[str]) -> dict[str, Table]:
    """Return the tables that are behind the stream, by name; `there` are the folders of tables."""
    behind = {}
    for name, table in before.tables.items():
        gone = table.version is not None and PurePosixPath(table_task.path(lake, before.stream, name)).name not in there
        without = lake.stream(before.stream).history_of(name) and scd2.lacks_history(table)
        if gone:
            behind[name] = replace(
                table, version=None, positions={}, schemas={}, since=None, problem=None, bronze_after=None, failures=0
            )
        elif without or table.problem is not None or table.positions != before.positions:
            behind[name] = table
    return behind


def stop_table(lake: LakeFile, context: LoadContext, task: TableTask, problem: str) -> Table:
    """Return a table that stops: as it was, with the reason, and what is known of where it goes on."""
    return replace(_left(context, task), problem=problem, settings=digest_settings(lake, context.stream))


def fail_table(lake: LakeFile, context: LoadContext, task: TableTask, error: str) -> Table:
    """Return a table that could not be loaded for a reason that may pass: as it was, and stopped once it failed often enough."""
    failures = task.published.failures + 1
    if failures < _TRIES:
        return replace(_left(context, task), failures=failures)
    return replace(stop_table(lake, context, task, f"failed {failures} times: {error}"), failures=failures)


def _left(context: LoadContext, task: TableTask) -> Table:
    """Return a table as it was, with what is known of where it goes on."""
    table = task.published
    # All of it came after a version; in the first load of a stream, after none.
    rest = context.rest if task.after is not None else -1 if context.first else None
    return replace(table, changes=0, bronze_after=table.bronze_after if table.lags else rest)


def digest_settings(lake: LakeFile, stream: str) -> str:
    """Return a digest of what decides, in addition to bronze, whether a table can go on."""
    section = lake.stream(stream)
    deciding = (
        section.history,
        section.deletes,
        section.on_incompatible,
        section.on_unsupported,
        section.readers,
        section.tables,
        __version__,
    )
    return hashlib.blake2b(msgspec.json.encode(deciding), digest_size=8).hexdigest()


def since(state: Published, sources: Iterable[str] | None = None) -> Since | None:
    """Return the point in bronze after which all came that is not published: of some sources, or all, what is unfinished too."""
    back = state.unfinished if sources is None else {name: state.unfinished[name] for name in sources}
    return Since.of(state.bronze_done, {source: waiting.after for source, waiting in back.items()})


def choose_since(
    spark: SparkSession, path: str, before: Published, version: int, reached: Mapping[str, str] | None
) -> Since | None:
    """Return the point after which a load reads bronze; None when it has to read all of it.

    Where tables have topics of their own, what ends a transaction may have come ahead of the rest of it.
    """
    if before.bronze_done is None or not increment.is_readable_after(spark, path, before.bronze_done):
        return None
    if not before.unfinished or reached is not None:
        return since(before)
    return since(before, increment.ended(increment.rows(spark, path, since(before, ()), version), before.unfinished))


def rest(state: Published) -> int | None:
    """Return the version of bronze after which all came that is not published; None when it is not known."""
    if state.bronze_done is None:
        return None
    return min([state.bronze_done, *(waiting.after for waiting in state.unfinished.values())])


def changes(state: Published, since: Since | None) -> int:
    """Return how many changes that were unfinished are read again from a point on."""
    return sum(state.unfinished[source].changes for source, _ in since.back) if since else 0


def after(before: Published, read: Since | None, new: BatchProfile) -> dict[str, Unfinished]:
    """Return what is unfinished by source, once a load has read bronze after a point."""
    left = {}
    for source in sorted(before.unfinished.keys() | new.beyond.keys()):
        old, more = before.unfinished.get(source), new.beyond.get(source)
        if old is not None and read is not None and source not in dict(read.back):
            changes, upto = (more.changes, more.upto) if more else (0, "")
            left[source] = replace(old, changes=old.changes + changes, upto=max(old.upto, upto))
        elif more is not None:
            came = -1 if before.bronze_done is None else before.bronze_done
            if old is not None and new.high.get(source, "") < old.upto:
                came = old.after
            left[source] = Unfinished(after=came, changes=more.changes, upto=more.upto)
    return left
