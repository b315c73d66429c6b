"""Copies of tables under way: what a source's new copy brings to a table is published once the copy is complete.

An edge marks the beginning and the end of a copy of a whole table (docs/records.md); an earlier release marks neither, and its
copies are published as they come. Between the marks that source's rows of the table stay as they were before the copy; other
sources and other tables go on. Called by loads, replays, rebuilds, and where live rows are shown.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from headrace.schema import COPY_BEGINS, COPY_ENDS
from spark_jobs.silver.schema_versions import SchemaRecord
from spark_jobs.silver.table_task import TableTask
from spark_jobs.state.published import Positions, Table


def under_way(known: Mapping[str, str], records: Sequence[SchemaRecord]) -> dict[str, str]:
    """Return the copies of a table that are under way at the end of a range, by source the position of their beginning."""
    found = dict(known)
    for record in records:
        if record.mark == COPY_BEGINS:
            found.setdefault(record.source, record.position)
        elif record.mark == COPY_ENDS:
            found.pop(record.source, None)
    return found


def ended(known: Mapping[str, str], records: Sequence[SchemaRecord]) -> bool:
    """Whether a copy that was under way ended in a range."""
    return any(record.mark == COPY_ENDS and record.source in known for record in records)


def held_back(task: TableTask, *, rest: int | None = None) -> TableTask:
    """Return the work without what copies under way bring; `rest` is where bronze has what the table lacks from now on."""
    copying = under_way(task.known.copying, task.records)
    if not copying and not task.known.copying:
        return task
    after = task.known.bronze_after if task.known.lags else rest
    high = task.high | {source: position for source, position in copying.items() if source in task.high}
    return replace(
        task,
        known=replace(task.known, copying=copying, bronze_after=after),
        high=high,
        # Of a copy that began earlier nothing is inside, not even where the range begins.
        seen=[one for one in task.seen if one.first <= high.get(one.source, "")],
        records=[record for record in task.records if record.position <= high.get(record.source, "")],
    )


def nothing_yet(task: TableTask) -> bool:
    """Whether a table has never been made, and nothing but copies under way would be in it."""
    return bool(task.known.copying) and task.known.version is None and not task.seen


def positions(known: Table, high: Positions) -> Positions:
    """Return where a table is that nothing came for: with its stream, but for the sources that copy it."""
    return {source: min(cut, known.copying.get(source, cut)) for source, cut in high.items()}


def waits(known: Table, published: Positions) -> bool:
    """Whether nothing but copies under way keeps a table from being where its stream is."""
    return known.problem is None and bool(known.copying) and known.positions == positions(known, published)


def reason(copying: Mapping[str, str]) -> str:
    """Return why a table waits."""
    listed = ", ".join(f"{source} (since position {position})" for source, position in sorted(copying.items()))
    return f"its copy from {listed} is not complete: rows of that source are as they were before it"
