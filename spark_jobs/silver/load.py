"""Silver's load: what came to bronze since the last published positions, into every table, then published together.

Guarantees that what is published is each source exactly up to one position, at the end of a transaction, whenever a load
dies: every table's commit carries its own positions, and publishing is one append at the end. A table that cannot go on
stops alone, with the reason published; the others go on. Assumes that one load of a stream runs at a time.
"""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from time import monotonic

from pyspark.sql import SparkSession

from headrace.configuration.lake import LakeFile
from spark_jobs import session, sizes
from spark_jobs.bronze import increment
from spark_jobs.bronze import load as bronze_job
from spark_jobs.bronze.increment import Since
from spark_jobs.errors import explained
from spark_jobs.silver import (
    batch_profile,
    behind,
    copies,
    prechecks,
    table_load,
    table_task,
    tables_load,
    unfinished,
)
from spark_jobs.silver.profiles import BatchProfile
from spark_jobs.silver.table_group import TableGroup
from spark_jobs.silver.table_task import TableTask
from spark_jobs.silver.tables_load import OnProgress
from spark_jobs.state import bronze_identity, delta_log, names, publication, published, schema_texts
from spark_jobs.state.published import Positions, Published, Table
from spark_jobs.state.published_rows import Unfinished

#: Tables from which on bronze is read once for all of them: each would open every file that came (L14).
_MANY = 16


@dataclass(frozen=True, kw_only=True)
class SilverReport:
    """What one load of silver did."""

    stream: str
    #: Number of the load; None when nothing was published.
    load: int | None = None
    #: Source to the positions before (empty at first) and after.
    ranges: dict[str, tuple[str, str]] = field(default_factory=dict)
    #: When the last of it was committed at each source that moved on, in milliseconds since 1970; empty when not looked for.
    committed_ms: dict[str, int] = field(default_factory=dict)
    #: Changes applied, by table.
    changes: dict[str, int] = field(default_factory=dict)
    #: Changes that wait for the end of their transaction, by source.
    waiting: dict[str, int] = field(default_factory=dict)
    #: Why a table stopped, by table.
    problems: dict[str, str] = field(default_factory=dict)
    #: Why rows of a table may differ from their source since its schema changed, by table: what this load found.
    warnings: dict[str, str] = field(default_factory=dict)
    #: Whose tables were brought up ahead of a load; None of a load.
    group: TableGroup | None = None
    seconds: float = 0.0


def load(
    spark: SparkSession,
    lake: LakeFile,
    stream: str,
    *,
    group: TableGroup | None = None,
    side_by_side: int | None = None,
    on_progress: OnProgress | None = None,
) -> SilverReport:
    """Apply and publish everything that bronze has and silver has not, some tables side by side.

    Of a `group` the tables are applied alone, and nothing is published: a load without a group does what is left and publishes.
    `on_progress` receives tables done and tables in all.

    Raises NeedsOperator, CorruptInput or Retryable when nothing can be published; a table that stopped alone is in the report.
    """
    began, started = monotonic(), datetime.now(UTC)
    path = bronze_job.table_path(lake, stream)
    with explained(f"silver {stream}"):
        if not delta_log.is_table(spark, path):
            return SilverReport(stream=stream, seconds=monotonic() - began)
        before = bronze_identity.known_versions(spark, path, published.latest(spark, lake, stream))
        committed = bronze_job.reach(spark, lake, stream)
        version, commit = delta_log.mark(spark, path)
        lagging = behind.found(spark, lake, before)
        known = before.bronze_version
        idle = not behind.to_try(lake, before, lagging)
        if known is not None and idle and delta_log.only_maintained(spark, path, known):
            return SilverReport(stream=stream, problems=_problems(before), seconds=monotonic() - began)
        since = unfinished.chosen(spark, path, before, version, committed)
        few = increment.few(spark, path, since, version, more=unfinished.changes(before, since))
        with table_load.persist_scope() as persist, session.borrowed(spark, few=few) as reading:
            raw = increment.rows(reading, path, since, version)
            if few:
                # All tables read these rows.
                raw = persist(raw.coalesce(1))
            if committed is not None:
                prechecks.check_topics(spark, lake, before, raw, committed)
            new = batch_profile.profile(raw, before.positions, committed=committed)
            many = len({one.table for one in new.seen}) > _MANY
            if many and not few:
                # So that a table reads its own rows: they are next to each other, and what is held has statistics.
                raw = persist(raw.sortWithinPartitions("table"))
            high = new.high
            held = (since, raw) if few or many else None
            context = table_task.LoadContext(
                stream=stream,
                bronze=path,
                version=version,
                load=before.load + 1,
                rest=unfinished.rest(before),
                held=held,
            )
            tasks = _tasks(lake, context, before, new, since, lagging)
            again = behind.to_try(lake, before, lagging, new)
            tasks |= behind.tasks(spark, lake, context, before, high, again)
            if group is not None:
                tasks = {name: one for name, one in tasks.items() if group.has(name)}
            if group is None:
                # Before anybody can query them, so a name never changes; and ahead of the first commit.
                former = [(one.stream, name) for one in published.latest_of_all(spark, lake) for name in one.tables]
                names.record(spark, lake, former, [(stream, name) for name in tasks])
            sizes.follow(spark)
            together = side_by_side or sizes.tables_at_a_time(spark)
            aside = partial(session.borrowed, spark, few=few)
            results = tables_load.run(aside, lake, context, tasks, together, on_progress)
        left = unfinished.after(before, since, new)
        after = _after(before, high, results, (version, commit), left, started)
        worth = group is None and _worth_publishing(before, after)
        if worth:
            after = publication.append(spark, lake, after, before=before)
    return SilverReport(
        stream=stream,
        load=after.load if worth else None,
        ranges={s: (before.positions.get(s, ""), p) for s, p in high.items() if p != before.positions.get(s)},
        committed_ms={s: at for s, at in new.committed_ms.items() if high[s] != before.positions.get(s)},
        changes={name: done.changes for name, done in results.items() if done.changes},
        waiting={source: one.changes for source, one in left.items() if one.changes},
        problems=_problems(after),
        warnings=_new_warnings(before, after),
        group=group,
        seconds=monotonic() - began,
    )


def _tasks(
    lake: LakeFile,
    context: table_task.LoadContext,
    before: Published,
    new: BatchProfile,
    since: Since | None,
    lagging: dict[str, Table],
) -> dict[str, TableTask]:
    """Return what is to be done for each table that has something new and is where the stream is."""
    names = new.tables() - behind.elsewhere(before, lagging)
    schema_texts.fetch_together(before.tables[name].schemas for name in names if name in before.tables)
    return {
        name: copies.held_back(table_task.task_of(lake, before, name, new, after=since), rest=context.rest)
        for name in sorted(names)
    }


def _after(
    before: Published,
    high: Positions,
    results: dict[str, Table],
    bronze: tuple[int, str],
    left: dict[str, Unfinished],
    started: datetime,
) -> Published:
    """Return what is published: tables that nothing happened to are where the stream is."""
    tables = {name: replace(one, changes=0, positions=_moved(one, before, high)) for name, one in before.tables.items()}
    return Published(
        stream=before.stream,
        load=before.load + 1,
        started_at=started,
        bronze_version=bronze[0],
        bronze_commit=bronze[1],
        bronze_done=bronze[0],
        unfinished=left,
        changes=sum(done.changes for done in results.values()),
        positions=high,
        tables=tables | results,
    )


def _moved(one: Table, before: Published, high: Positions) -> Positions:
    """Return where a table is that nothing happened to."""
    if copies.waits(one, before.positions):
        return copies.positions(one, high)
    return high if one.positions == before.positions else one.positions


def _worth_publishing(before: Published, after: Published) -> bool:
    """Whether anything differs but the counts and the times."""
    return (before.bronze_version, before.positions) != (after.bronze_version, after.positions) or any(
        replace(one, changes=0) != replace(before.tables.get(name, Table(table=name)), changes=0)
        for name, one in after.tables.items()
    )


def _new_warnings(before: Published, after: Published) -> dict[str, str]:
    known = {name: one.warnings.keys() for name, one in before.tables.items()}
    new = {
        name: " ".join(text for place, text in one.warnings.items() if place not in known.get(name, ()))
        for name, one in after.tables.items()
    }
    return {name: text for name, text in new.items() if text}


def _problems(state: Published) -> dict[str, str]:
    return {name: one.problem for name, one in state.tables.items() if one.problem is not None}
