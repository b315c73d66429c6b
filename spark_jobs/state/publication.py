"""A publication: one commit that is appended last, of what a load, a replay or maintenance did to the tables of a stream.

Fails as retryable where something else published since the caller read what it worked on. Rows that were replaced longer ago than
`keep_days` are removed now and then, so no cost grows with the number of loads.
"""

import hashlib
import logging
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from delta import DeltaTable
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.

from headrace.configuration.lake import LakeFile
from headrace.errors import ReplicationError, Retryable
from spark_jobs import storage
from spark_jobs.errors import explained, is_conflict
from spark_jobs.state import delta_log, published, schema_texts
from spark_jobs.state import published_rows as rows_of
from spark_jobs.state.published_rows import NEW, Dropped, Published, Table
from spark_jobs.state.schema_texts import SchemaTexts

NOTE = "published"
#: After this many publications of a stream, replaced rows are removed and small files of the table are put together.
_PRUNE_EVERY = 100
#: How often a publication is tried again when maintenance, or other streams, publish at the same time.
_TRIES = 8

_log = logging.getLogger(__name__)


def append(
    spark: SparkSession, lake: LakeFile, done: Published, *, before: Published | None = None, maintenance: bool = False
) -> Published:
    """Publish what differs from the state `before`, on which the caller worked, and return what is published now.

    Raises Retryable when another load or replay of the stream has published since. What maintenance published meanwhile, of
    tables that this did not change, stays.
    """
    base = Published(stream=done.stream, load=done.load - 1, data=done.load - 1) if before is None else before
    attempt = uuid.uuid4().hex
    for _ in range(_TRIES):
        now = published.latest(spark, lake, done.stream)
        if now.data != base.data and not maintenance:
            raise _overtaken(done.stream)
        merged = _merged(base, now, done, maintenance=maintenance)
        # All tables of a stream that former releases published, or that was never published.
        stored_state = published.of_streams(spark, lake).get(done.stream, Published(stream=done.stream))
        changed = rows_of.changed(stored_state, merged)
        known = {name: _mark(drop) for name, drop in stored_state.dropped.items()}
        dropped = {name for name, drop in merged.dropped.items() if known.get(name) != _mark(drop)}
        moved = {"moved": _moved(stored_state, merged, changed), "maintenance": maintenance}
        if maintenance and not changed and not dropped and merged.bronze_removed == now.bronze_removed:
            return now
        schema_texts.keep(spark, schema_texts.path(lake), _texts(changed.values()))
        version = _commit(spark, lake, merged, changed, attempt, dropped, moved)
        if version is not None:
            published.remember(spark, lake, merged, version)
            if merged.load % _PRUNE_EVERY == 0:
                prune(spark, lake)
            return merged
    raise _overtaken(done.stream)


def _merged(base: Published, now: Published, done: Published, *, maintenance: bool) -> Published:
    """Return the state to publish: what the caller changed, on what is published now."""
    load, finished = now.load + 1, datetime.now(UTC)
    # It only grows.
    removed = now.bronze_removed | {s: max(p, now.bronze_removed.get(s, "")) for s, p in done.bronze_removed.items()}
    if maintenance:
        tables = {
            name: _versions(base.kept(name), table, done.kept(name) or table, replace(table, changes=0))
            for name, table in now.tables.items()
        }
        # Of a table that was renamed or taken back meanwhile too.
        renamed = {
            name: _versions(base.kept(name), table, done.kept(name) or table, table, is_former=True)
            for name, table in now.renamed.items()
        }
        dropped = {name: replace(drop, table=renamed.get(name, drop.table)) for name, drop in now.dropped.items()}
        return replace(
            now, load=load, finished_at=finished, changes=0, tables=tables, dropped=dropped, bronze_removed=removed
        )
    tables = {}
    for name, table in done.tables.items():
        own = _versions(base.kept(name), now.kept(name) or table, table, table)
        tables[name] = replace(own, since=load) if own.since == NEW else own
    # An erasure, or compaction, may have gone through a table meanwhile.
    renamed = {
        name: _versions(base.kept(name), now.kept(name) or table, table, table, is_former=True)
        for name, table in done.renamed.items()
    }
    dropped = {name: replace(drop, table=renamed.get(name, drop.table)) for name, drop in done.dropped.items()}
    return replace(
        done, load=load, data=load, finished_at=finished, tables=tables, dropped=dropped, bronze_removed=removed
    )


def _mark(drop: Dropped) -> tuple[str | None, int | None, int | None]:
    """Return what changes of a table while it is dropped."""
    return drop.renamed_to, drop.table.version, drop.table.history


def _versions(base: Table | None, now: Table, done: Table, row: Table, *, is_former: bool = False) -> Table:
    """Return a row with the versions of whichever side changed them; where both did, with the row's own.

    Of a former name the newer ones: no load writes it, and its folder is one.
    """

    def pick(name: str) -> Any:
        before, theirs, mine = getattr(base, name, None), getattr(now, name), getattr(done, name)
        if before in (mine, theirs):
            return theirs if mine == before else mine
        return max(theirs or 0, mine or 0) if is_former else getattr(row, name)

    return replace(row, version=pick("version"), history=pick("history"))


def _texts(changed: Iterable[Table]) -> list[str]:
    """Return the schema records of tables that are in memory: the others were read from where they are kept."""
    return [text for table in changed if not isinstance(table.schemas, SchemaTexts) for text in table.schemas.values()]


def _commit(
    spark: SparkSession,
    lake: LakeFile,
    done: Published,
    changed: dict[str, Table],
    attempt: str,
    dropped: Iterable[str],
    moved: delta_log.Note,
) -> int | None:
    """Append a publication; return its version, None when its number was taken by another one meanwhile."""
    # From text, so that no Python process is started for a few rows.
    rows = rows_of.rows(done, changed, dropped)
    for row in rows:
        row["path"] = f"silver/{done.stream}/{published.folder(row['table'])}" if row["table"] is not None else None
    text = F.lit(msgspec.json.encode(rows).decode())
    frame = spark.range(1).select(F.inline(F.from_json(text, f"array<struct<{rows_of.COLUMNS}>>"))).coalesce(1)
    writer = frame.write.format("delta").mode("append").option("userMetadata", _note(lake, done, attempt, moved))
    # A lake made by an earlier release lacks what is noted since.
    writer = writer.option("mergeSchema", "true")
    try:
        # Delta passes over a number that is taken.
        writer.option("txnAppId", f"headrace.published.{done.stream}").option("txnVersion", done.load).save(
            published.path(lake)
        )
    except (PySparkException, Py4JError) as error:
        # The first publications of many streams make the table at the same time.
        if not is_conflict(error):
            raise
    for version, info in delta_log.commits(spark, published.path(lake)):
        note = delta_log.read_note(info, NOTE)
        if note and note["stream"] == done.stream:
            return version if note["attempt"] == attempt else None
    return None


def _moved(former: Published, done: Published, changed: Mapping[str, Table]) -> delta_log.Note:
    """Return the tables that have another version, with their positions where these are not the stream's.

    One that is stopped has gone on nowhere; its former version is removed after a while all the same.
    """
    return {
        name: {"version": table.version, "history": table.history}
        | ({} if table.positions == done.positions else {"positions": table.positions})
        | ({} if table.problem is None or table.held_back else {"stopped": True})
        for name, table in sorted(changed.items())
        if table.version is not None and (name not in former.tables or table.version != former.tables[name].version)
    }


def read_moved(
    notes: Iterable[delta_log.Note], since: int | None = None, *, maintenance: bool = False
) -> tuple[int, delta_log.Note]:
    """Return the number of a stream's last publication, 0 without one, and the tables that went on after another one.

    `notes` are the stream's, newest first. Without a number, or with one that is not the stream's, the last one alone counts.
    With `maintenance` also those that have another version and the same rows, or are stopped.
    """
    newest, tables = 0, delta_log.Note()
    for note in notes:
        newest = newest or note["load"]
        since = newest - 1 if since is None or since > newest else since
        if note["load"] <= since:
            break
        for name, table in note.get("moved", {}).items():
            if maintenance or not (note.get("maintenance") or table.get("stopped")):
                tables.setdefault(name, {"load": note["load"], "positions": note["positions"]} | table)
    return newest, dict(sorted(tables.items()))


def _note(lake: LakeFile, done: Published, attempt: str, moved: delta_log.Note) -> str:
    """Return what a look without Spark must know: whether the next load has anything to do, and which tables went on."""
    whole = all(table.problem is None and table.positions == done.positions for table in done.tables.values())
    whole = whole and not done.held
    there = [published.folder(name) for name, table in done.tables.items() if table.version is not None]
    return delta_log.write(
        NOTE,
        stream=done.stream,
        load=done.load,
        attempt=attempt,
        bronze_version=done.bronze_version,
        bronze_commit=done.bronze_commit,
        whole=whole,
        tables=tables_digest(there),
        dropped=sorted(map(published.folder, done.dropped)),
        settings=settings(lake, done.stream),
        seconds=(done.finished_at - done.started_at).total_seconds() if done.finished_at and done.started_at else None,
        waiting=sum(rest.changes for rest in done.unfinished.values()),
        positions=done.positions,
        **moved,
    )


def tables_digest(folders: Iterable[str]) -> str:
    """Return a digest of the folders of a stream's tables: there may be thousands."""
    return hashlib.blake2b("\n".join(sorted(folders)).encode(), digest_size=16).hexdigest()


def settings(lake: LakeFile, stream: str) -> str:
    """Return a digest of the settings of a stream's tables in the lake's file: a load has to apply a change of them."""
    section = lake.stream(stream)
    return hashlib.blake2b(msgspec.json.encode((section.history, section.tables)), digest_size=16).hexdigest()


def _overtaken(stream: str) -> Retryable:
    return Retryable(
        f"stream {stream!r}: something else published while this ran; nothing was doubled",
        hint="Run one load or replay of a stream at a time, then run this one again.",
    )


def prune(spark: SparkSession, lake: LakeFile) -> None:
    """Remove rows that were replaced longer ago than `keep_days`, and put small files together; a failure is logged alone."""
    try:
        with explained("prune"):
            _prune(spark.newSession(), lake)
    except ReplicationError as error:
        _log.info("what is published was not pruned this time: %s", error.message)


def _prune(spark: SparkSession, lake: LakeFile) -> None:
    rows = spark.read.format("delta").load(published.path(lake))
    old = rows.filter(F.col("finished_at") < F.lit(datetime.now(UTC) - timedelta(days=lake.lake.keep_days + 1)))
    # The newest of the old rows was the state until its successor came.
    kept = old.groupBy("stream", "table").agg(F.max("load").alias("load"))
    same = "s.stream = t.stream AND s.`table` <=> t.`table` AND t.load < s.load"
    DeltaTable.forPath(spark, published.path(lake)).alias("t").merge(
        kept.alias("s"), same
    ).whenMatchedDelete().execute()
    spark.sql(f"OPTIMIZE {storage.table(published.path(lake))}")
