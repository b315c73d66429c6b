"""Silver's load: what came to bronze since the last published positions, into every table, then published together.

Guarantees that what is published is each source exactly up to one position, at the end of a transaction, whenever a load
dies: every table's commit carries its own positions, and publishing is one append at the end. A table that cannot go on
stops alone, with the reason published; the others go on. Assumes that one load of a stream runs at a time.
"""

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from time import monotonic

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.

from headrace.configuration.bridge import topic_of
from headrace.configuration.lake import LakeFile
from spark_jobs import session, tuning
from spark_jobs.bronze import erased_records, increment
from spark_jobs.bronze import load as bronze_job
from spark_jobs.bronze.increment import Since
from spark_jobs.errors import explained
from spark_jobs.silver import batch_profile, expectations, held_back, table_load, table_task, tables_load
from spark_jobs.silver.profiles import BatchProfile
from spark_jobs.silver.tables_load import OnProgress, TableGroup
from spark_jobs.state import delta_log, names, offsets, publication, published
from spark_jobs.state.offsets import Progress
from spark_jobs.state.published import Positions, Published, Table

_log = logging.getLogger(__name__)

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
    #: When the last of it was committed at each source that moved on, in milliseconds since 1970; empty when it was not searched.
    committed_ms: dict[str, int] = field(default_factory=dict)
    #: Changes applied, by table.
    changes: dict[str, int] = field(default_factory=dict)
    #: Versions of these tables that were published.
    versions: dict[str, int | None] = field(default_factory=dict)
    #: Changes that wait for the end of their transaction, by source.
    waiting: dict[str, int] = field(default_factory=dict)
    #: Why sources go no further in any table until somebody acts, by source; others go on.
    held: dict[str, str] = field(default_factory=dict)
    #: Why a table stopped, by table.
    problems: dict[str, str] = field(default_factory=dict)
    #: Why tables could not be loaded this time, by table: the next load tries them again, and they stop when they fail often.
    failed: dict[str, str] = field(default_factory=dict)
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
    goes_on: Callable[[], bool] = lambda: True,
) -> SilverReport:
    """Apply and publish everything that bronze has and silver has not, some tables side by side.

    A large backlog is published in parts, as long as it `goes_on`. Of a `group` the tables are applied alone, of the first
    part, and nothing is published: a load without a group does what is left and publishes. `on_progress` receives tables done
    and tables in all.

    Raises NeedsOperator, CorruptInput or Retryable when nothing can be published; a table that stopped alone is in the report.
    """
    with explained(f"silver {stream}"):
        erased_records.empty_again(spark, lake, stream)
    seen = on_progress or (lambda done, todo: None)  # noqa: ARG005 - nobody looks.
    report, more = _load_part(spark, lake, stream, group, side_by_side, seen)
    while more and not report.failed and goes_on():
        following, more = _load_part(spark, lake, stream, group, side_by_side, seen)
        report = _together(report, following)
    return report


def _together(report: SilverReport, following: SilverReport) -> SilverReport:
    """Return what two parts of a load did."""
    ranges = {
        source: (report.ranges.get(source, following.ranges.get(source, ("", "")))[0], after)
        for source, after in (
            {s: after for s, (_, after) in report.ranges.items()}
            | {s: after for s, (_, after) in following.ranges.items()}
        ).items()
    }
    tables = report.changes.keys() | following.changes.keys()
    return replace(
        following,
        load=report.load if following.load is None else following.load,
        ranges=ranges,
        committed_ms=report.committed_ms | following.committed_ms,
        changes={name: report.changes.get(name, 0) + following.changes.get(name, 0) for name in sorted(tables)},
        versions=report.versions | following.versions,
        warnings=report.warnings | following.warnings,
        seconds=report.seconds + following.seconds,
    )


def _load_part(
    spark: SparkSession,
    lake: LakeFile,
    stream: str,
    group: TableGroup | None,
    side_by_side: int | None,
    on_progress: OnProgress,
) -> tuple[SilverReport, bool]:
    """Apply and publish what a load may hold at once; return what that did, and whether bronze has more."""
    began, started = monotonic(), datetime.now(UTC)
    path = bronze_job.table_path(lake, stream)
    with explained(f"silver {stream}"):
        if not delta_log.is_table(spark, path):
            return SilverReport(stream=stream, seconds=monotonic() - began), False
        before = published.known_versions(spark, path, published.latest(spark, lake, stream))
        newest = delta_log.version(spark, path)
        committed = bronze_job.reach(spark, lake, stream, newest)
        lagging = held_back.find_lagging(spark, lake, before)
        bronze_version = before.bronze_version
        idle = not (tables_load.to_try(lake, before, lagging) or expectations.is_outdated(lake, before))
        if bronze_version is not None and idle and delta_log.only_maintained(spark, path, bronze_version):
            seconds = monotonic() - began
            return SilverReport(stream=stream, problems=_problems(before), held=before.held, seconds=seconds), False
        # It may look for ends of transactions in a backlog.
        with session.borrow(spark, few=False) as reading:
            since = held_back.choose_since(reading, path, before, newest, committed)
        version, committed = _part(spark, lake, before, since, newest, committed)
        few = increment.few(spark, path, since, version, more=held_back.unfinished_changes(before, since))
        with table_load.persist_scope() as persist, session.borrow(spark, few=few) as reading:
            raw = increment.rows(reading, path, since, version)
            if few:
                # All tables read these rows.
                raw = persist(raw.coalesce(1))
            committed, waiting = wait_for_topics(spark, lake, before, raw, committed, version)
            new = batch_profile.profile(
                raw,
                before.positions,
                committed=committed,
                applied=before.partitions,
                all_read=since is None,
                held=before.disordered,
            ).holding(waiting)
            if passed_over := new.tables() & before.dropped.keys():
                _log.info(
                    "stream %s: records of %s are in bronze alone, since the table was dropped from the lake",
                    *(stream, ", ".join(sorted(passed_over))),
                )
            new = new.without(before.dropped)
            many = len({profile.table for profile in new.seen}) > _MANY
            if many and not few:
                # So that a table reads its own rows: they are next to each other, and what is held has statistics.
                raw = persist(raw.sortWithinPartitions("table"))
            persisted = (since, raw) if few or many else None
            context = table_task.LoadContext(
                stream=stream,
                bronze=increment.Bronze(path, version, persisted),
                load=before.load + 1,
                rest=held_back.unpublished_after(before),
                first=not before.load,
                held_sources=frozenset(
                    before.disordered | {s for s, rest in new.beyond.items() if rest.problem is not None}
                ),
                removed=before.bronze_removed,
            )
            profiled = partial(_profiled, spark, context, new.high)
            lacking = published.find_lacking(raw, before)
            tasks = tables_load.tasks(lake, context, before, lagging, new, since, profiled, lacking)
            if group is not None:
                tasks = {name: task for name, task in tasks.items() if group.has(name)}
            if group is None:
                # Before anybody can query them, so a name never changes; and ahead of the first commit.
                former = [
                    (state.stream, name) for state in published.latest_of_all(spark, lake) for name in state.tables
                ]
                names.record(spark, lake, former, [(stream, name) for name in tasks])
            tuning.follow(spark)
            together = side_by_side or tuning.tables_at_a_time(spark)
            aside = partial(session.borrow, spark, begin=session.carry(spark))
            results, failed = tables_load.run(aside, lake, context, tasks, together, on_progress, few=few)
        left = held_back.unfinished_after(before, since, new)
        # Checked again until bronze has caught up.
        read = (None, None) if lacking else (version, delta_log.commit_id(spark, path, version))
        after = expectations.count(
            spark,
            lake,
            before,
            tables_load.published_after(before, new, results, read, left, started),
            few=few,
            publishes=group is None,
        )
        # Whoever cancels a load ends it here, ahead of what its cancelled jobs would publish.
        on_progress(len(results), len(tasks))
        worth = group is None and tables_load.is_worth_publishing(before, after)
        after = publication.append(spark, lake, after, before=before) if worth else after
    report = SilverReport(
        stream=stream,
        load=after.load if worth else None,
        ranges={s: (before.positions.get(s, ""), p) for s, p in new.high.items() if p != before.positions.get(s)},
        committed_ms={s: at for s, at in new.committed_ms.items() if new.high[s] != before.positions.get(s)},
        changes={name: done.changes for name, done in results.items() if done.changes},
        versions={name: after.tables[name].version for name, done in results.items() if done.changes},
        waiting={source: rest.changes for source, rest in left.items() if rest.changes},
        problems=_problems(after),
        held=after.held,
        failed={name: why for name, why in failed.items() if after.tables[name].problem is None},
        warnings=_new_warnings(before, after),
        group=group,
        seconds=monotonic() - began,
    )
    return report, worth and version < newest


def _part(
    spark: SparkSession,
    lake: LakeFile,
    before: Published,
    since: Since | None,
    newest: int,
    committed: Positions | None,
) -> tuple[int, Positions | None]:
    """Return up to which version of bronze to read, and up to where all of each source is in bronze there."""
    path = bronze_job.table_path(lake, before.stream)
    if before.load and since is None:
        # All of bronze is read, and would be again for the next part.
        return newest, committed
    version = increment.bounded(spark, path, since, newest, reaches=committed is not None)
    return version, committed if version == newest else bronze_job.reach(spark, lake, before.stream, version)


def _profiled(
    spark: SparkSession, context: table_task.LoadContext, high: Positions, table: Table, since: Since | None
) -> BatchProfile:
    """Return what bronze has of a table after its own positions, up to the load's high watermarks."""
    # It may be all of bronze.
    with session.borrow(spark, few=False) as reading:
        rows = increment.rows(reading, context.bronze.path, since, context.bronze.version)
        return batch_profile.profile(rows.filter(F.col("table") == table.table), table.positions, high)


def _new_warnings(before: Published, after: Published) -> dict[str, str]:
    places = {name: table.warnings.keys() for name, table in before.tables.items()}
    new = {
        name: " ".join(text for place, text in table.warnings.items() if place not in places.get(name, ()))
        for name, table in after.tables.items()
    }
    return {name: text for name, text in new.items() if text}


def _problems(state: Published) -> dict[str, str]:
    return {name: table.problem for name, table in state.tables.items() if table.problem is not None}


def wait_for_topics(
    spark: SparkSession, lake: LakeFile, before: Published, new: DataFrame, committed: Positions | None, version: int
) -> tuple[Positions | None, dict[str, str]]:
    """Return up to where all of each source is in a version of bronze, and why sources go no further, by source.

    A stream of one topic has no such positions. A source that first describes a table whose topic is not read is held before
    that: its changes could be anywhere behind it. So is one that the stream does not name. Others go on.
    """
    if committed is None:
        return None, {}
    stream = before.stream
    # Marks of a copy go ahead of no change, and have a transaction of their own.
    needed = F.col("op").isNotNull() | F.col("transaction_id").isNull()
    rows = new.filter(F.col("source").isNotNull() & needed).groupBy("source", "table")
    within = batch_profile.within(before.positions) & batch_profile.within({}, committed)
    seen = rows.agg(
        F.min(F.when(within, F.col("position"))).alias("first"),
        F.bool_or(within & F.col("op").isNotNull()).alias("changed"),
    ).collect()
    held = dict.fromkeys({row["source"] for row in seen} - set(lake.stream(stream).sources), _STRANGER)
    announced = [row for row in seen if row["table"] and row["first"] and not row["changed"]]
    if not announced:
        return committed, held
    in_bronze = offsets.read(spark, bronze_job.table_path(lake, stream), version)
    unread = find_unread(lake, stream, {row["table"] for row in announced}, in_bronze)
    limited = dict(committed)
    for source in sorted({row["source"] for row in announced if row["table"] in unread}):
        tables = {row["table"]: row["first"] for row in announced if row["source"] == source and row["table"] in unread}
        first = min(tables.values())
        own = new.filter((F.col("source") == source) & (F.col("position") < first)).agg(F.max("position")).first()
        assert own is not None
        limited[source] = max(own[0] or "", before.positions.get(source, ""))
        if not limited[source]:
            # Nothing at all: no position would be no limit.
            del limited[source]
        topics = ", ".join(f"{table} ({unread[table]})" for table in sorted(tables))
        held[source] = (
            f"from position {first} on it has changes in topics that the lake does not see: {topics}. {_UNREAD}"
        )
    return limited, held


_STRANGER = (
    "the stream's 'sources' do not name it. Add it there in the lake's file: it is shown up to its committed position"
)
_UNREAD = (
    "Other sources go on. Let the lake's user read all topics that begin with the stream's prefix, and compare 'prefix' in the "
    "lake's file with the bridge's: the next load takes what is there."
)


def find_unread(lake: LakeFile, stream: str, tables: Collection[str], held: Progress | None) -> dict[str, str]:
    """Return the topics of those of the tables whose topics are not read, or not known to be: the next note has all again."""
    topics = {name: topic_of(lake.prefix(stream), name) for name in sorted(tables)}
    return {name: topic for name, topic in topics.items() if held is None or topic not in held.topics}
