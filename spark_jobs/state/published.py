"""What is published: the versions of silver's tables that belong together, in one flat Delta table of the lake, `<root>/state`.

A publication (publication.py) is one commit: a row for the stream and a row for each table that it changed; of each stream and
table the newest row counts. A reader of each table at its published version sees every source exactly up to one position and no
transaction half. A load that died before it published has published nothing; the next one does it again, which is harmless.
Releases before 0.2 published one row for each load, with all tables in it, which is read for streams that published nothing
since.

The folder of a table under the lake's root has one name for each table, and no name at a source leads out of the lake.

Versions of bronze that are noted with what is published may not be those of the bronze that is there now. A version is identified
by the id of its own commit. Bronze that was made again, or put back from an older copy, has another commit there, or none: then
nothing is known of what came after it, and all of it is read. It may also lack records that silver has: until it has caught up,
no table is made of it that needs them. Called by loads, replays and live rows.
"""

import hashlib
import logging
import re
from collections.abc import Mapping
from dataclasses import fields, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.

from headrace.configuration.lake import LakeFile
from headrace.errors import NeedsOperator
from headrace.schema import TableSchema
from spark_jobs import storage
from spark_jobs.state import delta_log, schema_texts
from spark_jobs.state import published_rows as rows_of
from spark_jobs.state.published_rows import Dropped, Positions, Published, Table
from spark_jobs.state.schema_texts import SchemaTexts

#: What a folder's name cannot hold: separators, and what only confuses.
_UNSAFE = re.compile(r"[/\\\x00-\x1f\x7f]")
#: Bytes that a file system takes in one name, and those that are kept of a longer one.
_MOST, _KEPT = 255, 180

_log = logging.getLogger(__name__)


def folder(table: str) -> str:
    """Return the folder's name of a table, by its source's `schema.table`: the name itself wherever it can be one."""
    if not _UNSAFE.search(table) and table not in {"", ".", ".."} and len(table.encode()) <= _MOST:
        return table
    readable = _UNSAFE.sub("_", table).lstrip(".").encode()[:_KEPT].decode(errors="ignore")
    return f"{readable or 'table'}-{hashlib.sha256(table.encode()).hexdigest()[:12]}"


__all__ = [
    "Dropped",
    "Positions",
    "Published",
    "Table",
    "before",
    "latest",
    "latest_of_all",
    "of_streams",
    "path",
    "remember",
]

#: What each table was read as last, and at which commit.
_read: dict[str, tuple[tuple[int, str], dict[str, Published]]] = {}


def path(lake: LakeFile) -> str:
    """Return the path of what is published of all streams."""
    return f"{lake.root}/state"


def latest(spark: SparkSession, lake: LakeFile, stream: str) -> Published:
    """Return what was published last for a stream."""
    state = of_streams(spark, lake).get(stream) or read_former(spark, lake).get(stream)
    return state or Published(stream=stream)


def latest_of_all(spark: SparkSession, lake: LakeFile) -> list[Published]:
    """Return what was published last for every stream that ever published, by name."""
    return [state for _, state in sorted((read_former(spark, lake) | of_streams(spark, lake)).items())]


def before(spark: SparkSession, lake: LakeFile, stream: str, upto: Positions, since: datetime) -> Published | None:
    """Return the newest state in which no source is beyond a position: of those since a time, or the last one; else None.

    A table whose folder was made since then, by a later load, is not there in it: its versions are those of another table;
    nor is one that has been dropped.
    """
    last = latest(spark, lake, stream)
    if last.load and _within(last.positions, upto):
        return last
    if not delta_log.is_table(spark, path(lake)):
        return None
    rows = spark.read.format("delta").load(path(lake)).filter(F.col("stream") == stream)
    states = rows.filter(F.col("table").isNull() & (F.col("finished_at") >= F.lit(since))).select("load", "positions")
    fit = [row["load"] for row in states.collect() if _within(row["positions"], upto)]
    return _by_load(spark, lake, rows, last, max(fit)) if fit else None


def finished_by(spark: SparkSession, lake: LakeFile, stream: str, when: datetime) -> Published | None:
    """Return the state of a stream that was published last by a moment; None when none is recorded that old.

    Without tables whose folders were made since, and those that have been dropped, as `before`.
    """
    last = latest(spark, lake, stream)
    if last.finished_at is not None and last.finished_at <= when:
        return last
    if not delta_log.is_table(spark, path(lake)):
        return None
    rows = spark.read.format("delta").load(path(lake)).filter(F.col("stream") == stream)
    earlier = rows.filter(F.col("table").isNull() & (F.col("finished_at") <= F.lit(when)))
    newest = earlier.agg(F.max("load").alias("load")).first()
    return _by_load(spark, lake, rows, last, newest["load"]) if newest and newest["load"] is not None else None


def _by_load(spark: SparkSession, lake: LakeFile, rows: DataFrame, last: Published, load: int) -> Published:
    """Return the state that a load of a stream published, of its `rows`, without what is no more as it was."""
    newest = _newest(rows.filter(F.col("load") <= load)).collect()
    state = _parse(spark, lake, [row.asDict(recursive=True) for row in newest])[last.stream]
    tables = {
        name: _as_of(table, state.load, last.tables.get(name))
        for name, table in state.tables.items()
        if name not in last.dropped
    }
    # One that was dropped then and is taken back is built again: of then it has nothing.
    tables |= {name: Table(table=name) for name in state.dropped if name in last.tables}
    dropped = {
        # Its history is shown as it was then.
        name: replace(drop, table=_as_of(state.tables[name], state.load, drop.table))
        if drop.renamed_to and name in state.tables
        else drop
        for name, drop in last.dropped.items()
    }
    return replace(state, tables=tables, dropped=dropped, bronze_removed=last.bronze_removed)


def _as_of(table: Table, load: int, now: Table | None) -> Table:
    """Return a table as it was published by a load, or without a version where it is another table now."""
    if now is None or now.version is None or (now.since or 0) > load:
        return Table(table=table.table)
    return table


def _within(positions: Positions, upto: Positions) -> bool:
    return all(position <= upto.get(source, "") for source, position in positions.items())


def of_streams(spark: SparkSession, lake: LakeFile) -> dict[str, Published]:
    """Return what this release published last for every stream, read once for each commit of the table."""
    place = path(lake)
    if not delta_log.is_table(spark, place):
        return {}
    cached, mark = _read.get(place), delta_log.mark(spark, place)
    if cached is None or cached[0] != mark:
        rows = storage.read_rows(spark, place, mark[0], choose=storage.newest_rows, query=_newest)
        # Returned as it was read: another thread may note what it read of another commit.
        cached = _read[place] = mark, _parse(spark, lake, rows)
    return cached[1]


def _newest(rows: DataFrame) -> DataFrame:
    """Return the newest row of each stream and table."""
    return rows.groupBy("stream", "table").agg(F.max_by(F.struct(*rows.columns), "load").alias("row")).select("row.*")


def _parse(spark: SparkSession, lake: LakeFile, newest: list[dict[str, Any]]) -> dict[str, Published]:
    return rows_of.parse(newest, partial(SchemaTexts, spark, schema_texts.path(lake)))


def remember(spark: SparkSession, lake: LakeFile, done: Published, version: int) -> None:
    """Spare the next look its reading, where this publication, at its version, is the only commit since the last look."""
    cached, mark = _read.get(path(lake)), delta_log.mark(spark, path(lake))
    if mark[0] != version:
        # Another process has published since: what is cached is of an older commit, and is read again.
        return
    if version == 0:
        _read[path(lake)] = mark, {done.stream: done}
    elif cached and cached[0][0] + 1 == version:
        _read[path(lake)] = mark, cached[1] | {done.stream: done}


#: The same of the table of releases before 0.2.
_former: dict[str, tuple[tuple[int, str], dict[str, Published]]] = {}


def former_path(lake: LakeFile) -> str:
    """Return the path of what releases before 0.2 published."""
    return f"{lake.root}/published"


def read_former(spark: SparkSession, lake: LakeFile) -> dict[str, Published]:
    """Return what releases before 0.2 published last for every stream."""
    place = former_path(lake)
    if not delta_log.is_table(spark, place):
        return {}
    cached, mark = _former.get(place), delta_log.mark(spark, place)
    if cached is None or cached[0] != mark:
        rows = spark.read.format("delta").option("versionAsOf", mark[0]).load(place)
        newest = rows.groupBy("stream").agg(F.max_by(F.struct(*rows.columns), "load").alias("row")).select("row.*")
        cached = _former[place] = mark, {row["stream"]: _former_state(row) for row in newest.collect()}
    return cached[1]


def _former_state(row: Row) -> Published:
    columns = row.asDict(recursive=True)
    tables = {table["table"]: _former_table(table) for table in columns.pop("tables")}
    # PySpark hands out times without a zone, in this machine's.
    times = {name: columns.pop(name).astimezone(UTC) for name in ("started_at", "finished_at")}
    return Published(**columns, **times, data=columns["load"], tables=tables)


def _former_table(columns: dict[str, Any]) -> Table:
    names = {field.name for field in fields(Table)}
    table = Table(**{name: value for name, value in columns.items() if name in names and value is not None})
    return replace(table, keyed=any(TableSchema.parse(text).key for text in table.schemas.values()))


def known_versions(spark: SparkSession, path: str, state: Published) -> Published:
    """Return what is published, without its versions of bronze where the table at the path has not these versions."""
    if state.bronze_version is None:
        return state
    commit = delta_log.commit_id(spark, path, state.bronze_version)
    # Earlier releases noted no commit.
    same = commit is not None and state.bronze_commit in {None, commit}
    return state if same else without_versions(state)


def without_versions(state: Published) -> Published:
    """Return what is published, of which no version of bronze is known."""
    tables = {name: replace(table, bronze_after=None) for name, table in state.tables.items()}
    held = {source: replace(rest, after=-1) for source, rest in state.unfinished.items() if rest.problem is not None}
    return replace(state, bronze_version=None, bronze_commit=None, bronze_done=None, unfinished=held, tables=tables)


def refuse_removed(low: Mapping[str, str], removed: Mapping[str, str], what: str) -> None:
    """Raise NeedsOperator where what is made of bronze from some positions on needs records that were too old to be kept."""
    if sources := sorted(source for source, cut in removed.items() if low.get(source, "") < cut):
        starts = ", ".join(f"{source} after {removed[source]}" for source in sources)
        raise NeedsOperator(
            f"{what} needs records that were removed from bronze after 'bronze_keep_days': it has those of {starts}",
            hint="Name a later time or position (--from, --as-of). To build a table from its beginning, copy it at these sources "
            "('headrace edge snapshot TABLE --replace'), load, and run 'headrace lake rebuild STREAM TABLE'.",
        )


def find_lacking(bronze: DataFrame, state: Published) -> set[str]:
    """Return the sources of which bronze ends ahead of what is published; none while its versions are known."""
    if state.bronze_version is not None or not state.positions:
        return set()
    # A schema record may be there ahead of its change; the mark of a copy has a transaction of its own.
    groups = bronze.filter(F.col("op").isNotNull() | F.col("transaction_id").isNotNull()).groupBy("source")
    ends = {row["source"]: row["position"] for row in groups.agg(F.max("position").alias("position")).collect()}
    if sources := ends_ahead(ends, state):
        _log.warning("bronze of stream %s lacks published records of %s", state.stream, ", ".join(sorted(sources)))
    return sources


def ends_ahead(ends: Mapping[str, str], state: Published) -> set[str]:
    """Return the sources of which the last records are ahead of what is published."""
    return {source for source, position in state.positions.items() if ends.get(source, "") < position}


def refuse_lacking(bronze: DataFrame, state: Published) -> None:
    """Raise NeedsOperator where bronze lacks records of what is published: what is made of it would lack them too."""
    if sources := find_lacking(bronze, state):
        raise NeedsOperator(
            f"bronze of stream {state.stream!r} lacks records of {', '.join(sorted(sources))} that are published",
            hint=f"It was made again, or is an older copy. Run 'headrace lake load {state.stream}' first; where Kafka no longer "
            "holds them, copy the tables again ('headrace edge snapshot --replace').",
        )
