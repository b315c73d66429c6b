"""Silver's load: what came to bronze since the last published positions, into every table, then published together.

Guarantees that what is published is each source exactly up to one position, at the end of a transaction, whenever a load
dies: every table's commit carries its own positions, and publishing is one append at the end. A table that cannot go on
stops alone, with the reason published; the others go on. Assumes that one load of a stream runs at a time.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import PurePosixPath
from time import monotonic

from pyspark.sql import DataFrame, SparkSession

from headrace.configuration.lake import LakeFile
from headrace.errors import CorruptInput, NeedsOperator, Retryable
from spark_jobs import sizes, storage
from spark_jobs.bronze import increment
from spark_jobs.bronze import load as bronze_job
from spark_jobs.errors import explained
from spark_jobs.session import for_few_rows
from spark_jobs.silver import batch_profile, rebuild, scd2_load, table_load, topic_coverage
from spark_jobs.silver.batch_profile import BatchProfile
from spark_jobs.silver.incompatible import Incompatible
from spark_jobs.silver.table_group import TableGroup
from spark_jobs.silver.table_load import TableTask
from spark_jobs.state import delta_log, name_registry, published
from spark_jobs.state.published import Positions, Published, Table

#: How often a table is written again after maintenance has taken away the files that its MERGE had read.
_TRIES = 3

Tell = Callable[[int, int], None]


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
    #: Seconds from the first table's commit until all were published: for so long the newest versions were more than that.
    exposed_seconds: float = 0.0
    seconds: float = 0.0


def load(
    spark: SparkSession,
    lake: LakeFile,
    stream: str,
    *,
    group: TableGroup | None = None,
    side_by_side: int | None = None,
    tell: Tell | None = None,
) -> SilverReport:
    """Apply and publish everything that bronze has and silver has not, some tables side by side.

    Of a `group` the tables are applied alone, and nothing is published: a load without a group does what is left and publishes.
    `tell` hears tables done and tables in all.

    Raises NeedsOperator, CorruptInput or Retryable when nothing can be published; a table that stopped alone is in the report.
    """
    began, started = monotonic(), datetime.now(UTC)
    path = bronze_job.table_path(lake, stream)
    with explained(f"silver {stream}"):
        if not delta_log.is_table(spark, path):
            return SilverReport(stream=stream, seconds=monotonic() - began)
        before = published.latest(spark, lake, stream)
        reached = bronze_job.reach(spark, lake, stream)
        version = delta_log.version(spark, path)
        lagging = _lagging(spark, lake, before)
        known = before.bronze_version
        if known is not None and delta_log.only_maintained(spark, path, known) and not lagging:
            return SilverReport(stream=stream, problems=_problems(before), seconds=monotonic() - began)
        few = increment.few(spark, path, before.bronze_done, version)
        aside = for_few_rows if few else SparkSession.newSession
        with table_load.kept() as keep:
            raw = increment.rows(aside(spark), path, before.bronze_done, version)
            if few:
                # All tables read these rows.
                raw = keep(raw.coalesce(1))
            if reached is not None:
                topic_coverage.check(spark, lake, before, raw, reached)
            new = batch_profile.extent(raw, before.positions, reached=reached)
            cuts = new.cuts
            works = _works(lake, before, new)
            if lagging:
                works |= _behind(lake, before, cuts, increment.rows(spark, path, None, version), lagging)
            if group is not None:
                works = {name: one for name, one in works.items() if group.has(name)}
            held = (before.bronze_done, raw) if few and before.bronze_done is not None else None
            job = table_load.LoadContext(stream=stream, bronze=path, version=version, load=before.load + 1, held=held)
            if group is None:
                # Before anybody can query them, so a name never changes; and ahead of the first commit.
                former = [(one.stream, name) for one in published.latest_of_all(spark, lake) for name in one.tables]
                name_registry.record(spark, lake, former, [(stream, name) for name in works])
            committed: list[float] = []
            sizes.follow(spark)
            together = side_by_side or sizes.tables_at_a_time(spark)
            results = _run(lambda: aside(spark), job, works, together, tell, committed)
        done = before.bronze_done if new.more else version
        after = _after(before, cuts, results, version, done, started)
        worth = group is None and _worth_publishing(before, after)
        if worth:
            after = published.append(spark, lake, after, before=before)
    return SilverReport(
        stream=stream,
        load=after.load if worth else None,
        ranges={s: (before.positions.get(s, ""), p) for s, p in cuts.items() if p != before.positions.get(s)},
        committed_ms={s: at for s, at in new.committed_ms.items() if cuts[s] != before.positions.get(s)},
        changes={name: done.changes for name, done in results.items() if done.changes},
        waiting=new.waiting,
        problems=_problems(after),
        warnings=_new_warnings(before, after),
        group=group,
        exposed_seconds=monotonic() - min(committed) if worth and committed else 0.0,
        seconds=monotonic() - began,
    )


def _lagging(spark: SparkSession, lake: LakeFile, before: Published) -> dict[str, Table]:
    """Return the tables that stand behind the stream: stopped ones, ones whose folder was moved away or lack their history."""
    behind = {}
    # One listing for all tables, however many there are.
    there = set(storage.names(spark, table_load.folder(lake, before.stream))) if before.tables else set()
    for name, one in before.tables.items():
        gone = one.version is not None and PurePosixPath(table_load.path(lake, before.stream, name)).name not in there
        without = lake.stream(before.stream).history_of(name) and scd2_load.missing(one)
        if gone:
            behind[name] = replace(one, version=None, positions={}, schemas={}, since=None)
        elif without or one.problem is not None or one.positions != before.positions:
            behind[name] = one
    return behind


def _works(lake: LakeFile, before: Published, new: BatchProfile) -> dict[str, TableTask]:
    """Return what is to be done for each table that has something new."""
    return {
        name: table_load.work(lake, before, name, new, after=before.bronze_done)
        for name in sorted({one.table for one in new.seen})
    }


def _behind(
    lake: LakeFile, before: Published, cuts: Positions, frame: DataFrame, lagging: dict[str, Table]
) -> dict[str, TableTask]:
    """Return the work of tables that stand behind the stream, each from its own positions."""
    works: dict[str, TableTask] = {}
    for name, known in lagging.items():
        new = batch_profile.extent(frame.filter(frame["table"] == name), known.positions, cuts)
        own = replace(before, tables={name: known})
        works[name] = table_load.work(lake, own, name, new, after=None)
    return works


def _run(
    aside: Callable[[], SparkSession],
    job: table_load.LoadContext,
    works: dict[str, TableTask],
    side_by_side: int,
    tell: Tell | None,
    committed: list[float],
) -> dict[str, Table]:
    """Apply the tables side by side; return how each is afterwards, and note when each was committed.

    An error that is not one table's is raised at the end.
    """

    def one(work: TableTask) -> Table:
        for tries in range(_TRIES):
            try:
                # Its own session: the note of a MERGE is a setting of the session.
                with explained(f"silver {work.table}"):
                    session = aside()
                    return _applied(session, job, work, committed)
            except Retryable:
                paths = (work.path, work.history_path)
                if tries + 1 == _TRIES or not any(_compacted(session, path) for path in paths):
                    raise
            except (NeedsOperator, CorruptInput) as error:
                return replace(work.known, changes=0, problem=f"{error.message} {error.hint}".strip())
        raise AssertionError("the last try returns or raises")

    done: dict[str, Table] = {}
    with ThreadPoolExecutor(side_by_side, thread_name_prefix="silver") as pool:
        for name, result in zip(works, pool.map(one, works.values()), strict=True):
            done[name] = result
            if tell:
                tell(len(done), len(works))
    return done


def _applied(session: SparkSession, job: table_load.LoadContext, work: TableTask, committed: list[float]) -> Table:
    """Bring a table and its history up to the cuts, or build them again from a new copy."""
    try:
        current = table_load.apply(session, job, work)
        committed.append(monotonic())
        return scd2_load.apply(session, job, work, current)
    except Incompatible:
        if not work.rebuilds:
            raise
        return rebuild.apply(session, job, *rebuild.from_copies(session, job, work))


def _compacted(spark: SparkSession, path: str) -> bool:
    """Whether maintenance made the newest commit of a table: it took away the files that a MERGE had read."""
    newest = next(delta_log.commits(spark, path), None) if delta_log.is_table(spark, path) else None
    return newest is not None and delta_log.is_maintenance(newest[1])


def _after(
    before: Published, cuts: Positions, results: dict[str, Table], version: int, done: int | None, started: datetime
) -> Published:
    """Return what is published: tables that nothing happened to stand where the stream stands."""
    tables = {
        name: replace(one, changes=0, positions=cuts if one.positions == before.positions else one.positions)
        for name, one in before.tables.items()
    }
    return Published(
        stream=before.stream,
        load=before.load + 1,
        started_at=started,
        bronze_version=version,
        bronze_done=done,
        changes=sum(done.changes for done in results.values()),
        positions=cuts,
        tables=tables | results,
    )


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
