"""One table's part of a load: from the positions that the table itself stands at, up to the load's cuts, in one commit.

Guarantees that applying is harmless to repeat at any point. Raises NeedsOperator for what stops this table alone. Called by the
load, each table with a session of its own.
"""

import functools
import operator
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Literal

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.

from headrace.configuration.lake import LakeFile, TableOptions
from headrace.errors import NeedsOperator
from headrace.schema import TableSchema
from spark_jobs.bronze import increment
from spark_jobs.bronze.increment import Since
from spark_jobs.quoting import name as _q
from spark_jobs.silver import batch_profile, changes, commit, copy_needed, ordered_apply, scd2, target_schema, truncates
from spark_jobs.silver import merge as write
from spark_jobs.silver.batch_profile import BatchProfile, TableProfile
from spark_jobs.silver.commit import Base
from spark_jobs.silver.incompatible import rekeyed
from spark_jobs.silver.schema_versions import SchemaRecord, SchemaVersions
from spark_jobs.silver.truncates import Truncate
from spark_jobs.state import delta_log, places
from spark_jobs.state.published import Positions, Published, Table
from spark_jobs.state.published_rows import NEW

NOTE = "silver"
#: Changes a key from which it pays to choose the newest ahead of the shuffle too.
_HOT = 4


@dataclass(frozen=True, kw_only=True)
class LoadContext:
    """What all tables of a load have in common."""

    stream: str
    #: Where bronze stands, and the version of it that the load reads.
    bronze: str
    version: int
    #: Number of the load.
    load: int
    #: Version of bronze after which all came that tables lack that are not behind; None when not known.
    rest: int | None = None
    #: By which this load finds its own commits.
    attempt: str = field(default_factory=lambda: uuid.uuid4().hex)
    #: The rows of bronze that came after a point, where they are held for all tables; None when they are not.
    held: tuple[Since, DataFrame] | None = None

    def rows(self, spark: SparkSession, after: Since | None) -> DataFrame:
        """Return the rows of bronze that came after a point, or all, up to the version that the load reads."""
        if self.held is not None and self.held[0] == after:
            return self.held[1]
        return increment.rows(spark, self.bronze, after, self.version)


@dataclass(frozen=True, kw_only=True)
class TableTask:
    """What is to be done for a table."""

    table: str
    path: str
    #: How it was published last.
    known: Table
    cuts: Positions
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
    #: Whether it is rebuilt when its rows cannot become what the schema is now, and the folder of its former rows.
    rebuilds: bool = False
    former_path: str = ""


def path(lake: LakeFile, stream: str, table: str) -> str:
    """Return the path of a silver table: `silver/<stream>/<schema>.<table>`, so streams never collide."""
    return f"{lake.root}/silver/{stream}/{places.folder(table)}"


def folder(lake: LakeFile, stream: str) -> str:
    """Return the folder of a stream's silver tables."""
    return f"{lake.root}/silver/{stream}"


def work(lake: LakeFile, before: Published, name: str, new: BatchProfile, *, after: Since | None) -> TableTask:
    """Return what is to be done for a table, of what bronze has for all tables."""
    known = before.tables.get(name, Table(table=name, positions=before.positions))
    return TableTask(
        table=name,
        path=path(lake, before.stream, name),
        known=known,
        former_schemas=dict(known.schemas),
        cuts=new.cuts,
        seen=[one for one in new.seen if one.table == name],
        records=[record for record in new.records if record.table == name],
        after=after,
        history=lake.stream(before.stream).history_of(name),
        history_path=scd2.path(lake, before.stream, name),
        soft=lake.stream(before.stream).marks_deleted(name),
        rebuilds=lake.stream(before.stream).rebuilds(name),
        former_path=f"{lake.root}/former/{before.stream}/{places.folder(name)}",
    )


def apply(spark: SparkSession, job: LoadContext, work: TableTask) -> Table:
    """Bring the table up to the cuts; return how it stands. The session is this table's own."""
    base = based(spark, job, work.path, work.known, NOTE)
    commit.check_order(base, work.cuts, work.table)
    version, exists = base.current, base.exists
    for step, since in steps(spark, job, work, base.positions):
        if ahead_of(step, since) or not exists:
            version = _write(spark, job, step, since, "change" if exists else "create")
            exists = True
    return _done(work, version)


def build(spark: SparkSession, job: LoadContext, work: TableTask, floors: Positions) -> Table:
    """Put what comes after the floors, up to the cuts, in the place of all that the table has; return how it stands."""
    version = None
    for number, (step, since) in enumerate(steps(spark, job, work, floors)):
        version = _write(spark, job, step, since, "change" if number else "replace")
    return _done(work, version)


def _done(work: TableTask, version: int | None) -> Table:
    versions = SchemaVersions.read(work.known.schemas, work.records, {})
    cleared = truncates.last_of_each(truncated(work, work.seen, {}))
    return replace(
        work.known,
        version=version,
        # Those that a former attempt, or a task of the table's group, committed and nobody published count too.
        changes=sum(one.changes for one in ahead_of(work, work.known.positions)),
        positions=work.cuts,
        schemas=newest_schemas(work),
        problem=None,
        bronze_after=work.known.bronze_after if work.known.copying else None,
        tried=None,
        warnings=copy_needed.warnings(work.table, work.known.warnings, versions, cleared),
        keyed=any(TableSchema.parse(text).key for text in newest_schemas(work).values()),
        since=work.known.since if work.known.version is not None else NEW,
    )


def based(spark: SparkSession, job: LoadContext, path: str, known: Table, kind: str) -> Base:
    """Return a table or its history as it is now, of which `known` was published."""
    return commit.base(spark, path, stream=job.stream, kind=kind, known=known.positions, version=known.version)


def ahead_of(work: TableTask, floors: Positions) -> list[TableProfile]:
    """Return what bronze has beyond the floors."""
    return [one for one in work.seen if one.final > floors.get(one.source, "")]


def steps(
    spark: SparkSession, job: LoadContext, work: TableTask, floors: Positions
) -> Iterator[tuple[TableTask, Positions]]:
    """Yield the work in steps, each with its floors: changes before the table's key changed are applied by the former key.

    The sources' changes of the key are matched from the last one back, since all have one key in the end.
    """
    changes = SchemaVersions.read(work.known.schemas, work.records, floors).key_changes()
    for left in range(max(map(len, changes.values()), default=0), 0, -1):
        ends = [(source, found[-left]) for source, found in changes.items() if len(found) >= left]
        reached = batch_profile.last_before(job.rows(spark, work.after), work.table, floors, ends)
        cuts = {source: last for (source, _), last in zip(ends, reached, strict=True) if last is not None}
        if cuts:
            yield _step(work, floors, cuts), floors
        floors = floors | cuts
        # Between there and the change of the key nothing is left: from here on the new schema is the one in force.
        former = {source: text for source, text in _settled(work, cuts).known.schemas.items() if source in cuts}
        work = replace(_settled(work, dict(ends)), former_schemas=work.former_schemas | former)
    yield work, floors


def _step(work: TableTask, floors: Positions, cuts: Positions) -> TableTask:
    """Return the work of some sources alone, up to other cuts."""
    return replace(
        work,
        known=replace(work.known, schemas={s: text for s, text in work.known.schemas.items() if s in cuts}),
        cuts=floors | cuts,
        seen=[one for one in work.seen if one.source in cuts],
        records=[one for one in work.records if one.position <= cuts.get(one.source, "")],
    )


def _settled(work: TableTask, upto: Positions) -> TableTask:
    """Return the work with the schema records up to some positions in force from its beginning."""
    now = [record for record in work.records if record.position <= upto.get(record.source, "")]
    schemas = dict(work.known.schemas) | {record.source: record.value for record in now}
    return replace(
        work,
        known=replace(work.known, schemas=schemas),
        records=[record for record in work.records if record not in now],
    )


def formed(work: TableTask) -> tuple[target_schema.TargetSchema, dict[str, str]]:
    """Return the shape that holds all rows of the range, and each source's newest schema record; raise NeedsOperator."""
    versions = SchemaVersions.read(work.known.schemas, work.records, {})
    form = target_schema.of(work.table, versions.latest(), versions.earlier())
    return replace(form, soft=work.soft, single_precision=versions.single_precision()), newest_schemas(work)


def newest_schemas(work: TableTask) -> dict[str, str]:
    """Return each source's newest schema record, as it came."""
    return dict(work.known.schemas) | {record.source: record.value for record in work.records}


def _between(floors: Positions, position: str, source: str, cuts: Positions) -> bool:
    return floors.get(source, "") < position <= cuts.get(source, "")


def refuse_keyless(
    form: target_schema.TargetSchema, ahead: list[TableProfile], floors: Positions, work: TableTask
) -> None:
    """Raise NeedsOperator for an update or delete of a table without a key."""
    for one in ahead:
        if not form.key and one.keyless and _between(floors, one.keyless, one.source, work.cuts):
            raise NeedsOperator(
                f"{work.table} has no key, and {one.source} updates or deletes rows of it (from position {one.keyless} on)",
                hint="Without a key silver cannot tell which row is meant; other tables go on. Give the table a primary key of "
                "columns that it has, in every source: once a change has followed, the load goes on where the table stands.",
            )


def _write(
    spark: SparkSession,
    job: LoadContext,
    work: TableTask,
    floors: Positions,
    how: Literal["create", "replace", "change"],
) -> int:
    """Write what comes after the floors; return the version of the commit."""
    form, _ = formed(work)
    ahead = ahead_of(work, floors)
    refuse_keyless(form, ahead, floors, work)
    base = based(spark, job, work.path, work.known, NOTE)
    commit.check_unmoved(base, floors, work.cuts, work.table, how)
    cleared = truncated(work, ahead, floors)
    if exists := how == "change":
        refuse_rows_without_key(spark, work, form, cleared)
    own = commit.begin(spark, base, stream=job.stream, kind=NOTE, attempt=job.attempt)
    if exists:
        form = write.fit(spark, work.path, form)
    bronze = job.rows(spark, work.after)
    within = batch_profile.within(floors, work.cuts)
    silver = spark.read.format("delta").load(work.path) if exists else None
    text = note(job, work, NOTE, base)
    with kept() as keep:
        found = rows(form, bronze, within, ahead, silver, keep, cleared)
        lead = (target_schema.SOURCE, target_schema.POSITION, *form.key)
        if how == "create":
            write.create(found, work.path, text, own, lead)
        elif how == "replace":
            write.replace(found, work.path, text, own, lead)
        elif form.key:
            write.merge(spark, keep(found), work.path, form, text, cleared)
        else:
            if cleared:
                write.clear(spark, work.path, form, cleared)
            write.append(found, work.path, text, own)
    return commit.made(spark, work.path, base, table=work.table, kind=NOTE, attempt=job.attempt)


def note(job: LoadContext, work: TableTask, kind: str, base: Base) -> str:
    """Return the note of a commit that brings a table or its history up to the cuts."""
    ours = {
        "stream": job.stream,
        "table": work.table,
        "load": job.load,
        "attempt": job.attempt,
        "number": base.number + 1,
    }
    return delta_log.write(kind, **ours, positions=work.cuts)


def refuse_rows_without_key(
    spark: SparkSession, work: TableTask, form: target_schema.TargetSchema, cleared: list[Truncate]
) -> None:
    """Raise Incompatible when the table's key changed, and rows of the table have no value of it: none would be found again."""
    former = {tuple(TableSchema.parse(text).key) for text in work.former_schemas.values()} - {form.key}
    if not former or not form.key:
        return
    stored = truncates.surviving(spark.read.format("delta").load(work.path), cleared)
    missing = [name for name in form.key if name not in stored.columns]
    lacking = functools.reduce(
        operator.or_, (F.col(_q(name)).isNull() for name in form.key if name not in missing), F.lit(bool(missing))
    )
    if not stored.filter(lacking).isEmpty():
        old = " and ".join(map(target_schema.listed, sorted(former)))
        raise rekeyed(work.table, old, target_schema.listed(form.key), ", ".join(missing or form.key))


def truncated(work: TableTask, ahead: list[TableProfile], floors: Positions) -> list[Truncate]:
    """Return the truncates in the range, in order."""
    return sorted(it for one in ahead for it in one.truncates if _between(floors, it.position, it.source, work.cuts))


@contextmanager
def kept() -> Iterator[ordered_apply.Keep]:
    """Give a function that persists frames, and let go of them afterwards."""
    frames: list[DataFrame] = []

    def keep(frame: DataFrame) -> DataFrame:
        frames.append(frame.persist())
        return frame

    try:
        yield keep
    finally:
        for frame in frames:
            frame.unpersist()


def rows(
    form: target_schema.TargetSchema,
    bronze: DataFrame,
    within: Column,
    ahead: list[TableProfile],
    silver: DataFrame | None,
    keep: ordered_apply.Keep,
    cleared: list[Truncate],
) -> DataFrame:
    """Return the newest row of each key; of a table without a key, every row. `silver` is the table at the floors."""
    # What is truncated is gone before anything is parsed, unless it stays, marked.
    inside = changes.of_range(bronze, form.table, within, {} if form.soft else truncates.last_of_each(cleared))
    if not form.key:
        found = changes.parsed(inside, form)
        return truncates.marked(found, cleared) if form.soft else found
    partial = any(one.partial for one in ahead)
    ended = form.soft and (cleared or any(one.deletes for one in ahead))
    if partial or ended or not form.canonical_key or any(one.rekeyed for one in ahead):
        if silver is not None and not form.soft:
            silver = truncates.surviving(silver, cleared)
        return ordered_apply.latest_rows(inside, form, silver, keep, cleared, partial=partial)
    newest = changes.newest(inside, hot=sum(one.changes for one in ahead) > _HOT * sum(one.keys for one in ahead))
    return changes.parsed(newest if silver is not None else newest.filter(newest["op"] != "d"), form)
