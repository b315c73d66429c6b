"""One table's part of a load: from the positions that the table itself stands at, up to the load's cuts, in one commit.

Guarantees that applying is harmless to repeat at any point. Raises NeedsOperator for what stops this table alone. Called by the
load, each table with a session of its own.
"""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from pyspark.sql import Column, DataFrame, SparkSession

from headrace.configuration.lake import LakeFile, TableWishes
from headrace.errors import NeedsOperator
from headrace.schema import TableSchema
from spark_jobs import delta_log, tail
from spark_jobs.silver import apply as write
from spark_jobs.silver import changes, commit, fold, history, places, shape, survey, truncates
from spark_jobs.silver.commit import Base
from spark_jobs.silver.published import Positions, Published, Table
from spark_jobs.silver.survey import Extent, SchemaRecord, Seen
from spark_jobs.silver.truncates import Truncate

NOTE = "silver"
#: Changes a key from which it pays to choose the newest ahead of the shuffle too.
_HOT = 4


@dataclass(frozen=True, kw_only=True)
class Job:
    """What all tables of a load have in common."""

    stream: str
    #: Where bronze stands, and the version of it that the load reads.
    bronze: str
    version: int
    #: Number of the load.
    load: int
    #: By which this load finds its own commits.
    attempt: str = field(default_factory=lambda: uuid.uuid4().hex)
    #: The rows of bronze that came after one version, where they are held for all tables; None when they are not.
    held: tuple[int, DataFrame] | None = None

    def rows(self, spark: SparkSession, after: int | None) -> DataFrame:
        """Return the rows of bronze that came after a version, or all, up to the one that the load reads."""
        if self.held is not None and self.held[0] == after:
            return self.held[1]
        return tail.rows(spark, self.bronze, after, self.version)


@dataclass(frozen=True, kw_only=True)
class Work:
    """What is to be done for a table."""

    table: str
    path: str
    #: How it was published last.
    known: Table
    cuts: Positions
    #: What bronze has for it, by source.
    seen: list[Seen]
    #: Its schema records in the range, in position order.
    records: list[SchemaRecord]
    #: Version of bronze after which everything came that is to be done; None when not known.
    after: int | None = None
    #: How its former rows are kept, and where; None when they are not.
    history: TableWishes | None = None
    history_path: str = ""
    #: Whether its deleted rows stay, marked.
    soft: bool = False


def path(lake: LakeFile, stream: str, table: str) -> str:
    """Return the path of a silver table: `silver/<stream>/<schema>.<table>`, so streams never collide."""
    return f"{lake.root}/silver/{stream}/{places.folder(table)}"


def work(lake: LakeFile, before: Published, name: str, new: Extent, *, after: int | None) -> Work:
    """Return what is to be done for a table, of what bronze has for all tables."""
    return Work(
        table=name,
        path=path(lake, before.stream, name),
        known=before.tables.get(name, Table(table=name, positions=before.positions)),
        cuts=new.cuts,
        seen=[one for one in new.seen if one.table == name],
        records=[record for record in new.records if record.table == name],
        after=after,
        history=lake.stream(before.stream).history_of(name),
        history_path=history.path(lake, before.stream, name),
        soft=lake.stream(before.stream).marks_deleted(name),
    )


def apply(spark: SparkSession, job: Job, work: Work) -> Table:
    """Bring the table up to the cuts; return how it stands. The session is this table's own."""
    base = based(spark, job, work.path, work.known, NOTE)
    commit.check_order(base, work.cuts, work.table)
    form, texts = formed(work)
    ahead = ahead_of(work, base.positions)
    version = base.current
    if ahead or not base.exists:
        refuse_keyless(form, ahead, base.positions, work)
        _write(spark, job, work, form, ahead, base)
        version = commit.made(spark, work.path, base, table=work.table, kind=NOTE, attempt=job.attempt)
    return replace(
        work.known,
        version=version,
        # Those that a former attempt, or a task of the table's group, committed and nobody published count too.
        changes=sum(one.changes for one in ahead_of(work, work.known.positions)),
        positions=work.cuts,
        schemas=texts,
        problem=None,
    )


def based(spark: SparkSession, job: Job, path: str, known: Table, kind: str) -> Base:
    """Return a table or its history as it is now, of which `known` was published."""
    return commit.base(spark, path, stream=job.stream, kind=kind, known=known.positions, version=known.version)


def ahead_of(work: Work, floors: Positions) -> list[Seen]:
    """Return what bronze has beyond the floors."""
    return [one for one in work.seen if one.final > floors.get(one.source, "")]


def formed(work: Work) -> tuple[shape.Shape, dict[str, str]]:
    """Return the shape that holds all rows of the range, and each source's newest schema record; raise NeedsOperator."""
    latest, earlier, texts = _eras(work)
    form = shape.of(work.table, list(latest.values()), earlier)
    return replace(form, soft=work.soft), texts


def _eras(work: Work) -> tuple[dict[str, TableSchema], list[TableSchema], dict[str, str]]:
    """Return each source's latest schema, the ones that it replaces in this range, and the latest as they came."""
    texts = dict(work.known.schemas)
    latest = {source: TableSchema.parse(text) for source, text in texts.items()}
    earlier = []
    for record in work.records:
        if record.source in latest and latest[record.source] != record.schema:
            earlier.append(latest[record.source])
        latest[record.source] = record.schema
        texts[record.source] = record.value
    return latest, earlier, texts


def _between(floors: Positions, position: str, source: str, cuts: Positions) -> bool:
    return floors.get(source, "") < position <= cuts.get(source, "")


def refuse_keyless(form: shape.Shape, ahead: list[Seen], floors: Positions, work: Work) -> None:
    """Raise NeedsOperator for an update or delete of a table without a key."""
    for one in ahead:
        if not form.key and one.keyless and _between(floors, one.keyless, one.source, work.cuts):
            raise NeedsOperator(
                f"{work.table} has no key, and {one.source} updates or deletes rows of it (from position {one.keyless} on)",
                hint="Without a key silver cannot tell which row is meant; other tables go on. Give the table a primary key of "
                "columns that it has, in every source: once a change has followed, the load goes on where the table stands.",
            )


def _write(spark: SparkSession, job: Job, work: Work, form: shape.Shape, ahead: list[Seen], base: Base) -> None:
    floors = base.positions
    own = commit.begin(spark, base, stream=job.stream, kind=NOTE, attempt=job.attempt)
    if base.exists:
        form = write.fit(spark, work.path, form)
    cleared = truncated(work, ahead, floors)
    bronze = job.rows(spark, work.after)
    within = survey.within(floors, work.cuts)
    silver = spark.read.format("delta").load(work.path) if base.exists else None
    text = note(job, work, NOTE, base)
    with kept() as keep:
        found = rows(form, bronze, within, ahead, silver, keep, cleared)
        if not base.exists:
            write.create(found, work.path, text, own)
        elif form.key or cleared:
            write.merge(spark, keep(found), work.path, form, text, cleared)
        else:
            write.append(found, work.path, text, own)


def note(job: Job, work: Work, kind: str, base: Base) -> str:
    """Return the note of a commit that brings a table or its history up to the cuts."""
    ours = {
        "stream": job.stream,
        "table": work.table,
        "load": job.load,
        "attempt": job.attempt,
        "number": base.number + 1,
    }
    return delta_log.write(kind, **ours, positions=work.cuts)


def truncated(work: Work, ahead: list[Seen], floors: Positions) -> list[Truncate]:
    """Return the truncates in the range, in order."""
    return sorted(it for one in ahead for it in one.truncates if _between(floors, it.position, it.source, work.cuts))


@contextmanager
def kept() -> Iterator[fold.Keep]:
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
    form: shape.Shape,
    bronze: DataFrame,
    within: Column,
    ahead: list[Seen],
    silver: DataFrame | None,
    keep: fold.Keep,
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
        return fold.folded(inside, form, silver, keep, cleared, partial=partial)
    newest = changes.newest(inside, hot=sum(one.changes for one in ahead) > _HOT * sum(one.keys for one in ahead))
    return changes.parsed(newest if silver is not None else newest.filter(newest["op"] != "d"), form)
