"""What a load has to do for one table: its range of changes, its schema records, the steps in which they are applied.

Reads no rows but to find where a step ends. Called by the loads of current rows and of histories, by replays and by live rows.
"""

import functools
import operator
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.

from headrace.configuration.lake import LakeFile, TableOptions
from headrace.schema import TableSchema
from spark_jobs.bronze.increment import Bronze, Since
from spark_jobs.errors import Misfit
from spark_jobs.session import plan_for_many
from spark_jobs.silver import batch_profile, changes, profiles, target_schema
from spark_jobs.silver.profiles import BatchProfile, TableProfile, Truncate
from spark_jobs.silver.schema_versions import SchemaRecord, SchemaVersions
from spark_jobs.silver.target_schema import TargetSchema
from spark_jobs.silver.types import rekeyed
from spark_jobs.state import published
from spark_jobs.state.published import Positions, Published, Table
from spark_jobs.storage import name as _q


@dataclass(frozen=True, kw_only=True)
class LoadContext:
    """What all tables of a load have in common."""

    stream: str
    bronze: Bronze
    #: Number of the load.
    load: int
    #: Version of bronze after which all came that tables lack that are not behind; None when not known.
    rest: int | None = None
    #: Position up to which bronze may lack the records of each source.
    removed: Positions = field(default_factory=dict)
    #: Whether nothing of the stream was published before it.
    first: bool = False
    #: Sources that go no further until somebody acts.
    held_sources: frozenset[str] = frozenset()
    #: Id by which this load finds its own commits.
    attempt: str = field(default_factory=lambda: uuid.uuid4().hex)


@dataclass(frozen=True, kw_only=True)
class TableTask:
    """What is to be done for a table."""

    table: str
    path: str
    #: How it was published last.
    published: Table
    high: Positions
    #: What bronze has for it, by source.
    seen: list[TableProfile]
    #: Its schema records in the range, in position order.
    records: list[SchemaRecord]
    #: The schema records by which the table's stored rows were written, by source.
    former_schemas: dict[str, str] = field(default_factory=dict)
    #: The point in bronze after which everything came that is to be done; None when not known.
    after: Since | None = None
    #: How its former rows are kept, and where; None when they are not.
    history: TableOptions | None = None
    history_path: str = ""
    #: Whether its deleted rows stay, marked.
    soft: bool = False
    #: Whether a value that silver's type cannot hold is null.
    nulls_unsupported: bool = False
    #: Whether it is kept as every reader of Delta knows it.
    open: bool = False
    #: Whether it is rebuilt when its rows cannot become what the schema is now, and the folder of its former rows.
    rebuilds: bool = False
    former_path: str = ""

    @property
    def sources(self) -> set[str]:
        """The sources that have, or have had, rows of it."""
        of_range = {profile.source for profile in self.seen} | {record.source for record in self.records}
        return of_range | self.published.schemas.keys()

    @property
    def is_shared(self) -> bool:
        """Whether several sources have rows of it."""
        return len(self.sources) > 1

    @functools.cached_property
    def versions(self) -> SchemaVersions:
        """The schemas of its range; raises CorruptInput for a record that is none."""
        return SchemaVersions.read(self.published.schemas, self.records, {})

    @property
    def truncated(self) -> Positions:
        """The position of each source's last truncate in the range."""
        return profiles.last_truncates(find_truncates(self, self.seen, {}))


def folder(lake: LakeFile, stream: str) -> str:
    """Return the folder of a stream's silver tables."""
    return f"{lake.root}/silver/{stream}"


def path(lake: LakeFile, stream: str, table: str) -> str:
    """Return the path of a silver table: `silver/<stream>/<schema>.<table>`, so streams never collide."""
    return f"{lake.root}/silver/{stream}/{published.folder(table)}"


def history_path(lake: LakeFile, stream: str, table: str) -> str:
    """Return the path of a table's history."""
    return f"{lake.root}/history/{stream}/{published.folder(table)}"


def task_of(lake: LakeFile, before: Published, name: str, new: BatchProfile, *, after: Since | None) -> TableTask:
    """Return what is to be done for a table, of what bronze has for all tables."""
    table = before.tables.get(name, Table(table=name, positions=before.positions))
    seen, records = new.of_table(name)
    return TableTask(
        table=name,
        path=path(lake, before.stream, name),
        published=table,
        former_schemas=dict(table.schemas),
        high=new.high,
        seen=seen,
        records=records,
        after=after,
        history=lake.stream(before.stream).history_of(name),
        history_path=history_path(lake, before.stream, name),
        soft=lake.stream(before.stream).marks_deleted(name),
        nulls_unsupported=lake.stream(before.stream).nulls_unsupported(name),
        open=lake.stream(before.stream).is_open(name),
        rebuilds=lake.stream(before.stream).rebuilds(name),
        former_path=f"{lake.root}/former/{before.stream}/{published.folder(name)}",
    )


def from_the_beginning(spark: SparkSession, context: LoadContext, task: TableTask) -> TableTask:
    """Return the work that has all of a table that bronze has, up to the same high watermarks."""
    with plan_for_many(spark):
        rows = context.bronze.rows(spark, None)
        whole = batch_profile.profile(rows.filter(F.col("table") == task.table), {}, task.high)
    table = replace(task.published, schemas={}, positions={})
    return replace(task, published=table, former_schemas={}, seen=whole.seen, records=whole.records, after=None)


def limit(task: TableTask, upto: Positions) -> TableTask:
    """Return the work that has some sources up to other positions alone; of one with an empty position it has nothing."""
    cuts = {source: min(cut, upto.get(source, cut)) for source, cut in task.high.items()}
    # An empty one would be no limit.
    high = {source: cut for source, cut in cuts.items() if cut}
    return replace(
        task,
        high=high,
        seen=[profile for profile in task.seen if profile.first <= high.get(profile.source, "")],
        records=[record for record in task.records if record.position <= high.get(record.source, "")],
    )


def is_only_truncated(task: TableTask) -> bool:
    """Whether there is nothing of a table but truncates: it never sent a row, nor a schema to make it with."""
    exists = task.published.version is not None or bool(task.published.schemas) or bool(task.records)
    return not exists and bool(task.seen) and all(profile.only_truncates for profile in task.seen)


def describe_unmade(task: TableTask) -> Table:
    """Return a table of which no row came yet, at its high watermarks; what describes it comes once."""
    schemas = newest_schemas(task)
    # What is published is read by everybody.
    task.versions.latest()
    return replace(task.published.as_going_on(), changes=0, positions=task.high, schemas=schemas)


def ahead_of(task: TableTask, low: Positions) -> list[TableProfile]:
    """Return what bronze has beyond the low watermarks."""
    return [profile for profile in task.seen if profile.final > low.get(profile.source, "")]


def find_truncates(task: TableTask, ahead: list[TableProfile], low: Positions) -> list[Truncate]:
    """Return the truncates in the range, in order."""
    return sorted(
        truncate
        for profile in ahead
        for truncate in profile.truncates
        if between(low, truncate.position, truncate.source, task.high)
    )


def between(low: Positions, position: str, source: str, high: Positions) -> bool:
    """Whether a position of a source is in a range."""
    return low.get(source, "") < position <= high.get(source, "")


def find_removed(context: LoadContext, task: TableTask) -> Positions:
    """Return the positions up to which bronze may lack records of the table's sources."""
    sources = newest_schemas(task).keys()
    return {source: cut for source, cut in context.removed.items() if source in sources}


def newest_schemas(task: TableTask) -> dict[str, str]:
    """Return each source's newest schema record, as it came."""
    return dict(task.published.schemas) | {record.source: record.value for record in task.records}


def target_of(task: TableTask) -> TargetSchema:
    """Return the schema that holds all rows of the range; raise Misfit when there is none."""
    versions = task.versions
    target = target_schema.of(task.table, versions.latest(), versions.earlier(), open_names=task.open)
    return replace(
        target,
        soft=task.soft,
        nulls_unsupported=task.nulls_unsupported,
        single_precision=versions.single_precision(),
        forms=versions.forms(),
    )


@dataclass(frozen=True, kw_only=True)
class Step:
    """What one commit brings: changes after the low watermarks, up to the task's high ones."""

    task: TableTask
    low: Positions
    #: What bronze has of them, by source.
    ahead: list[TableProfile]
    #: The schema that holds all its rows, its changes of rows, and its truncates.
    target: TargetSchema
    changed: DataFrame
    truncates: list[Truncate]

    @property
    def changes(self) -> int:
        """How many changes there are."""
        return sum(profile.changes for profile in self.ahead)


def steps(
    spark: SparkSession, context: LoadContext, task: TableTask, low: Positions, *, exists: bool, history: bool = False
) -> Iterator[Step]:
    """Yield what is to be written, by commit: changes before a change of the key are applied by the former key.

    A table that `exists` needs no commit without a change. Raises Misfit where no schema holds the rows of a step, or
    nobody can know which rows it changes; NeedsOperator, of a table that is no `history`, where a step cannot be applied to
    the rows that are stored when it is asked for, or needs records that bronze has no more.

    The sources' changes of the key are matched from the last one back, since all have one key in the end.
    """
    for part, since in _parts(spark, context, task, low):
        ahead = ahead_of(part, since)
        if not ahead and exists:
            continue
        truncates, target = find_truncates(part, ahead, since), target_of(part)
        refuse_keyless(target, ahead, since, part)
        if not history:
            removed = find_removed(context, part)
            if exists:
                _refuse_rows_without_key(spark, part, target, truncates)
            published.refuse_removed(since, removed, part.table)
        rows = context.bronze.rows(spark, part.after)
        changed = changes.of_range(rows, part.table, batch_profile.within(since, part.high))
        yield Step(task=part, low=since, ahead=ahead, target=target, changed=changed, truncates=truncates)
        exists = True


def _parts(
    spark: SparkSession, context: LoadContext, task: TableTask, low: Positions
) -> Iterator[tuple[TableTask, Positions]]:
    """Yield the task in parts of one key each, with their low watermarks."""
    whole = not any(profile.keyless for profile in task.seen)
    rekeyings = SchemaVersions.read(task.published.schemas, task.records, low).key_changes(whole=whole)
    for left in range(max(map(len, rekeyings.values()), default=0), 0, -1):
        ends = [(source, positions[-left]) for source, positions in rekeyings.items() if len(positions) >= left]
        rows = context.bronze.rows(spark, task.after)
        reached = batch_profile.last_before(rows, task.table, low, ends)
        high = {source: last for (source, _), last in zip(ends, reached, strict=True) if last is not None}
        if high:
            yield _until(task, low, high), low
        low = low | high
        # Between there and the change of the key nothing is left: from here on the new schema is the one in force.
        former = {source: text for source, text in _settled(task, high).published.schemas.items() if source in high}
        task = replace(_settled(task, dict(ends)), former_schemas=task.former_schemas | former)
    yield task, low


def _until(task: TableTask, low: Positions, high: Positions) -> TableTask:
    """Return the work of some sources alone, up to other high watermarks."""
    return replace(
        task,
        published=replace(task.published, schemas={s: text for s, text in task.published.schemas.items() if s in high}),
        high=low | high,
        seen=[profile for profile in task.seen if profile.source in high],
        records=[record for record in task.records if record.position <= high.get(record.source, "")],
    )


def _settled(task: TableTask, upto: Positions) -> TableTask:
    """Return the work with the schema records up to some positions in force from its beginning."""
    now = [record for record in task.records if record.position <= upto.get(record.source, "")]
    schemas = dict(task.published.schemas) | {record.source: record.value for record in now}
    return replace(
        task,
        published=replace(task.published, schemas=schemas),
        records=[record for record in task.records if record not in now],
    )


def refuse_keyless(target: TargetSchema, ahead: Sequence[TableProfile], low: Positions, task: TableTask) -> None:
    """Raise Misfit for an update or delete of a table without a key that does not have the whole old row."""
    for profile in ahead:
        if not target.key and profile.keyless and between(low, profile.keyless, profile.source, task.high):
            raise Misfit(
                f"{task.table} has no key, and {profile.source} updates or deletes rows of it without their old values (from "
                f"position {profile.keyless} on)",
                hint="So silver cannot know which row is meant; other tables go on. Let the source log whole rows (alter table … "
                "replica identity full; binlog_row_image = FULL) and copy the table again, or give it a primary key of columns "
                "that it has, in every source: once a change has followed, the load goes on where the table is.",
            )


def _refuse_rows_without_key(
    spark: SparkSession, task: TableTask, target: TargetSchema, truncates: list[Truncate]
) -> None:
    """Raise Incompatible when the table's key changed, and rows of the table have no value of it: none would be found again."""
    former = {tuple(TableSchema.parse(text).key) for text in task.former_schemas.values()} - {target.key}
    if not former or not target.key:
        return
    stored = profiles.drop_removed(spark.read.format("delta").load(task.path), truncates)
    key = target_schema.as_stored(target, stored.columns).key
    missing = [name for name in key if name not in stored.columns]
    lacking = functools.reduce(
        operator.or_, (F.col(_q(name)).isNull() for name in key if name not in missing), F.lit(bool(missing))
    )
    if not stored.filter(lacking).isEmpty():
        old = " and ".join(map(target_schema.format_key, sorted(former)))
        raise rekeyed(task.table, old, target_schema.format_key(target.key), ", ".join(missing or target.key))
