"""Bronze done again from Kafka, or silver from bronze: all of it, or from an offset, a position or a time at a source on.

Bronze is one commit that puts what Kafka holds in the place of the rows from the point on: readers see the old rows until then,
and a replay that dies has changed nothing. Rows that Kafka no longer holds are never removed.

Of silver readers go on seeing the old tables until all new ones are published together. Each table is one overwriting commit,
made of the newest published state before the point, or of nothing, and of bronze's changes from there to what is published now. A
replay that dies has published nothing; loads and replays after it go on as if it had not been. Called by `headrace lake replay`.
"""

import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.

from headrace.configuration.lake import LakeFile
from headrace.errors import ConfigurationError, CorruptInput, NeedsOperator
from headrace.position import Position
from spark_jobs import storage
from spark_jobs.bronze import avro_records, erased_records, erasures, increment, quarantine, sink
from spark_jobs.bronze import load as bronze
from spark_jobs.bronze.envelope import COLUMNS, ordered
from spark_jobs.bronze.load import BronzeReport
from spark_jobs.errors import explained
from spark_jobs.kafka import topics
from spark_jobs.kafka.client import Place, Topic
from spark_jobs.query import overlay_databases, published_tables, snapshot
from spark_jobs.query.snapshot import StreamSnapshot
from spark_jobs.silver import batch_profile, commit, expectations, rebuild, scd2, source_order, table_load, table_task
from spark_jobs.silver import merge as write
from spark_jobs.silver.load import SilverReport, wait_for_topics
from spark_jobs.silver.tables_load import OnProgress
from spark_jobs.silver.types import Incompatible
from spark_jobs.state import delta_log, names, offsets, publication, published
from spark_jobs.state.offsets import Held, Progress
from spark_jobs.state.published import Positions, Published, Table
from spark_jobs.state.published_rows import NEW


def of_bronze(spark: SparkSession, lake: LakeFile, stream: str, since: str | None) -> BronzeReport:
    """Read again from Kafka what bronze holds, from a point on, or all that Kafka still has of it.

    Raises NeedsOperator when Kafka no longer holds the point, or the topic is another one.
    """
    began = monotonic()
    with explained(f"replay bronze {stream}"):
        path = bronze.table_path(lake, stream)
        there = topics.describe(lake, stream, topics.observe(lake, stream))
        # Rows that were removed are no reason to refuse it: what Kafka has of them comes again.
        held = offsets.of_table(spark, lake, path, stream, COLUMNS, by_rows=True)
        if not held.topics:
            raise NeedsOperator(f"bronze of stream {stream!r} is empty", hint=f"Run 'headrace lake load {stream}'.")
        topics.check(lake, stream, held, there, path)
        beginning = _find_beginning(held, there, _offsets(spark, lake, stream, since) if since else {})
        if since:
            topics.check_retention(beginning, [topic for topic in there if topic.name in held.topics], stream)
        ranges = {name: bronze.ranges_of(beginning, held, name) for name in held.topics}
        ranges = {name: by_partition for name, by_partition in ranges.items() if by_partition}
        metrics = _overwrite(spark, lake, stream, held, ranges) if ranges else {}
        if not ranges:
            sink.renew(spark, lake, stream, sink.Sink(spark, lake, stream, held))
    return BronzeReport(
        stream=stream,
        topic=there[0].name,
        ranges=ranges.get(there[0].name, {}),
        tables={name: by_partition for name, by_partition in ranges.items() if name != there[0].name},
        records=int(metrics.get("numOutputRows", 0)),
        files=int(metrics.get("numFiles", 0)),
        batches=min(1, len(ranges)),
        seconds=monotonic() - began,
    )


def _find_beginning(held: Progress, there: list[Topic], starts: dict[Place, int]) -> Progress:
    """Return where reading begins in what bronze holds: at the given starts, else where Kafka does."""
    return Progress(
        topics={
            topic.name: Held(
                {p: starts.get(Place(topic.name, p), topic.starts[p]) for p in held.of(topic.name).offsets}, topic.id
            )
            for topic in there
            if topic.name in held.topics
        }
    )


def _overwrite(
    spark: SparkSession, lake: LakeFile, stream: str, held: Progress, ranges: dict[str, bronze.Ranges]
) -> dict[str, Any]:
    path = bronze.table_path(lake, stream)

    places = " OR ".join(
        f"(topic = '{name}' AND partition = {p} AND offset >= {start})"
        for name, by_partition in sorted(ranges.items())
        for p, (start, _) in sorted(by_partition.items())
    )
    after = replace(held, rewritten=delta_log.version(spark, path) + 1)
    if lake.registry is not None:
        avro_records.learn(spark, lake, stream, ranges)
    # A partition may have had other sources, which bronze knows, and may have been given to another one.
    sources = {p: set(names) for p, names in held.sources.items()}
    for row in _bronze(spark, lake, stream).select("partition", "source").dropna().distinct().collect():
        sources.setdefault(row["partition"], set()).add(row["source"])
    for partition, owner in quarantine.renewed(lake, stream, {p: tuple(n) for p, n in sources.items()}).items():
        sources[partition].add(owner)
    accepted = {p: tuple(sorted(names)) for p, names in sources.items()}
    rows, refused = avro_records.divided(spark, lake, stream, ranges, accepted)
    quarantine.keep(spark, lake, stream, refused)
    rows = erasures.emptied(spark, lake, stream, rows)
    _, info = sink.commit(spark, path, stream, ordered(rows), held, after, replaceWhere=places)
    return info.get("operationMetrics") or {}


def positions(spark: SparkSession, lake: LakeFile, stream: str, since: str) -> Positions:
    """Return each source's last position before a point: what silver is done again after."""
    frame = _bronze(spark, lake, stream)
    if "/" not in since and not since.replace(":", "").isdigit():
        return overlay_databases.high_watermarks(spark, lake, stream, moment(since))
    before = _before(lake, stream, since)
    newest = frame.filter(F.col("op").isNotNull() & before).groupBy("source").agg(F.max("position").alias("position"))
    return {row["source"]: row["position"] for row in newest.collect()}


def _offsets(spark: SparkSession, lake: LakeFile, stream: str, since: str) -> dict[Place, int]:
    """Return the offset in each partition after the last row before a point."""
    frame = _bronze(spark, lake, stream)
    if "/" not in since and not since.replace(":", "").isdigit():
        reached = overlay_databases.high_watermarks(spark, lake, stream, moment(since))
        before = F.lit(False)
        for source, position in sorted(reached.items()):
            before |= (F.col("source") == source) & (F.col("position") <= position)
    else:
        before = _before(lake, stream, since)
    last = F.max(F.when(before, F.col("offset"))).alias("last")
    rows = frame.groupBy("topic", "partition").agg(last).collect()
    return {Place(row["topic"], row["partition"]): row["last"] + 1 if row["last"] is not None else 0 for row in rows}


def _bronze(spark: SparkSession, lake: LakeFile, stream: str) -> DataFrame:
    return spark.read.format("delta").load(bronze.table_path(lake, stream))


def _before(lake: LakeFile, stream: str, since: str) -> Column:
    """Return the condition of rows before an offset or a position; others' partitions and sources are all before it."""
    if "/" not in since:
        if lake.stream(stream).topic_per_table:
            raise ConfigurationError(
                f"{since!r} is an offset, and stream {stream!r} has a topic for each table",
                hint="Name a position of a source (SOURCE=POSITION) or a time.",
            )
        partition, _, offset = since.rpartition(":")
        return (F.col("partition") != int(partition or 0)) | (F.col("offset") < int(offset))
    source, _, position = since.rpartition("=")
    sources = lake.stream(stream).sources
    try:
        Position.parse(position)
        is_ours = (source or sources[0]) in sources and (bool(source) or len(sources) == 1)
    except CorruptInput:
        is_ours = False
    if not is_ours:
        raise ConfigurationError(
            f"{since!r} is no position of a source of stream {stream!r}",
            hint="Write it as SOURCE=POSITION, as 'headrace lake positions' shows them.",
        )
    return (F.col("source") != (source or sources[0])) | (F.col("position") < position)


def moment(text: str) -> datetime:
    """Return a moment as a person writes it; one without a zone is in UTC, as all times of the lake are."""
    try:
        when = datetime.fromisoformat(text)
    except ValueError as error:
        raise ConfigurationError(
            f"{text!r} is no moment", hint="Write it as 2026-01-31T09:15:00, in UTC, or with an offset: ...+07:00."
        ) from error
    return when if when.tzinfo else when.replace(tzinfo=UTC)


def of_silver(
    spark: SparkSession,
    lake: LakeFile,
    stream: str,
    since: Positions | None = None,
    *,
    on_progress: OnProgress | None = None,
) -> SilverReport:
    """Make every table of the stream again and publish them together; with `since`, from positions of its sources on.

    Raises NeedsOperator when nothing is published, nothing that old is kept, or rows were erased since. A table that cannot be
    made stays as it is published, and is in the report.
    """
    began, started = monotonic(), datetime.now(UTC)
    with explained(f"replay silver {stream}"):
        bronze_path = bronze.table_path(lake, stream)
        erased_records.empty_again(spark, lake, stream)
        before = published.known_versions(spark, bronze_path, published_tables.positions(spark, lake, stream))
        nothing = Published(stream=stream, dropped=before.dropped, bronze_removed=before.bronze_removed)
        base = nothing if since is None else _base(spark, lake, stream, since)
        taken = _take_in_order(spark, lake, before, base)
        sources = before.disordered - taken.disordered
        # Those are read from where they began to wait.
        waiting = {
            source: replace(base.unfinished[source], problem=None) for source in sources & base.unfinished.keys()
        }
        base = replace(base, unfinished=base.unfinished | waiting)
        at = snapshot.moment(spark, lake, base, taken.positions)
        assert at is not None, "what is published came from bronze"
        published.refuse_lacking(increment.rows(spark, bronze_path, None, at.version), before)
        aside = f"{storage.scratch_root(lake)}/{storage.new_scratch_name()}"
        tables, failed = dict(before.tables), dict[str, str]()
        context = table_task.LoadContext(
            stream=stream,
            bronze=increment.Bronze(bronze_path, at.version),
            load=before.load + 1,
            removed=before.bronze_removed,
        )
        former = [(state.stream, name) for state in published.latest_of_all(spark, lake) for name in state.tables]
        names.record(spark, lake, former, [(stream, name) for name in at.tables()])
        try:
            # Those first that may fail again: what is overwritten ahead of that waits for the next replay.
            stopped = {name for name, table in before.tables.items() if table.problem is not None}
            for done, name in enumerate(sorted(at.tables(), key=lambda name: name not in stopped), 1):
                table = before.tables.get(name, Table(table=name))
                try:
                    with explained(f"silver {name}"):
                        tables[name] = _table(
                            spark.newSession(), lake, context, at, table, f"{aside}/{uuid.uuid4().hex}"
                        )
                except (NeedsOperator, CorruptInput) as error:
                    if sources & (table.schemas.keys() | {profile.source for profile in at.new.of_table(name)[0]}):
                        # A later load would pass over what came late.
                        raise
                    failed[name] = f"{error.message} {error.hint}".strip()
                    # Of one without some sources the others go on.
                    problem = table.problem if table.held_back else failed[name]
                    tables[name] = replace(table, changes=0, problem=problem)
                if on_progress:
                    on_progress(done, len(at.tables()))
        finally:
            storage.delete(spark, aside)
        # What was published before of these is without what came late: no state of then is begun with.
        tables |= {name: replace(table, since=NEW) for name, table in tables.items() if sources & table.schemas.keys()}
        after = replace(
            taken,
            load=context.load,
            started_at=started,
            changes=sum(t.changes for t in tables.values()),
            tables=tables,
        )
        after = publication.append(spark, lake, expectations.count(spark, lake, before, after), before=before)
    return SilverReport(
        stream=stream,
        load=after.load,
        ranges={source: (base.positions.get(source, ""), cut) for source, cut in taken.positions.items()},
        changes={name: table.changes for name, table in tables.items() if table.changes},
        problems={name: table.problem for name, table in tables.items() if table.problem is not None} | failed,
        held=after.held,
        seconds=monotonic() - began,
    )


def _take_in_order(spark: SparkSession, lake: LakeFile, before: Published, base: Published) -> Published:
    """Return what is published with all of sources whose order was not known: who asks for a replay knows that it is there.

    Raises NeedsOperator where the `base` that the replay begins with is not before all that came since.
    """
    path = bronze.table_path(lake, before.stream)
    version = delta_log.version(spark, path)
    reached, rows = bronze.reach(spark, lake, before.stream, version), increment.rows(spark, path, None, version)
    sources = before.disordered
    if not sources:
        return before
    reached, waiting = wait_for_topics(spark, lake, before, rows, reached, version)
    sources -= waiting.keys()
    whole, partitions, ends = batch_profile.take_in_order(rows, sources, reached)
    for source, first in source_order.find_first_beyond(
        rows, {s: before.partitions.get(s, {}) for s in sources}
    ).items():
        if base.positions.get(source, "") >= first:
            raise NeedsOperator(
                f"what came of {source} while it was held begins at position {first}, and this replay would begin behind that",
                hint=f"Name an earlier point, such as --from {source}={first}; or do all of it again, without --from.",
            )
    positions = before.positions | {s: max(p, before.positions.get(s, "")) for s, p in whole.items()}
    unfinished = {source: rest for source, rest in before.unfinished.items() if source not in sources}
    for source, end in ends.items():
        if end > positions.get(source, ""):
            unfinished[source] = replace(before.unfinished[source], upto=end, problem=None)
    return replace(before, positions=positions, partitions=before.partitions | partitions, unfinished=unfinished)


def _base(spark: SparkSession, lake: LakeFile, stream: str, since: Positions) -> Published:
    kept_since = datetime.now(UTC) - timedelta(days=lake.lake.keep_days)
    state = published.before(spark, lake, stream, since, kept_since)
    if state is None:
        raise NeedsOperator(
            f"nothing that was published of stream {stream!r} in the last {lake.lake.keep_days} days is that old",
            hint=f"Do all of it again: 'headrace lake replay {stream}' without --from.",
        )
    # What earlier releases published has no time.
    published_at = state.finished_at or datetime.fromtimestamp(0, UTC)
    if erased := state.tables.keys() & erasures.find_since(spark, lake, stream, state.load, published_at):
        raise NeedsOperator(
            f"rows of {', '.join(sorted(erased))} were erased after what was published of stream {stream!r} before that point",
            hint=f"Do all of it again: 'headrace lake replay {stream}' without --from, or from a later point.",
        )
    return state


def _table(
    spark: SparkSession, lake: LakeFile, context: table_task.LoadContext, at: StreamSnapshot, table: Table, scratch: str
) -> Table:
    """Overwrite one table; return its state. The session is this table's own."""
    task = snapshot.task_of(spark, lake, at, table.table)
    if not at.base.load:
        # Of the table as it is published nothing is kept, not even what it waits for.
        empty = replace(
            table, schemas={}, positions={}, held_back={}, copying=task.published.copying, bronze_after=None
        )
        return _from_bronze(spark, context, replace(task, published=empty))
    try:
        base = table_load.read_base(spark, context, replace(task, published=table), overwrites=True)
        rows = spark.sql(snapshot.sql(spark, lake, at, table.table, scratch))
        own = commit.begin(spark, base, context.attempt)
        write.replace(rows, task.path, table_load.note(context, task, base), own)
        version = commit.find_own_version(spark, base, context.attempt)
    finally:
        snapshot.forget(spark, scratch)
    return replace(
        replace(table, held_back=task.published.held_back, copying=task.published.copying).as_going_on(),
        version=version,
        changes=sum(profile.changes for profile in task.seen),
        positions=task.high,
        schemas=table_task.newest_schemas(task),
        bronze_after=None,
    )


def _from_bronze(spark: SparkSession, context: table_task.LoadContext, task: table_task.TableTask) -> Table:
    """Overwrite one table with all that bronze has of it, or what it has since the newest copy that fits the present schema."""
    try:
        done = table_load.build(spark, context, task, {})
    except Incompatible:
        return rebuild.apply(spark, context, *rebuild.from_copies(spark, context, task))
    return done if task.history is None else scd2.rebuild(spark, context, task, done)
