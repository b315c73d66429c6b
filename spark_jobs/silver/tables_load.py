"""What a load does for each table, some tables at a time, and what is published once it has done it.

Where a table goes on is derived here alone. One that is where its stream is takes what came since, and so does one that waits for
a copy. Any other one, which stopped, failed or lost its folder, goes on from its own positions, with all that came to bronze
after the version that is published with it. A table that cannot go on stops alone.

A group of tables may be brought up by a task of its own, ahead of the load that publishes them. Which group a table is in depends
on its name alone, so no two tasks write the same table, whatever bronze they see. Called by silver's load.
"""

import logging
import re
import zlib
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import NamedTuple, Self

from pyspark.sql import SparkSession

from headrace.configuration.lake import LakeFile
from headrace.doors import place_of
from headrace.errors import ConfigurationError, CorruptInput, NeedsOperator, ReplicationError, Retryable
from spark_jobs.bronze.increment import Since
from spark_jobs.errors import SparkFailed, explained
from spark_jobs.silver import held_back, rebuild, scd2, table_load, table_task
from spark_jobs.silver.profiles import BatchProfile
from spark_jobs.silver.table_task import LoadContext, TableTask
from spark_jobs.silver.types import Incompatible
from spark_jobs.state import delta_log, schema_texts
from spark_jobs.state.published import Positions, Published, Table
from spark_jobs.state.published_rows import Unfinished

_log = logging.getLogger(__name__)

#: Returns what bronze has for a table that is not where its stream is, after its own positions.
Profiled = Callable[[Table, Since | None], BatchProfile]


def tasks(
    lake: LakeFile,
    context: LoadContext,
    before: Published,
    lagging: dict[str, Table],
    new: BatchProfile,
    since: Since | None,
    profiled: Profiled,
    lacking: Collection[str] = (),
) -> dict[str, TableTask]:
    """Return the work of each table that has something to do.

    `lagging` are the tables that are not where the stream is, `new` is what came after a point in bronze, `since`. A table that
    needs records of sources that bronze is `lacking` waits for them.
    """
    elsewhere = {name for name, table in lagging.items() if not held_back.waits_for_sources(table, before.positions)}
    names = new.tables() - elsewhere
    schema_texts.fetch_together(before.tables[name].schemas for name in names if name in before.tables)
    by_name = {
        name: held_back.hold_back(table_task.task_of(lake, before, name, new, after=since), rest=context.rest)
        for name in sorted(names)
    }
    for name, table in to_try(lake, before, lagging, new).items():
        short = {source for source in lacking if table.positions.get(source, "") < before.positions[source]}
        lost = table.version is None and name in before.tables and before.tables[name].version is not None
        # A table whose folder is lost needs all records of its sources. Others need those of sources that do not wait.
        if short and (lost or short - table.waiting.keys()):
            continue
        own = Since.of(table.bronze_after, {})
        whole = replace(before, tables={name: held_back.take_back(table, short, lost=lost)})
        task = table_task.task_of(lake, whole, name, profiled(table, own), after=own)
        by_name[name] = held_back.hold_back(task, rest=table.bronze_after)
    # A table that was dropped before it sent a row is not shown.
    return {
        name: task for name, task in by_name.items() if name in before.tables or not table_task.is_only_truncated(task)
    }


def to_try(
    lake: LakeFile, before: Published, lagging: dict[str, Table], new: BatchProfile | None = None
) -> dict[str, Table]:
    """Return those of the tables for which a load may do more than the one before; `new` is what came."""
    settings = held_back.digest_settings(lake, before.stream)
    arrived = new.tables() if new else set()

    def may(table: Table) -> bool:
        # What others bring to a table in which a source waits comes as to any table.
        if held_back.waits_for_sources(table, before.positions):
            seen, own = new.of_table(table.table) if new else ([], [])
            return held_back.has_copy_ended(table.copying, own) or held_back.may_take_back(table, settings, own, seen)
        if table.problem is None:
            return True
        return table.table in arrived or table.settings != settings or table.positions == before.positions

    return {name: table for name, table in lagging.items() if may(table)}


def published_after(
    before: Published,
    new: BatchProfile,
    results: dict[str, Table],
    bronze: tuple[int | None, str | None],
    left: dict[str, Unfinished],
    started: datetime,
) -> Published:
    """Return what is published: tables that nothing happened to are where the stream is."""
    tables = {
        name: replace(table, changes=0, positions=_moved(table, before, new.high))
        for name, table in before.tables.items()
    }
    return Published(
        stream=before.stream,
        load=before.load + 1,
        started_at=started,
        bronze_version=bronze[0],
        bronze_commit=bronze[1],
        bronze_done=bronze[0],
        unfinished=left,
        changes=sum(done.changes for done in results.values()),
        positions=new.high,
        partitions=_partitions(before, new),
        tables=tables | results,
        dropped=before.dropped,
        bronze_removed=before.bronze_removed,
    )


def _partitions(before: Published, new: BatchProfile) -> dict[str, dict[str, str]]:
    """Return up to which position the partitions of each source are applied."""
    partitions = {source: dict(of_source) for source, of_source in before.partitions.items()}
    for source, of_source in new.partitions.items():
        applied = partitions.setdefault(source, {})
        applied.update({p: max(position, applied.get(p, "")) for p, position in of_source.items()})
    return partitions


def _moved(table: Table, before: Published, high: Positions) -> Positions:
    """Return where a table is that nothing happened to."""
    if held_back.waits_for_sources(table, before.positions):
        return held_back.waiting_positions(table, high)
    return high if table.positions == before.positions else table.positions


def is_worth_publishing(before: Published, after: Published) -> bool:
    """Whether anything differs but the counts and the times."""
    return (before.bronze_version, before.positions) != (after.bronze_version, after.positions) or any(
        replace(table, changes=0) != replace(before.tables.get(name, Table(table=name)), changes=0)
        for name, table in after.tables.items()
    )


class TableGroup(NamedTuple):
    """One group of several, numbered from 1."""

    number: int
    of: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the group that `2/4` names, the second of four; raise ConfigurationError for another text."""
        match = re.fullmatch(r"(\d{1,4})/(\d{1,4})", text)
        group = cls(int(match[1]), int(match[2])) if match else cls(0, 0)
        if not 1 <= group.number <= group.of:
            raise ConfigurationError(f"{text!r} names no group of tables", hint="Write NUMBER/COUNT, such as 2/4.")
        return group

    def has(self, table: str) -> bool:
        """Whether a table, by its source's `schema.table`, is in the group."""
        return zlib.crc32(table.encode()) % self.of == self.number - 1


#: How often a table is written again after maintenance has removed the files that its MERGE had read.
_TRIES = 3

#: Receives tables done and tables in all.
OnProgress = Callable[[int, int], None]


def run(
    aside: Callable[..., AbstractContextManager[SparkSession]],
    lake: LakeFile,
    context: table_task.LoadContext,
    tasks: dict[str, TableTask],
    side_by_side: int,
    on_progress: OnProgress,
    *,
    few: bool,
) -> tuple[dict[str, Table], dict[str, str]]:
    """Apply the tables, some side by side; return how each is afterwards, and what those failed with that may do better later.

    `aside` gives a session whose plans suit `few` rows or many: a table that was behind may have many where the load has few. An
    error that is not one table's is raised at the end.
    """
    failures: dict[str, str] = {}

    def apply(task: TableTask) -> Table:
        own = partial(aside, few=few and not task.published.lags)
        for tries in range(_TRIES):
            try:
                # Its own session: the note of a MERGE is a setting of the session.
                with explained(f"silver {task.table}"), own() as session:
                    attempt = partial(_attempt, session, own, context)
                    reached = partial(_reached, session, context, task)
                    return table_load.apply_without_misfits(lake, context, task, attempt, reached)
            except Retryable as error:
                paths = (task.path, task.history_path)
                if tries + 1 < _TRIES and any(_compacted(session, path) for path in paths):
                    continue
                if not isinstance(error, SparkFailed):
                    raise
                failures[task.table] = error.message
                return held_back.fail_table(lake, context, task, f"{error.message} {error.hint}".strip())
            except (NeedsOperator, CorruptInput) as error:
                return held_back.stop_table(lake, context, task, f"{error.message} {error.hint}".strip())
            except ReplicationError:
                raise
            except Exception as error:  # noqa: BLE001 - what one table's sources sent decides what happens here: others go on.
                # Its text may hold what came in.
                failures[task.table] = f"unexpected {type(error).__name__} at {place_of(error)}: report this line"
                _log.error("silver %s: %s", task.table, failures[task.table])
                return held_back.fail_table(lake, context, task, failures[task.table])
        raise AssertionError("the last try returns or raises")

    done: dict[str, Table] = {}
    with ThreadPoolExecutor(max(1, side_by_side), thread_name_prefix="silver") as pool:
        for name, result in zip(tasks, pool.map(apply, tasks.values()), strict=True):
            done[name] = result
            on_progress(len(done), len(tasks))
    return done, failures


def _attempt(
    session: SparkSession,
    aside: Callable[[], AbstractContextManager[SparkSession]],
    context: table_task.LoadContext,
    task: TableTask,
) -> Table:
    """Bring a table and its history up to the high watermarks, or build them again from a new copy."""
    if held_back.has_nothing_yet(task) or table_task.is_only_truncated(task):
        return table_task.describe_unmade(task)

    def history() -> int | None:
        with aside() as own:
            return scd2.apply(own, context, task)

    try:
        with explained(f"silver {task.table}"), ThreadPoolExecutor(1, thread_name_prefix="history") as pool:
            future = pool.submit(history) if task.history is not None else None
            if future is not None and task.is_shared:
                # It reads every value. A source with one that it cannot have is held back where the table shows none of it.
                future.result()
            base = table_load.read_base(session, context, task)
            if base.has_all_of(task.published):
                current = table_load.apply(session, context, task, base)
            else:
                whole = table_task.from_the_beginning(session, context, task)
                current = table_load.build(session, context, whole, {})
        return replace(current, history=future.result() if future is not None else None)
    except Incompatible:
        if not task.rebuilds:
            raise
        return rebuild.apply(session, context, *rebuild.from_copies(session, context, task))


def _reached(session: SparkSession, context: table_task.LoadContext, task: TableTask) -> Positions:
    """Return the positions that the commits of a table and of its history show, published or not."""
    bases = [table_load.read_base(session, context, task, overwrites=True)]
    if task.history is not None:
        bases.append(scd2.read_base(session, context, task, overwrites=True))
    shown = dict(task.published.positions)
    for base in bases:
        shown |= {source: max(position, shown.get(source, "")) for source, position in base.positions.items()}
    return shown


def _compacted(spark: SparkSession, path: str) -> bool:
    """Whether maintenance made the newest commit of a table: it removed the files that a MERGE had read."""
    newest = next(delta_log.commits(spark, path), None) if delta_log.is_table(spark, path) else None
    return newest is not None and delta_log.is_maintenance(newest[1])
