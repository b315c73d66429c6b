"""Rows of one table erased by their keys from the whole lake: bronze, silver, history, former rows, quarantine.

What is erased is recorded ahead of all else, and each step is harmless to repeat, so an erasure that was killed is run again.
Records in bronze are emptied and keep their places, by which loads know what came and which transactions are whole; so replays
and rebuilds have nothing of the row until its source sends it again. Loads and queries may run meanwhile: the commit in a table
of silver is numbered as those of loads are, and names the version of bronze that lacks the rows; a load that has read an earlier
one fails and is run again. Former versions keep the rows until maintenance removes their files, `keep_days` later. Called by
`headrace lake erase`.
"""

import logging
import uuid
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import reduce
from operator import and_, or_
from time import monotonic

from delta import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.

from headrace.configuration.lake import LakeFile
from headrace.errors import NeedsOperator, Retryable
from spark_jobs import storage
from spark_jobs.bronze import erased_records, erasures, increment, quarantine, sink
from spark_jobs.bronze import load as bronze
from spark_jobs.bronze.erased_records import retry_conflicts
from spark_jobs.errors import explained
from spark_jobs.maintenance import vacuum as vacuum_files
from spark_jobs.maintenance.erased_rows import (
    ErasedRows,
    Keys,
    choose_rows,
    count_keys,
    count_under_other_keys,
    find_in_bronze,
)
from spark_jobs.silver import commit, scd2, table_load, table_task
from spark_jobs.silver.target_schema import SOURCE
from spark_jobs.state import delta_log, publication, published, retention
from spark_jobs.state.published import Table

#: What no erasure in the lake reaches (docs/privacy.md).
ELSEWHERE = (
    "the source itself and its log: delete the row there, or it comes back with its next change or copy",
    "Kafka: the topics of the stream and of its tables, dead letters and withheld records, until retention",
    "edges: memory and spool until a batch is acknowledged; bridges and branches: what was delivered",
    "old versions and files of the lake, until 'headrace lake maintain' removes them, keep_days later",
    "other tables that name the person; backups, exports and other consumers",
)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class EraseReport:
    """What an erasure did, or would do."""

    stream: str
    table: str
    keys: int
    #: Id by which it is recorded; None of a dry run.
    erasure: str | None = None
    #: Rows, or records, by place.
    counts: dict[str, int] = field(default_factory=dict)
    #: Keys, as JSON, that rows had before or after a change of key and that were not given.
    other_keys: list[str] = field(default_factory=list)
    #: What was not reached.
    not_reached: list[str] = field(default_factory=list)
    seconds: float = 0.0


def erase(
    spark: SparkSession,
    lake: LakeFile,
    stream: str,
    table: str,
    keys: Keys,
    *,
    sources: Collection[str] = (),
    reason: str = "",
    dry_run: bool = False,
    is_other_name: bool = False,
) -> EraseReport:
    """Erase the rows that have the keys, at some sources or all, or at each source those of its own.

    Each key is its column's text, or a JSON array of several. Keys that a table cannot have are passed over where they were given
    for another one, of which this `is_other_name`.

    Raises NeedsOperator for a table that the stream does not have, or without a key, and where rows had other keys that were not
    given; ConfigurationError for what is no key; Retryable while loads hold the table up.
    """
    began = monotonic()
    session = erased_records.session_for(spark)
    with explained(f"erase from {table}"):
        which = choose_rows(session, lake, stream, table, keys, sources, is_other_name=is_other_name)
        bronze_keys, tombstones, others, counts = find_in_bronze(session, lake, stream, which)
        not_reached = list(ELSEWHERE)
        if number := count_under_other_keys(session, lake, stream, which):
            not_reached.append(
                f"{number} record(s) in bronze from when {table} had another key or none: a replay brings their rows back; "
                "'bronze_keep_days' removes them"
            )
        if dry_run:
            counts |= _count(session, lake, stream, which, not_reached)
            return EraseReport(
                stream=stream,
                table=table,
                keys=count_keys(keys),
                counts=counts,
                other_keys=others,
                not_reached=not_reached,
                seconds=monotonic() - began,
            )
        if others:
            raise _others_refused(table, others)
        # What this erasure notes of bronze is of one from which all earlier ones are erased.
        erased_records.empty_again(spark, lake, stream)
        # Ahead of what is committed: old notes leave the log by commits.
        retry_conflicts(lambda: sink.renew(erased_records.session_for(spark), lake, stream))
        erasure = erasures.new(session, lake, stream, table, reason)
        upto: dict[str, str] = {}
        for source, _, position in bronze_keys:
            upto[source] = max(position, upto.get(source, ""))
        erasures.begin(session, lake, erasure, [(source, key) for source, key, _ in bronze_keys], upto)
        retry_conflicts(
            lambda: erased_records.empty(
                erased_records.session_for(spark), lake, stream, table, bronze_keys, tombstones
            )
        )
        load, erased = retry_conflicts(lambda: _erase_published(spark, lake, stream, which))
        counts |= erased
        counts["former"] = _erase_former(spark, lake, stream, which, not_reached)
        counts["quarantine"] = retry_conflicts(
            lambda: _empty_quarantine(erased_records.session_for(spark), lake, stream, which)
        )
        raw = bronze.table_path(lake, stream)
        behind = delta_log.mark(session, raw) if delta_log.is_table(session, raw) else None
        erasures.end(session, lake, erasure, counts, behind, load)
        _log.info("erased %d key(s) from %s of %s: %s", count_keys(keys), table, stream, counts)
    return EraseReport(
        stream=stream,
        table=table,
        keys=count_keys(keys),
        erasure=erasure.id,
        counts=counts,
        not_reached=not_reached,
        seconds=monotonic() - began,
    )


def check(
    spark: SparkSession,
    lake: LakeFile,
    stream: str,
    table: str,
    keys: Keys,
    sources: Collection[str] = (),
    *,
    is_other_name: bool = False,
) -> None:
    """Raise what an erasure would refuse, ahead of one that erases from several tables."""
    session = erased_records.session_for(spark)
    with explained(f"erase from {table}"):
        which = choose_rows(session, lake, stream, table, keys, sources, is_other_name=is_other_name)
        if others := find_in_bronze(session, lake, stream, which)[2]:
            raise _others_refused(table, others)


def _others_refused(table: str, others: list[str]) -> NeedsOperator:
    return NeedsOperator(
        f"{table}: rows with these keys had {len(others)} other key(s), before or after a change of key",
        hint="Give those too: --dry-run lists them. Nothing was erased.",
    )


def vacuum(session: SparkSession, lake: LakeFile, stream: str) -> None:
    """Remove what is left of erased rows in old files, and in old commits, which have the least and greatest values of files."""
    tables = erasures.tables(session, lake, stream)
    others = [path for table in tables for path in find_former(session, lake, stream, table)]
    others += [quarantine.path(lake)] if tables else []
    kept = [path(lake, stream, table) for table in tables for path in (table_task.path, table_task.history_path)]
    if tables:
        sink.renew(session, lake, stream)
        kept.append(bronze.table_path(lake, stream))
    for path in [*others, *kept]:
        if not delta_log.is_table(session, path):
            continue
        if path in others:
            # The others are kept by the maintenance of tables.
            retention.ensure(session, path, retention.properties(lake))
            vacuum_files.run(session, path, lake.lake.keep_days)
        # Delta removes commits that are old enough when it writes a checkpoint, which it does seldom in a quiet table.
        log = session._jvm.org.apache.spark.sql.delta.DeltaLog.forTable(session._jsparkSession, path)  # noqa: SLF001 - no other way.
        none = session._jvm.scala.Option.empty()  # noqa: SLF001 - as above.
        log.checkpointAndCleanUpDeltaLog(log.update(False, none, none), none)


def _erase_published(
    spark: SparkSession, lake: LakeFile, stream: str, which: ErasedRows
) -> tuple[int | None, dict[str, int]]:
    """Erase rows from silver and history, and publish the versions without them; return the number of that, and how many."""
    before, started = published.latest(spark, lake, stream), datetime.now(UTC)
    table = before.kept(which.table)
    if table is None:
        # Dropped: its folders go as a whole, and 'lake drop --undo' builds the table from bronze.
        return None, {"silver": 0, "history": 0}
    load = before.load + 1
    silver = table_task.path(lake, stream, which.table)
    former = replace(table, version=table.history)
    place = table_task.history_path(lake, stream, which.table)
    try:
        version, rows = _erase_table(
            erased_records.session_for(spark), lake, stream, load, which, table, silver, table_load.NOTE
        )
        history, old = _erase_table(
            erased_records.session_for(spark), lake, stream, load, which, former, place, scd2.NOTE
        )
    except Retryable as error:
        if which.table in before.tables:
            raise
        # No load goes on with it.
        undo = f"headrace lake drop {stream} {which.table} --undo"
        hint = f"Run it again; where that stays so, take the rename back ('{undo}'), load, and rename again."
        raise Retryable(error.message, hint=hint) from error
    own = replace(table, version=version, history=history)
    if which.table in before.tables:
        base, after = replace(before, tables={which.table: table}), replace(before, tables={which.table: own})
    else:
        renamed = before.dropped | {which.table: replace(before.dropped[which.table], table=own)}
        base, after = replace(before, tables={}), replace(before, tables={}, dropped=renamed)
    done = publication.append(spark, lake, replace(after, started_at=started), before=base, maintenance=True)
    now = done.kept(which.table)
    if which.table in done.renamed and now and (now.version, now.history) != (own.version, own.history):
        raise Retryable(f"{which.table} was written while its rows were erased", hint="Run it again.")
    return done.load, {"silver": rows, "history": old}


def _erase_table(
    session: SparkSession,
    lake: LakeFile,
    stream: str,
    load: int,
    which: ErasedRows,
    table: Table,
    path: str,
    kind: str,
) -> tuple[int | None, int]:
    """Erase rows from a table as it is published; return the version without them, and how many there were."""
    if table.version is None or not delta_log.is_table(session, path):
        return table.version, 0
    positions, version = table.positions, table.version
    base = commit.base(
        session, path, which.table, stream=stream, kind=kind, positions=positions, version=version, load=load
    )
    commit.check_own(base)
    # What a load has written and not published would be published half.
    commit.check_order(base, table.positions)
    raw = bronze.table_path(lake, stream)
    at, attempt = delta_log.version(session, raw), uuid.uuid4().hex
    note = {
        "stream": stream,
        "table": which.table,
        "load": load,
        "attempt": attempt,
        "number": base.number + 1,
        "positions": table.positions,
        "erased": {"version": at, "commit": delta_log.commit_id(session, raw, at)},
    }
    rows = _matching(session.read.format("delta").load(path), which)
    commit.begin(session, base, attempt)
    session.conf.set(commit.NOTE_SETTING, delta_log.write(kind, **note))
    _delete(session, path, which)
    version = commit.find_own_version(session, base, attempt)
    erased_records.purge(session.newSession(), path)
    return delta_log.find_maintained(session, path, version) or version, rows


def _delete(session: SparkSession, path: str, which: ErasedRows) -> None:
    keys = which.key_rows.distinct().alias("k")
    DeltaTable.forPath(session, path).alias("t").merge(
        F.broadcast(keys).alias("k"), which.of_silver("t")
    ).whenMatchedDelete().execute()


def _matching(frame: DataFrame, which: ErasedRows) -> int:
    rows = frame.alias("t").join(F.broadcast(which.key_rows.alias("k")), which.of_silver("t"), "left_semi")
    return int(rows.count())


def _erase_former(spark: SparkSession, lake: LakeFile, stream: str, which: ErasedRows, not_reached: list[str]) -> int:
    """Erase rows from the former rows that rebuilds kept; return how many."""
    count = 0
    for path in find_former(spark, lake, stream, which.table):
        session = erased_records.session_for(spark)
        frame = session.read.format("delta").load(path)
        if not {SOURCE, *which.stored} <= set(frame.columns):
            not_reached.append(f"{path}: it lacks columns of the present key; remove the folder")
            continue
        count += _matching(frame, which)
        session.conf.set(commit.NOTE_SETTING, delta_log.write(increment.ERASED, stream=stream))
        _delete(session, path, which)
        session.conf.unset(commit.NOTE_SETTING)
        erased_records.purge(session, path)
    return count


def find_former(spark: SparkSession, lake: LakeFile, stream: str, table: str) -> list[str]:
    """Return the paths of the former rows of a table, which rebuilds kept."""
    folder = f"{lake.root}/former/{stream}/{published.folder(table)}"
    paths = [f"{folder}/{name}" for name in storage.names(spark, folder)]
    return [path for path in paths if delta_log.is_table(spark, path)]


def _quarantined(spark: SparkSession, lake: LakeFile, stream: str, which: ErasedRows) -> DataFrame:
    """Return the places of records with the keys; one that names no table may be of this one."""
    rows = spark.read.format("delta").load(quarantine.path(lake)).filter(F.col("stream") == stream)
    key, value = F.col("t.key").cast("string"), F.col("t.value").cast("string")
    schema, own = (F.get_json_object(value, f"$.source.{name}") for name in ("schema", "table"))
    of_table = F.coalesce(F.concat(schema, F.lit("."), own) == which.table, F.lit(True))
    # A record of a source that moved is in another one's partition, and one that is damaged names none.
    names = [F.col("t.source"), F.col("t.named_source")]
    is_unknown = reduce(and_, (name.isNull() for name in names))
    is_meant = reduce(or_, (F.coalesce(which.of_source(name), F.lit(False)) for name in names)) | is_unknown
    is_of_key = reduce(or_, (F.coalesce(F.col("k.source") == name, F.lit(False)) for name in names)) | is_unknown
    same = which.same(which.parsed(key)) & (is_of_key | F.col("k.source").isNull())
    hits = rows.alias("t").filter(of_table & is_meant)
    return hits.join(F.broadcast(which.key_rows.alias("k")), same, "left_semi").select(*quarantine.PLACE)


def _empty_quarantine(session: SparkSession, lake: LakeFile, stream: str, which: ErasedRows) -> int:
    """Empty quarantined records and keep their places, so that they do not come back; return how many."""
    path = quarantine.path(lake)
    if not delta_log.is_table(session, path):
        return 0
    places = _quarantined(session, lake, stream, which)
    count = int(places.count())
    if count:
        nothing = F.lit(None).cast("binary")
        same = reduce(and_, (F.col(f"t.{name}") == F.col(f"s.{name}") for name in quarantine.PLACE))
        merge = DeltaTable.forPath(session, path).alias("t").merge(places.alias("s"), same)
        merge.whenMatchedUpdate(set={"key": nothing, "value": nothing}).execute()
    erased_records.purge(session, path)
    return count


def _count(
    spark: SparkSession, lake: LakeFile, stream: str, which: ErasedRows, not_reached: list[str]
) -> dict[str, int]:
    """Return how many rows there are, by place."""
    state = published.latest(spark, lake, stream)
    table = state.kept(which.table)
    counts = {"silver": 0, "history": 0, "former": 0, "quarantine": 0}
    if table is not None:
        for name, path, version in (
            ("silver", table_task.path(lake, stream, which.table), table.version),
            ("history", table_task.history_path(lake, stream, which.table), table.history),
        ):
            if version is not None:
                counts[name] = _matching(spark.read.format("delta").load(path), which)
    for path in find_former(spark, lake, stream, which.table):
        frame = spark.read.format("delta").load(path)
        if {SOURCE, *which.stored} <= set(frame.columns):
            counts["former"] += _matching(frame, which)
        else:
            not_reached.append(f"{path}: it lacks columns of the present key; remove the folder")
    if delta_log.is_table(spark, quarantine.path(lake)):
        counts["quarantine"] = int(_quarantined(spark, lake, stream, which).count())
    return counts
