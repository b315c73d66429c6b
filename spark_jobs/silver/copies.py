"""Copies of tables under way: what a source's new copy brings to a table is published once the copy is complete.

An edge marks the beginning and the end of a copy of a whole table (docs/records.md); an earlier release marks neither, and its
copies are published as they come. Between the marks that source's rows of the table stay as they were before the copy; other
sources and other tables go on. Called by loads, replays, rebuilds, and where live rows are shown.

Which tables may hold other values than their sources since a schema changed: the log has no record of what that did to rows.

A renamed column is a column that vanished and another one that appeared; an added column may have a default, which older rows
have at the source alone. An edge that sees such a change marks the schema record (`rewritten`, with the reasons); for other
records, what the schemas suggest is a warning. A truncate of the source, with which `edge snapshot --replace` begins, ends both.
Called when a load or a rebuild has brought up a table.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from headrace.schema import COPY_BEGINS, COPY_ENDS, TableSchema
from spark_jobs.silver import types
from spark_jobs.silver.profiles import Missing
from spark_jobs.silver.schema_versions import SchemaRecord, SchemaVersions
from spark_jobs.silver.table_task import TableTask
from spark_jobs.state.published import Positions, Table

#: What a warning begins with when the edge itself marked the table.
NEEDS_COPY = "needs copy"


def warnings(
    table: str, earlier: Mapping[str, str], versions: SchemaVersions, cleared: Mapping[str, str]
) -> dict[str, str]:
    """Return the warnings about a table by source and position: earlier ones and those of a range, but for what a copy ended.

    `cleared` has the position of each source's last truncate.
    """
    texts = dict(earlier)
    for source, schemas in versions.of.items():
        position, first = schemas[0]
        if position and first.rewritten:
            # A table that was renamed is a new one here.
            texts[f"{source} {position}"] = _advice(_rewritten(first.rewritten), table, source)
        for (_, old), (position, new) in pairwise(schemas):
            if reason := _reason(old, new):
                texts[f"{source} {position}"] = _advice(reason, table, source)
    return {place: text for place, text in sorted(texts.items()) if not _ended(place, cleared)}


def warn_of_missing(table: str, missing: Sequence[Missing]) -> dict[str, str]:
    """Return the warnings about rows that sources took from a table without a key and that it does not have."""
    return {
        f"{gap.source} {gap.position}": _advice(
            f"{NEEDS_COPY}: {gap.rows} rows that were updated or deleted are not in silver", table, gap.source
        )
        for gap in missing
    }


def _advice(reason: str, table: str, source: str) -> str:
    return f"{reason}. To be sure, copy it again at {source}: 'headrace edge snapshot {shlex.quote(table)} --replace'."


def _rewritten(reasons: Sequence[str]) -> str:
    return f"{NEEDS_COPY}: the source rewrote its rows ({', '.join(reasons)})"


def _ended(place: str, cleared: Mapping[str, str]) -> bool:
    source, _, position = place.rpartition(" ")
    return position <= cleared.get(source, "")


def _reason(old: TableSchema, new: TableSchema) -> str | None:
    """Return why rows that did not change since may differ from their source; None when there is no reason."""
    if new.rewritten is not None:
        return _rewritten(new.rewritten) if new.rewritten else None
    before = {column.name: types.of(column) for column in old.columns}
    after = {column.name: types.of(column) for column in new.columns}
    appeared = [name for name in after if name not in before]
    vanished = [name for name in before if name not in after]
    renamed = [name for name in appeared if any(after[name] == before[other] for other in vanished)]
    parts = []
    if renamed:
        gone = ", ".join(other for other in vanished if any(before[other] == after[name] for name in renamed))
        parts.append(f"{', '.join(renamed)} may be the former {gone}: rows that did not change since are null there")
    if added := [name for name in appeared if name not in renamed]:
        parts.append(
            f"{', '.join(added)} was added: rows that did not change since are null there, whatever its default"
        )
    return "; ".join(parts) or None


def find_copying(copying: Mapping[str, str], records: Sequence[SchemaRecord]) -> dict[str, str]:
    """Return the copies of a table that are under way at the end of a range, by source the position of their beginning."""
    beginnings = dict(copying)
    for record in records:
        if record.mark == COPY_BEGINS:
            beginnings.setdefault(record.source, record.position)
        elif record.mark == COPY_ENDS:
            beginnings.pop(record.source, None)
    return beginnings


def has_ended(copying: Mapping[str, str], records: Sequence[SchemaRecord]) -> bool:
    """Whether a copy that was under way ended in a range."""
    return any(record.mark == COPY_ENDS and record.source in copying for record in records)


def hold_back(task: TableTask, *, rest: int | None = None) -> TableTask:
    """Return the work without what copies under way bring; `rest` is where bronze has what the table lacks from now on."""
    copying = find_copying(task.published.copying, task.records)
    if not copying and not task.published.copying:
        return task
    after = task.published.bronze_after if task.published.lags else rest
    high = task.high | {source: position for source, position in copying.items() if source in task.high}
    return replace(
        task,
        published=replace(task.published, copying=copying, bronze_after=after),
        high=high,
        # Nothing of a copy that began earlier is inside, not even where the range begins.
        seen=[profile for profile in task.seen if profile.first <= high.get(profile.source, "")],
        records=[record for record in task.records if record.position <= high.get(record.source, "")],
    )


def has_nothing_yet(task: TableTask) -> bool:
    """Whether a table has never been made, and nothing but copies under way would be in it."""
    return bool(task.published.copying) and task.published.version is None and not task.seen


def positions(table: Table, high: Positions) -> Positions:
    """Return where a table is that nothing came for: with its stream, but for the sources that copy it."""
    return {source: min(cut, table.copying.get(source, cut)) for source, cut in high.items()}


def waits(table: Table, published: Positions) -> bool:
    """Whether nothing but copies under way keeps a table from being where its stream is."""
    return table.problem is None and bool(table.copying) and table.positions == positions(table, published)


def reason(copying: Mapping[str, str]) -> str:
    """Return why a table waits."""
    listed = ", ".join(f"{source} (since position {position})" for source, position in sorted(copying.items()))
    return f"its copy from {listed} is not complete: rows of that source are as they were before it"
