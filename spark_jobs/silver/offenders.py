"""Which sources keep a table that several of them share from going on, and from which position: those alone are held back in it.

What a table is published with wins: a schema that does not fit it is held back, and the sources that have the former one go on. A
table of one source stops, and so does one that has no schema yet, or whose sources all changed it. Searched only once a load of
the table has failed; reads places of records, and no values. Called by the loads of tables.
"""

from collections.abc import Callable, Sequence

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.

from headrace.errors import CorruptInput, NeedsOperator, ReplicationError
from headrace.schema import TableSchema
from spark_jobs.errors import CorruptRecord
from spark_jobs.silver import batch_profile, held_back, scd2, table_load, table_task
from spark_jobs.silver.schema_versions import SchemaRecord
from spark_jobs.silver.table_task import LoadContext, TableTask
from spark_jobs.silver.types import Incompatible
from spark_jobs.state.published import Positions

#: By source: the position of what a table cannot have, and why.
Offences = dict[str, tuple[str, str]]
#: Returns the position of a source's last change of the table between two positions.
FindLast = Callable[[str, str, str], str | None]


def hold_back(
    spark: SparkSession, context: LoadContext, task: TableTask, error: ReplicationError, *, settings: str
) -> TableTask | None:
    """Return the work without what the sources have that made it fail; None where the whole table stops."""
    if len(_sources(task)) == 1:
        return None
    offences = find_misfits(task) or _find_keyless(task) or _find_changed(task, error)
    offences = offences or _find_record(spark, context, task, error)
    if not offences:
        return None
    rows, rest = context.rows(spark, task.after), held_back.rest_after(context, task)

    def find_last(source: str, low: str, end: str) -> str | None:
        return batch_profile.last_before(rows, task.table, {source: low}, [(source, end)])[0]

    return leave_out(task, offences, _committed(spark, context, task), find_last, settings=settings, rest=rest)


def leave_out(
    task: TableTask, offences: Offences, committed: Positions, find_last: FindLast, *, settings: str, rest: int | None
) -> TableTask | None:
    """Return the work without what sources have from their offences on; None where they are all of the table's.

    `committed` is up to where the table has each source, published or not: an offence up to there cannot be left out.
    """
    if not offences or offences.keys() >= _sources(task):
        return None
    for source, (position, why) in sorted(offences.items()):
        low = max(committed.get(source, ""), task.published.positions.get(source, ""))
        if not low < position <= task.high.get(source, ""):
            return None
        # No part of its transaction either. Where more of it is in the way, nothing of it is taken.
        end = position.rpartition("/")[0] or position
        last = find_last(source, low, end) if source not in task.published.copying else None
        reason = f"in {task.table} since position {position}: {why}"
        upto = max(last or "", low) or held_back.BEGINNING
        task = held_back.hold_back(task, source, upto, reason, settings=settings, rest=rest)
    return task


def _sources(task: TableTask) -> set[str]:
    return table_task.newest_schemas(task).keys() | {profile.source for profile in task.seen}


def _committed(spark: SparkSession, context: LoadContext, task: TableTask) -> Positions:
    """Return up to where the table, and its history, have each source, also what is not published."""
    positions = dict(table_load.read_base(spark, context, task.path, task.published, table_load.NOTE).positions)
    if task.history is not None:
        kept = scd2.read_base(spark, context, task).positions
        positions = {source: max(p, kept.get(source, "")) for source, p in (kept | positions).items()}
    return positions


def find_misfits(task: TableTask) -> Offences:
    """Return the sources whose schema records do not fit what the table is published with, or earlier ones of them, in order."""
    if not task.published.schemas or _misfit(task, []) is not None:
        return {}
    taken: list[SchemaRecord] = []
    offences: Offences = {}
    former = {source: TableSchema.parse(text) for source, text in task.published.schemas.items()}
    for record in sorted(task.records, key=lambda record: (record.source, record.position)):
        if record.source in offences or (record.schema is not None and record.schema == former.get(record.source)):
            continue
        if (why := _misfit(task, [*taken, record])) is not None:
            offences[record.source] = record.position, why
        elif record.schema is not None:
            former[record.source] = record.schema
            taken.append(record)
    return offences


def _misfit(task: TableTask, records: Sequence[SchemaRecord]) -> str | None:
    """Return why there is no schema that holds what some of the schema records describe; None when there is one."""
    try:
        table_task.target_of(table_task.with_records(task, records))
    except (NeedsOperator, CorruptInput) as error:
        return _text(error)
    return None


def _find_keyless(task: TableTask) -> Offences:
    """Return the sources whose updates or deletes of a table without a key lack the old row."""
    try:
        target = table_task.target_of(task)
    except (NeedsOperator, CorruptInput):
        return {}
    offences: Offences = {}
    for profile in task.seen:
        try:
            table_task.refuse_keyless(target, [profile], task.published.positions, task)
        except NeedsOperator as error:
            assert profile.keyless is not None
            offences[profile.source] = profile.keyless, _text(error)
    return offences


def _find_changed(task: TableTask, error: ReplicationError) -> Offences:
    """Return the sources whose schema changed, where the stored rows cannot become what it is now."""
    offences: Offences = {}
    if not isinstance(error, Incompatible):
        return offences
    former = {source: TableSchema.parse(text) for source, text in task.published.schemas.items()}
    for record in task.records:
        if record.source not in offences and record.schema != former.get(record.source):
            offences[record.source] = record.position, _text(error)
    return offences


def _find_record(spark: SparkSession, context: LoadContext, task: TableTask, error: ReplicationError) -> Offences:
    """Return the source of a record with a value that is not of its declared type, or without the key."""
    if not isinstance(error, CorruptRecord):
        return {}
    topic, partition, offset = error.place
    place = (F.col("topic") == topic) & (F.col("partition") == partition) & (F.col("offset") == offset)
    rows = context.rows(spark, task.after).filter(place & (F.col("table") == task.table))
    row = rows.select("source", "position").first()
    return {} if row is None else {row["source"]: (row["position"], _text(error))}


def _text(error: ReplicationError) -> str:
    return f"{error.message} {error.hint}".strip()
