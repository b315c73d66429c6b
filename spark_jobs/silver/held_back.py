"""What a load does not publish yet, and from where bronze is read again for it: transactions that have not ended, tables behind
their stream, copies under way. And warnings about tables that may need a copy.

A source with an unfinished transaction holds up no other one, and is itself read again, from a version of bronze on, only once
something ended.

Tables are behind their stream that stopped, failed, lost their folder, or lack a history that is configured now. What a stopped
table needs of bronze came after a version that is remembered when it stops, so no load reads bronze from its beginning for it;
and it is tried again only when something of it came, the lake's file changed, or a new release runs.

What a source's new copy brings to a table is published once the copy is complete. An edge marks the beginning and the end of a
copy of a whole table (docs/records.md); an earlier release marks neither, and its copies are published as they come. Between the
marks that source's rows of the table stay as they were before the copy; other sources and other tables go on.

A table may hold other values than its sources since a schema changed: the log has no record of what that did to rows. A renamed
column is a column that vanished and another one that appeared; an added column may have a default, which older rows have at the
source alone. An edge that sees such a change marks the schema record (`rewritten`, with the reasons); for other records, what the
schemas suggest is a warning. A truncate of the source, with which `edge snapshot --replace` begins, ends both.

Called by loads, replays, rebuilds, and where bronze is read beyond what is published.
"""

import hashlib
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import PurePosixPath

import msgspec
from pyspark.sql import SparkSession

from headrace import __version__
from headrace.configuration.lake import LakeFile
from headrace.errors import CorruptInput
from headrace.schema import COPY_BEGINS, COPY_ENDS, TableSchema
from spark_jobs import storage
from spark_jobs.bronze import increment
from spark_jobs.bronze.increment import Since
from spark_jobs.silver import table_task, types
from spark_jobs.silver.profiles import BatchProfile, Missing, TableProfile
from spark_jobs.silver.schema_versions import SchemaRecord, SchemaVersions
from spark_jobs.silver.table_task import LoadContext, TableTask
from spark_jobs.state.published import Positions, Published, Table
from spark_jobs.state.published_rows import HeldBack, Unfinished

#: Characters of a reason that are kept: names of columns are as long as their owners like.
_MOST = 4_000
#: How often a table is tried, by as many loads, before it stops with what it failed with.
TRIES = 3


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
        without = lake.stream(before.stream).history_of(name) and _lacks_history(table)
        if gone:
            behind[name] = replace(
                table, version=None, positions={}, schemas={}, since=None, problem=None, bronze_after=None, failures=0
            )
        elif without or table.problem is not None or table.positions != before.positions:
            behind[name] = table
    return behind


def _lacks_history(table: Table) -> bool:
    """Whether a table has rows to keep the history of, and no history: one without a key never has."""
    return table.version is not None and table.history is None and table.keyed


def stop_table(lake: LakeFile, context: LoadContext, task: TableTask, problem: str) -> Table:
    """Return a table that stops: as it was, with the reason, and what is known of where it goes on."""
    return replace(_left(context, task), problem=problem[:_MOST], settings=digest_settings(lake, context.stream))


def fail_table(lake: LakeFile, context: LoadContext, task: TableTask, error: str) -> Table:
    """Return a table that could not be loaded for a reason that may pass: as it was, and stopped once it failed often enough."""
    failures = task.published.failures + 1
    if failures < TRIES:
        return replace(_left(context, task), failures=failures)
    return replace(stop_table(lake, context, task, f"failed {failures} times: {error}"), failures=failures)


def _left(context: LoadContext, task: TableTask) -> Table:
    """Return a table as it was, with what is known of where it goes on."""
    table = task.published
    if table.held_back:
        # The next load tries all of its sources again.
        table = replace(table, held_back={}, problem=None)
    # All of it came after a version; in the first load of a stream, after none.
    rest = context.rest if task.after is not None else -1 if context.first else None
    # A copy that ended in the range began before it.
    lagged = task.published.lags or table.bronze_after is not None
    return replace(table, changes=0, bronze_after=table.bronze_after if lagged else rest)


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


def unpublished_since(state: Published, sources: Iterable[str] | None = None) -> Since | None:
    """Return the point in bronze after which all came that is not published: of some sources, or all, what is unfinished too."""
    # Only a replay reads those that are out of order.
    chosen = set(state.unfinished if sources is None else sources) - state.disordered
    back = {name: state.unfinished[name] for name in chosen}
    return Since.of(state.bronze_done, {source: waiting.after for source, waiting in back.items()})


def choose_since(
    spark: SparkSession, path: str, before: Published, version: int, reached: Mapping[str, str] | None
) -> Since | None:
    """Return the point after which a load reads bronze; None when it has to read all of it.

    Where tables have topics of their own, what ends a transaction may have come ahead of the rest of it.
    """
    if before.bronze_done is None or not increment.is_readable_after(spark, path, before.bronze_done):
        return None
    if not before.unfinished.keys() - before.disordered or reached is not None:
        return unpublished_since(before)
    return unpublished_since(
        before, increment.ended(increment.rows(spark, path, unpublished_since(before, ()), version), before.unfinished)
    )


def unpublished_after(state: Published) -> int | None:
    """Return the version of bronze after which all came that is not published; None when it is not known."""
    if state.bronze_done is None:
        return None
    return min([state.bronze_done, *(waiting.after for waiting in state.unfinished.values())])


def unfinished_changes(state: Published, since: Since | None) -> int:
    """Return how many changes that were unfinished are read again from a point on."""
    return sum(state.unfinished[source].changes for source, _ in since.back) if since else 0


def unfinished_after(before: Published, read: Since | None, new: BatchProfile) -> dict[str, Unfinished]:
    """Return what is unfinished by source, once a load has read bronze after a point."""
    left = {}
    for source in sorted(before.unfinished.keys() | new.beyond.keys()):
        old, more = before.unfinished.get(source), new.beyond.get(source)
        if old is not None and read is not None and source not in dict(read.back):
            changes, upto = (more.changes, more.upto) if more else (0, "")
            problem = (more and more.problem) or old.problem
            left[source] = replace(old, changes=old.changes + changes, upto=max(old.upto, upto), problem=problem)
        elif more is not None:
            came = -1 if before.bronze_done is None else before.bronze_done
            if old is not None and (old.problem is not None or new.high.get(source, "") < old.upto):
                came = old.after
            left[source] = Unfinished(after=came, changes=more.changes, upto=more.upto, problem=more.problem)
    return left


#: What a warning begins with when the edge itself marked the table.
NEEDS_COPY = "needs copy"


def copy_warnings(
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


def has_copy_ended(copying: Mapping[str, str], records: Sequence[SchemaRecord]) -> bool:
    """Whether a copy that was under way ended in a range."""
    return any(record.mark == COPY_ENDS and record.source in copying for record in records)


def hold_back(task: TableTask, *, rest: int | None = None) -> TableTask:
    """Return the work without what copies under way bring, and without sources with which the table cannot be.

    `rest` is where bronze has what the table lacks from now on.
    """
    table = task.published
    copying = find_copying(table.copying, task.records)
    if not copying and not table.waiting:
        return task
    table = replace(table, copying=copying, bronze_after=table.bronze_after if table.lags else rest)
    # Nothing of a copy that began earlier is inside, not even where the range begins.
    return table_task.limit(replace(task, published=table), table.waiting)


def has_nothing_yet(task: TableTask) -> bool:
    """Whether a table has never been made, and nothing but what waits would be in it."""
    return bool(task.published.waiting) and task.published.version is None and not task.seen


def waiting_positions(table: Table, high: Positions) -> Positions:
    """Return where a table is that nothing came for: with its stream, but for the sources whose rows wait."""
    positions = {source: min(cut, table.waiting.get(source, cut)) for source, cut in high.items()}
    return {source: position for source, position in positions.items() if position}


def waits_for_sources(table: Table, published: Positions) -> bool:
    """Whether nothing but sources whose rows wait keeps a table from being where its stream is."""
    stopped = table.problem is not None and not table.held_back
    return not stopped and bool(table.waiting) and table.positions == waiting_positions(table, published)


def take_back(table: Table, lacking: Collection[str] = (), *, lost: bool = False) -> Table:
    """Return a table with the sources that it is without, so that they are tried again.

    But for those of which bronze is `lacking` records; and one that has lost its folder is made up to where it showed them
    first: as far it had what they sent.
    """
    held = {source: of_source for source, of_source in table.held_back.items() if lost or source in lacking}
    missing = {
        source: HeldBack(at=table.positions.get(source, ""), reason=_LACKING)
        for source in lacking
        if source in table.copying and source not in held
    }
    return replace(table, held_back=held | missing, problem=None)


#: Why a source is held back whose copy may have ended in records that bronze has no more.
_LACKING = "bronze lacks records of it that were published"


def may_take_back(table: Table, settings: str, records: Sequence[SchemaRecord], seen: Sequence[TableProfile]) -> bool:
    """Whether a table may have what a source sent that it is without, by its schema records and changes in a range.

    A schema that its source has already is no reason to read all again.
    """
    former = {source: digest_schema(text) for source, text in table.schemas.items()}
    former |= {source: of_source.schema for source, of_source in table.held_back.items()}
    described = any(digest_schema(record.value) != former.get(record.source) for record in records)
    truncated = any(profile.source in table.held_back and profile.truncates for profile in seen)
    copied = any(record.mark == COPY_ENDS and record.source in table.held_back for record in records)
    lacked = any(of_source.reason == _LACKING for of_source in table.held_back.values())
    return bool(table.held_back) and (table.settings != settings or described or truncated or copied or lacked)


def digest_schema(text: str | None) -> str:
    """Return a digest of what has to fit of a schema record, its key and its columns in any order; empty for none."""
    if not text:
        return ""
    try:
        schema = TableSchema.parse(text)
    except CorruptInput:
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
    declared = [(column.name, column.type_name, column.length, column.scale, column.form) for column in schema.columns]
    columns = sorted(declared, key=str)
    return hashlib.blake2b(msgspec.json.encode((schema.key, columns)), digest_size=8).hexdigest()


def waiting_reason(copying: Mapping[str, str]) -> str:
    """Return why a table waits."""
    listed = ", ".join(f"{source} (since position {position})" for source, position in sorted(copying.items()))
    return f"its copy from {listed} is not complete: rows of that source are as they were before it"
