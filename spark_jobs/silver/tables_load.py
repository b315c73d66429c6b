"""The tables of a load, some at a time; one that cannot go on stops alone.

Called by the load of a stream.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import replace

from pyspark.sql import SparkSession

from headrace.configuration.lake import LakeFile
from headrace.errors import CorruptInput, NeedsOperator, Retryable
from spark_jobs.errors import explained
from spark_jobs.silver import behind, copies, rebuild, scd2_load, table_load, table_task
from spark_jobs.silver.table_task import TableTask
from spark_jobs.silver.types import Incompatible
from spark_jobs.state import delta_log
from spark_jobs.state.published import Table

#: How often a table is written again after maintenance has removed the files that its MERGE had read.
_TRIES = 3

#: Receives tables done and tables in all.
OnProgress = Callable[[int, int], None]


def run(
    aside: Callable[[], AbstractContextManager[SparkSession]],
    lake: LakeFile,
    context: table_task.LoadContext,
    tasks: dict[str, TableTask],
    side_by_side: int,
    on_progress: OnProgress | None,
) -> dict[str, Table]:
    """Apply the tables, some side by side; return how each is afterwards.

    An error that is not one table's is raised at the end.
    """

    def apply(task: TableTask) -> Table:
        for tries in range(_TRIES):
            try:
                # Its own session: the note of a MERGE is a setting of the session.
                with explained(f"silver {task.table}"), aside() as session:
                    return _applied(session, aside, context, task)
            except Retryable:
                paths = (task.path, task.history_path)
                if tries + 1 == _TRIES or not any(_compacted(session, path) for path in paths):
                    raise
            except (NeedsOperator, CorruptInput) as error:
                return behind.stopped(lake, context, task, f"{error.message} {error.hint}".strip())
        raise AssertionError("the last try returns or raises")

    done: dict[str, Table] = {}
    with ThreadPoolExecutor(max(1, side_by_side), thread_name_prefix="silver") as pool:
        for name, result in zip(tasks, pool.map(apply, tasks.values()), strict=True):
            done[name] = result
            if on_progress:
                on_progress(len(done), len(tasks))
    return done


def _applied(
    session: SparkSession,
    aside: Callable[[], AbstractContextManager[SparkSession]],
    context: table_task.LoadContext,
    task: TableTask,
) -> Table:
    """Bring a table and its history up to the high watermarks, or build them again from a new copy."""
    if copies.nothing_yet(task):
        return replace(task.known, changes=0, positions=task.high)

    def history() -> int | None:
        with aside() as own:
            return scd2_load.apply(own, context, task)

    try:
        with ThreadPoolExecutor(1, thread_name_prefix="history") as pool:
            found = pool.submit(history) if task.history is not None else None
            current = table_load.apply(session, context, task)
        return replace(current, history=found.result() if found is not None else None)
    except Incompatible:
        if not task.rebuilds:
            raise
        return rebuild.apply(session, context, *rebuild.from_copies(session, context, task))


def _compacted(spark: SparkSession, path: str) -> bool:
    """Whether maintenance made the newest commit of a table: it removed the files that a MERGE had read."""
    newest = next(delta_log.commits(spark, path), None) if delta_log.is_table(spark, path) else None
    return newest is not None and delta_log.is_maintenance(newest[1])
