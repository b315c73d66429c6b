"""Writing the newest changes of a range into a silver table, in one Delta commit that carries the positions it reaches.

The commit's note is the table's own progress: a load that is done again starts after it, so nothing is applied twice. The
guard by position in the MERGE and the number of the commit (commit.py) hold even where a note is missing or two loads meet.
Columns are added and widened ahead of it (`fit`) rather than by MERGE's own schema evolution: the rows are made with the types
that the table will have, what cannot be widened has to stop the table with its remedy first, and names need column mapping.

A MERGE into a table that is large compared to its changes: a Bloom filter of the changes chooses the rows that are read.

Large tables clustered by source and key (Delta's liquid clustering), so that a MERGE reads the files that may have its keys.

A table of one copy has every key in every file. Clustering it writes it once more; after that OPTIMIZE clusters what came since,
together with clusters that are not much larger, so rows are written a few times in all, however often maintenance runs. Loads
write files as they come. Columns that cannot be clustered by, and those after them, are left out. Called by maintenance.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

from delta import DeltaTable
from delta.tables import DeltaMergeBuilder
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, DataFrameWriter, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.
from pyspark.sql import types as T  # noqa: N812 - PySpark's own idiom.

from headrace.errors import NeedsOperator, Retryable
from headrace.lake.table import is_mapped
from headrace.schema import TableSchema
from spark_jobs import storage
from spark_jobs.session import plan_for_many
from spark_jobs.silver import changes, profiles, target_schema
from spark_jobs.silver.changes import OP
from spark_jobs.silver.commit import NOTE_SETTING, Base, separate_commit
from spark_jobs.silver.profiles import Truncate
from spark_jobs.silver.target_schema import COMMIT_TIME, DELETED_AT, POSITION, SOURCE, TAKEN, TargetSchema
from spark_jobs.state import log_files
from spark_jobs.state.published import Table
from spark_jobs.storage import name as _q

#: Bytes from which on a table is clustered: a smaller one has few files.
LARGE = 1 << 30
#: Delta's bound.
_MOST_COLUMNS = 4
#: Bytes of a cluster that is written no more, and how much larger than what came since one may be that is written again.
_CLUSTER, _GROWTH = 2 << 30, 4
_SETTING = "spark.databricks.delta.optimize.clustering.mergeStrategy.minCubeSize"
_ORDERED = (T.NumericType, T.DateType, T.TimestampType, T.TimestampNTZType, T.StringType)

_log = logging.getLogger(__name__)


def prepare(session: SparkSession, path: str, table: Table) -> None:
    """Let the session's next OPTIMIZE of a table cluster it, where it is large; a smaller one is compacted."""
    clustered = columns(session, path)
    if not clustered and log_files.size(session, path) < LARGE:
        return
    cluster_columns = _choose_columns(session, path, table)
    if cluster_columns and cluster_columns != clustered:
        names = ", ".join(map(storage.name, cluster_columns))
        try:
            session.sql(f"ALTER TABLE {storage.table(path)} CLUSTER BY ({names})")
        except AnalysisException as error:
            _log.warning("%s is not clustered by %s: %s", path, names, error.getCondition())
    came = log_files.measure_unclustered(session, path)
    session.conf.set(f"{_SETTING}.threshold", str(min(_CLUSTER, _GROWTH * came)))
    session.conf.set(f"{_SETTING}.targetCubeSize", str(_CLUSTER))


def release(rows: DataFrame, path: str) -> None:
    """Cluster a table no more by columns that the rows do not have which are to replace its own."""
    spark = rows.sparkSession
    if DeltaTable.isDeltaTable(spark, path) and not set(columns(spark, path)) <= set(rows.columns):
        spark.sql(f"ALTER TABLE {storage.table(path)} CLUSTER BY NONE")


def columns(spark: SparkSession, path: str) -> list[str]:
    """Return the columns that a table is clustered by, none where it is not."""
    # Delta's description of a table is a query.
    if "clustering" not in log_files.features(spark, path):
        return []
    row = DeltaTable.forPath(spark, path).detail().select("clusteringColumns").first()
    names = list(row[0] or []) if row is not None else []
    # Delta quotes those that SQL would not take as they are.
    return [name[1:-1].replace("``", "`") if name.startswith("`") else name for name in names]


def _choose_columns(session: SparkSession, path: str, table: Table) -> list[str]:
    try:
        target = target_schema.of(table.table, [TableSchema.parse(text) for text in table.schemas.values()])
    except NeedsOperator:
        return []
    kinds = {field.name: field.dataType for field in session.read.format("delta").load(path).schema.fields}
    key = target_schema.as_stored(target, kinds).key
    names = [target_schema.SOURCE]
    for name in key[: _MOST_COLUMNS - 1]:
        if not isinstance(kinds.get(name), _ORDERED):
            break
        names.append(name)
    return names if len(names) > 1 else []


#: Bytes of a table, and changes, from which on it pays to compile what reads them: some hundred thousand rows.
_MANY, _MANY_CHANGES = 2 * 1024 * 1024, 100_000
#: And from which on it pays to filter its rows.
_LARGE = 32 * 1024 * 1024
_BLOOM = "spark.sql.optimizer.runtime.bloomFilter"
_SETTINGS = {
    # Spark makes no filter of what can be broadcast.
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    f"{_BLOOM}.enabled": "true",
    f"{_BLOOM}.applicationSideScanSizeThreshold": "1",
    # As it is by default: the changes may be few, the table's rows are many.
    "spark.sql.codegen.factoryMode": "FALLBACK",
}


def pays(size: int) -> bool:
    """Whether a table of a size in bytes is large enough."""
    return size >= _LARGE


def plan_for(spark: SparkSession, base: Base, changes: int) -> AbstractContextManager[None]:
    """Have the session's plans suit many rows while it writes many changes, or to a table that has many rows."""
    is_many = changes > _MANY_CHANGES or (base.exists and log_files.size(spark, base.path) >= _MANY)
    return plan_for_many(spark) if is_many else nullcontext()


@contextmanager
def by(spark: SparkSession, rows: DataFrame) -> Iterator[DataFrame]:
    """Have the session make the filter of these rows; give them as Spark wants them for that."""
    # True of all rows; Spark makes a filter only of rows that a condition has chosen.
    chosen = rows.filter(F.col(POSITION) > "")
    # And of nothing larger, which the table is.
    size = chosen._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()  # noqa: SLF001 - Spark's own figure is compared.
    settings = _SETTINGS | {f"{_BLOOM}.creationSideThreshold": f"{size}b"}
    before = {name: spark.conf.get(name) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        yield chosen
    finally:
        for name, value in before.items():
            spark.conf.set(name, str(value))


#: Lets columns have names that Parquet does not: with spaces, commas, brackets.
_MAPPING = "delta.columnMapping.mode"
_DELETION_VECTORS = "delta.enableDeletionVectors"
#: Whether a MERGE marks replaced rows in a file of its own: of a table of a few megabytes files are replaced with less work.
_VECTORS = "spark.databricks.delta.merge.deletionVectors.persistent"
_SMALL = 4 * 1024 * 1024
#: How many columns of a table Delta keeps statistics of, by which it chooses files.
_WITH_STATISTICS = 32


def create(
    rows: DataFrame, path: str, note: str, own: Mapping[str, str], lead: Sequence[str] = (), *, is_open: bool = False
) -> None:
    """Make the table with these rows; raise Retryable when it was made meanwhile. Deleted ones are left out unless marked.

    Columns that `lead` are the first ones of a wide table: Delta has statistics of the first ones alone.
    """
    stored = _leading(_without_deleted(rows), lead)
    writer = _writer(stored, note, own).mode("error")
    if is_open:
        writer = writer.option(_DELETION_VECTORS, "false")
    try:
        (writer.option(_MAPPING, "name") if _special(stored.columns) else writer).save(path)
    except AnalysisException as error:
        if error.getCondition() != "DELTA_PATH_EXISTS":
            raise
        raise Retryable(f"{path} was made by another load meanwhile", hint="Run this load again.") from error


def replace(rows: DataFrame, path: str, note: str, own: Mapping[str, str], lead: Sequence[str] = ()) -> None:
    """Put these rows in the place of all that the table has, and their columns in the place of its own, in one commit."""
    stored = _leading(_without_deleted(rows), lead)
    release(stored, path)
    writer = _writer(stored, note, own).mode("overwrite").option("overwriteSchema", "true")
    (writer.option(_MAPPING, "name") if _special(stored.columns) else writer).save(path)


def _leading(rows: DataFrame, lead: Sequence[str]) -> DataFrame:
    if len(rows.columns) <= _WITH_STATISTICS:
        return rows
    return rows.select(*map(_q, lead), *(_q(name) for name in rows.columns if name not in lead))


def _without_deleted(rows: DataFrame) -> DataFrame:
    """Return the rows without the kind of change, and without deleted ones unless these stay, marked."""
    gone = OP in rows.columns and DELETED_AT not in rows.columns
    return (rows.filter(F.col(OP) != "d") if gone else rows).drop(OP, TAKEN)


def append(rows: DataFrame, path: str, note: str, own: Mapping[str, str]) -> None:
    """Add rows of a table without a key."""
    _writer(rows.drop(OP, TAKEN), note, own).mode("append").save(path)


def take(spark: SparkSession, rows: DataFrame, path: str, target: TargetSchema, note: str) -> None:
    """Add rows of a table without a key, and remove, or mark, those that changes take: each by the position that put it.

    The session is this table's own: the note is a setting of the session.
    """
    bounds = rows.agg(F.collect_set(SOURCE), F.min(TAKEN), F.max(TAKEN)).first()
    assert bounds is not None
    sources, least, greatest = bounds
    stored = F.col(f"t.{POSITION}")
    same = F.col(f"t.{SOURCE}").isin(sorted(sources)) & stored.between(least, greatest)
    same &= (F.col(f"t.{SOURCE}") == F.col(f"s.{SOURCE}")) & (stored == F.col(f"s.{TAKEN}"))
    table = DeltaTable.forPath(spark, path)
    spark.conf.set(_VECTORS, str(log_files.size(spark, path) >= _SMALL).lower())
    values = {name: F.col(f"s.{_q(name)}") for name in rows.columns if name not in {OP, TAKEN}}
    if target.soft:
        # A row that is marked has the position of what marked it.
        same &= F.col(f"t.{DELETED_AT}").isNull()
        marks = {name: values[name] for name in (DELETED_AT, COMMIT_TIME, POSITION)}
        plan = table.alias("t").merge(rows.alias("s"), same).whenMatchedUpdate(set=quote(marks))
    else:
        plan = table.alias("t").merge(rows.alias("s"), same).whenMatchedDelete()
    spark.conf.set(NOTE_SETTING, note)
    plan.whenNotMatchedInsert(F.col(f"s.{TAKEN}").isNull(), values=quote(values)).execute()


def _writer(rows: DataFrame, note: str, own: Mapping[str, str]) -> DataFrameWriter:
    return rows.write.format("delta").option("userMetadata", note).options(**own)


def merge(
    spark: SparkSession, rows: DataFrame, path: str, target: TargetSchema, note: str, cleared: Sequence[Truncate]
) -> None:
    """Put, replace and remove rows by source and key, and remove, or mark, what a truncate of their source left behind.

    The session is this table's own: the note is a setting of the session. Rows that truncates ended take a commit of their own:
    one ahead of the MERGE that removes them, or one after it, with the note, that marks them, since the MERGE needs their values.
    A load that dies between the two does both again.
    """
    table, size = DeltaTable.forPath(spark, path), log_files.size(spark, path)
    # Reads the rows, which are held, before the table changes; a small table has few files to choose from.
    same = same_row(rows, target, size=size) if cleared or size >= _SMALL else _same_key(target)
    if cleared and target.soft:
        with separate_commit(spark):
            _merge(spark, path, table, rows, same, target)
        spark.conf.set(NOTE_SETTING, note)
        profiles.mark_rows(table, cleared)
        return
    if cleared:
        clear(spark, path, target, cleared)
    spark.conf.set(NOTE_SETTING, note)
    _merge(spark, path, table, rows, same, target)


def clear(spark: SparkSession, path: str, target: TargetSchema, cleared: Sequence[Truncate]) -> None:
    """Remove, or mark, the rows that truncates ended, in a commit without progress, ahead of the one that has it."""
    with separate_commit(spark):
        (profiles.mark_rows if target.soft else profiles.remove_rows)(DeltaTable.forPath(spark, path), cleared)


def _merge(
    spark: SparkSession, path: str, table: DeltaTable, rows: DataFrame, same: Column, target: TargetSchema
) -> None:
    size = log_files.size(spark, path)
    spark.conf.set(_VECTORS, str(size >= _SMALL).lower())
    with by(spark, rows) if pays(size) else nullcontext(rows) as chosen:
        _planned(table, chosen, same, target).execute()


def _planned(table: DeltaTable, rows: DataFrame, same: Column, target: TargetSchema) -> DeltaMergeBuilder:
    columns = {name: F.col(f"s.{_q(name)}") for name in rows.columns if name != OP}
    dropped = {name: F.lit(None) for name in table.toDF().columns if name not in columns}
    newer = F.col(f"s.{POSITION}") > F.col(f"t.{POSITION}")
    gone = F.col(f"s.{OP}") == "d"
    plan = table.alias("t").merge(rows.alias("s"), same)
    if not target.soft:
        plan = plan.whenMatchedDelete(gone & newer)
    plan = plan.whenMatchedUpdate(newer, set=quote(columns | dropped))
    return plan.whenNotMatchedInsert(F.lit(True) if target.soft else ~gone, values=quote(columns))


def same_row(rows: DataFrame, target: TargetSchema, *, size: int = 0) -> Column:
    """Return the condition that a row is the same, with the bounds of this load's keys, which choose the files to look at.

    In a table of a large size, in bytes, keys that are few and far apart are worth a look of their own.
    """
    return _same_key(target) & changes.key_range_of(rows, target, apart=pays(size)).condition("t.")


def _same_key(target: TargetSchema) -> Column:
    same = F.col(f"t.{SOURCE}") == F.col(f"s.{SOURCE}")
    for name in target.key:
        same &= F.col(f"t.{_q(name)}") == F.col(f"s.{_q(name)}")
    return same


def fit(spark: SparkSession, path: str, target: TargetSchema, *, is_open: bool = False) -> TargetSchema:
    """Add columns that are new and widen those that became wider; return the schema with the table's own names and types.

    Of an open table, which widens no column in place, all rows are written again. Raises NeedsOperator when a column's new type
    cannot hold its old values, and when rows marked as deleted are there although none are to be kept. Each step is harmless to
    repeat.
    """
    table = storage.table(path)
    fields = {field.name: field.dataType for field in DeltaTable.forPath(spark, path).toDF().schema.fields}
    if DELETED_AT in fields and not target.soft:
        raise NeedsOperator(
            f'{target.table}: its deleted rows are in silver, marked, and the lake\'s file has deletes = "hard" now',
            hint="To remove them, run 'headrace lake replay STREAM'; to keep them, set deletes = \"soft\" again.",
        )
    fitted = target_schema.fit_types(target, fields)
    marks: dict[str, T.DataType] = {DELETED_AT: T.TimestampType()} if target.soft else {}
    new = {name: kind for name, kind in (fitted.columns | marks).items() if name not in fields}
    if new:
        if _special(new):
            spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('{_MAPPING}' = 'name')")
        listed = ", ".join(f"{_q(name)} {kind.simpleString()}" for name, kind in new.items())
        spark.sql(f"ALTER TABLE {table} ADD COLUMNS ({listed})")
    wider = {name: kind for name, kind in fitted.columns.items() if kind != fields.get(name, kind)}
    if wider and is_open:
        _rewrite(spark, path, wider)
        return fitted
    for name, kind in wider.items():
        spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')")
        spark.sql(f"ALTER TABLE {table} ALTER COLUMN {_q(name)} TYPE {kind.simpleString()}")
    return fitted


def _rewrite(spark: SparkSession, path: str, wider: Mapping[str, T.DataType]) -> None:
    """Write all rows again, with wider columns, in a commit without progress."""
    rows = spark.read.format("delta").load(path)
    cast = rows.select(*(F.col(_q(c)).cast(wider[c]).alias(c) if c in wider else F.col(_q(c)) for c in rows.columns))
    note = spark.conf.get(NOTE_SETTING)
    with separate_commit(spark):
        _writer(cast, str(note), {}).mode("overwrite").option("overwriteSchema", "true").save(path)


def quote(values: dict[str, Column]) -> dict[str, Column]:
    """Return the values by their columns' quoted names, as a MERGE wants them."""
    return {_q(name): value for name, value in values.items()}


def _special(names: Iterable[str]) -> bool:
    return any(map(is_mapped, names))
