"""A table of several sources goes on without those that do not fit it: by their key, their types or their values.

No region may stop a table for the others. The whole is tried first. Where that fails, the sources are tried in halves, those
whose schema most of them have first, each with all that went well before it. One that fails alone is held back: its rows stay as
they were, at a position and with a reason that are published. It is tried again once a source describes the table otherwise (all
may have to change their key), once it truncates or copies the table, and when the lake's file changes. A table that would be
left without a source stops, as one that a single source sends does.

Each try is an ordinary load of the table, which begins where the one before it ended. Called for each table of a load.
"""

import logging
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import replace

from headrace.configuration.lake import LakeFile
from headrace.doors import place_of
from headrace.errors import CorruptInput, ReplicationError
from spark_jobs.errors import Misfit
from spark_jobs.silver import held_back, table_task
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
    try:
        return attempt(task)
    except Exception as error:
        if not (task.is_shared and _is_of_input(error, task)):
            raise
        whole = error
    sources = _order_sources(task)
    if not sources:
        raise whole
    reasons = _find_misfits(task, sources, whole, attempt, reached)
    if task.published.held_back.keys() | reasons.keys() >= task.sources:
        raise whole
    rest = _without(task, reasons, reached())
    try:
        done = attempt(rest)
    except (Misfit, CorruptInput):
        raise whole from None
    schemas = table_task.newest_schemas(task)
    held = task.published.held_back | {
        source: HeldBack(
            at=rest.high.get(source, ""), reason=reason[:_MOST], schema=held_back.digest_schema(schemas.get(source))
        )
        for source, reason in reasons.items()
    }
    # What is known of where a stopped table goes on holds for these sources.
    stopped = held_back.stop_table(lake, context, task, "")
    return replace(done, held_back=held, settings=stopped.settings, bronze_after=stopped.bronze_after).as_going_on()


def _find_misfits(
    task: TableTask,
    sources: list[str],
    whole: Exception,
    attempt: Callable[[TableTask], Table],
    reached: Callable[[], Positions],
) -> dict[str, str]:
    """Return the sources that fail alone, once all others are in, and what they fail with; `whole` is what all failed with."""
    reasons: dict[str, str] = {}
    groups = _halve(sources)
    while groups:
        group = groups.pop(0)
        left = [*reasons, *(source for other in groups for source in other)]
        error: Exception | None = whole
        if left:
            error = _try(task, _without(task, left, reached()), attempt)
        elif len(sources) > 1 and not isinstance(whole, ReplicationError):
            # It may have passed since.
            error = _try(task, task, attempt)
        if error is None:
            continue
        if len(group) > 1:
            groups = [*_halve(group), *groups]
        else:
            reasons[group[0]] = _explain(task, error)
    return reasons


def _try(task: TableTask, part: TableTask, attempt: Callable[[TableTask], Table]) -> Exception | None:
    """Return what a part of the work fails with for what a source sent; None where it goes well."""
    try:
        attempt(part)
    except Exception as error:
        if not _is_of_input(error, task):
            raise
        return error
    return None


def _halve(sources: list[str]) -> list[list[str]]:
    half = len(sources) // 2
    return [part for part in (sources[:half], sources[half:]) if part]


def _order_sources(task: TableTask) -> list[str]:
    """Return the sources of which there is something to do, those first that have the schema which most of the table's have."""
    schemas = {source: held_back.digest_schema(text) for source, text in table_task.newest_schemas(task).items()}
    alike = Counter(schemas.values())
    sources = {profile.source for profile in task.seen} | {record.source for record in task.records}
    return sorted(sources, key=lambda source: (-alike[schemas.get(source, "")], source))


def _without(task: TableTask, sources: Collection[str], reached: Positions) -> TableTask:
    """Return the work without what some sources have beyond what the table shows of them already."""
    shown = task.published.positions
    return table_task.limit(task, {source: max(shown.get(source, ""), reached.get(source, "")) for source in sources})


def _is_of_input(error: Exception, task: TableTask) -> bool:
    """Whether an error may be due to what one source sent; one that nobody expected is tried again by later loads first."""
    if isinstance(error, ReplicationError):
        return isinstance(error, Misfit | CorruptInput)
    return task.published.failures + 1 >= held_back.TRIES


def _explain(task: TableTask, error: Exception) -> str:
    if isinstance(error, ReplicationError):
        return f"{error.message} {error.hint}".strip()
    # Its text may hold what came in.
    text = f"unexpected {type(error).__name__} at {place_of(error)}: report this line"
    _log.error("silver %s: %s", task.table, text)
    return text
