"""A table of several sources goes on without those with which it cannot be: whose key, types or values do not fit.

No region may stop a table for the others. What is whole is tried first; where that fails, the sources are tried in halves, those
whose schema most of them have first, each with all that went well before it. One that fails alone is held back: its rows stay as
they were, at a position and with a reason that are published. It is tried again once a schema record of the table comes, of any
source (all may have to change their key), or a truncate of its own, as with a new copy, or the lake's file changes. A table that
would be left without a source stops, as one that a single source sends does.

Each try is an ordinary load of the table, which begins where the one before it ended. Called for each table of a load.
"""

import logging
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import replace

from headrace.configuration.lake import LakeFile
from headrace.doors import place_of
from headrace.errors import CorruptInput, ReplicationError
from headrace.schema import TableSchema
from spark_jobs.errors import Misfit
from spark_jobs.silver import held_back, table_task, types
from spark_jobs.silver.table_task import LoadContext, TableTask
from spark_jobs.state.published import Positions, Table
from spark_jobs.state.published_rows import HeldBack

#: Characters of a reason that are kept: names of columns are as long as their owners like.
_MOST = 1_000

_log = logging.getLogger(__name__)


def apply(
    lake: LakeFile,
    context: LoadContext,
    task: TableTask,
    attempt: Callable[[TableTask], Table],
    reached: Callable[[], Positions],
) -> Table:
    """Return a table once `attempt` has brought it up to the high watermarks, but for sources with which it cannot be.

    `reached` returns the positions that its commits show, and its history's. Raises what `attempt` raised for the whole where no
    source is the reason, or none would be left.
    """
    groups, reasons, done = [_sources(task)], dict[str, ReplicationError](), None
    whole: Exception | None = None
    while groups:
        group = groups.pop(0)
        left = [*reasons, *(source for other in groups for source in other)]
        try:
            done = attempt(_without(task, left, reached()) if left else task)
        except Exception as error:
            if not _is_of_input(error, task) or not task.is_shared:
                raise
            whole = whole or error
            if len(group) == 1:
                reasons[group[0]] = _explain(task, error)
            else:
                half = len(group) // 2
                groups[:0] = [group[:half], group[half:]]
    if whole is None:
        assert done is not None, "the whole was tried"
        return done
    if task.published.held_back.keys() | reasons.keys() >= task.sources:
        raise whole
    positions = reached()
    try:
        done = attempt(_without(task, reasons, positions))
    except (Misfit, CorruptInput):
        raise whole from None
    limited = _without(task, reasons, positions)
    held = task.published.held_back | {
        source: HeldBack(
            at=limited.high.get(source, ""),
            reason=f"{error.message} {error.hint}".strip()[:_MOST],
            schema=held_back.digest_schema(table_task.newest_schemas(task).get(source)),
        )
        for source, error in reasons.items()
    }
    # What is known of where a stopped table goes on holds for these sources.
    stopped = held_back.stop_table(lake, context, task, "")
    return replace(done, held_back=held, settings=stopped.settings, bronze_after=stopped.bronze_after).as_going_on()


def _sources(task: TableTask) -> list[str]:
    """Return the sources of which there is something to do, those first that have the schema which most of the table's have."""
    schemas = {source: TableSchema.parse(text) for source, text in task.published.schemas.items()}
    newest = schemas | {record.source: record.schema for record in task.records}
    forms = {source: _form(schema) for source, schema in newest.items()}
    alike = Counter(forms.values())
    sources = {profile.source for profile in task.seen} | {record.source for record in task.records}
    return sorted(sources, key=lambda source: (-alike[forms.get(source)], source))


def _form(schema: TableSchema | None) -> tuple[tuple[str, ...], frozenset[tuple[str, str]]] | None:
    """Return what has to fit of a schema; None of a record that is none."""
    if schema is None:
        return None
    return tuple(schema.key), frozenset((column.name, types.of(column).simpleString()) for column in schema.columns)


def _without(task: TableTask, sources: Collection[str], reached: Positions) -> TableTask:
    """Return the work without what some sources have beyond what the table shows of them already."""
    shown = task.published.positions
    return table_task.limit(task, {source: max(shown.get(source, ""), reached.get(source, "")) for source in sources})


def _is_of_input(error: Exception, task: TableTask) -> bool:
    """Whether an error may be due to what one source sent; one that nobody expected is tried again by later loads first."""
    if isinstance(error, ReplicationError):
        return isinstance(error, Misfit | CorruptInput)
    return task.published.failures + 1 >= held_back.TRIES


def _explain(task: TableTask, error: Exception) -> ReplicationError:
    if isinstance(error, ReplicationError):
        return error
    # Its text may hold what came in.
    unexpected = CorruptInput(f"{task.table}: unexpected {type(error).__name__} at {place_of(error)}: report this line")
    _log.error("%s", unexpected.message)
    return unexpected
