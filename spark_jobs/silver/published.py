"""The published positions: one row for each load of a stream, appended last, that names the versions that belong together.

A reader who reads each table at its published version sees every source exactly up to one position and no transaction half.
A load that died before its row was appended has published nothing; the next one does it again, which is harmless.
"""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import msgspec
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.

from headrace.configuration.lake import LakeFile
from headrace.errors import Retryable
from headrace.schema import TableSchema
from spark_jobs import delta_log

Positions = dict[str, str]
NOTE = "published"

_STRUCTURE = (
    "stream string, load bigint, started_at timestamp, finished_at timestamp, bronze_version bigint, "
    "bronze_done bigint, changes bigint, positions map<string, string>, tables array<struct<`table`: string, "
    "version: bigint, changes: bigint, positions: map<string, string>, schemas: map<string, string>, "
    "problem: string, history: bigint, warnings: map<string, string>>>"
)
#: After this many loads the small files of the table are put together.
_COMPACT_EVERY = 100
#: What each table was read as last, and at which commit.
_read: dict[str, tuple[tuple[int, str], dict[str, "Published"]]] = {}


@dataclass(frozen=True, kw_only=True)
class Table:
    """A silver table as published."""

    #: The source's `schema.table`.
    table: str
    #: The Delta version to read; None when the table could not be made yet.
    version: int | None = None
    #: Changes that the load applied.
    changes: int = 0
    #: Up to which position of each source the table stands.
    positions: Positions = field(default_factory=dict)
    #: The newest schema record of each source, as it came.
    schemas: dict[str, str] = field(default_factory=dict)
    #: Why the table stopped, when it did.
    problem: str | None = None
    #: The Delta version of its history; None when none is kept.
    history: int | None = None
    #: Why its rows may differ from their source, by source and position of the schema that changed (copy_needed.py).
    warnings: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Published:
    """What a load published; number 0 is the state before the first one."""

    stream: str
    load: int = 0
    started_at: datetime | None = None
    finished_at: datetime | None = None
    bronze_version: int | None = None
    #: Newest version of bronze of which nothing is left to do: what is beyond the positions came after it. None: not known.
    bronze_done: int | None = None
    changes: int = 0
    #: Up to which position each source is published.
    positions: Positions = field(default_factory=dict)
    tables: dict[str, Table] = field(default_factory=dict)


def path(lake: LakeFile) -> str:
    """Return where the published positions of all streams stand."""
    return f"{lake.root}/published"


def latest(spark: SparkSession, lake: LakeFile, stream: str) -> Published:
    """Return what was published last for a stream."""
    return _latest(spark, path(lake)).get(stream, Published(stream=stream))


def before(spark: SparkSession, lake: LakeFile, stream: str, upto: Positions, since: datetime) -> Published | None:
    """Return the newest state in which no source is beyond a position: of those since a time, or the last one; else None."""
    if (last := latest(spark, lake, stream)).load and _within(last.positions, upto):
        return last
    if not delta_log.is_table(spark, path(lake)):
        return None
    rows = spark.read.format("delta").load(path(lake)).filter(F.col("stream") == stream)
    known = rows.filter(F.col("finished_at") >= F.lit(since)).select("load", "positions").collect()
    fit = [row["load"] for row in known if _within(row["positions"], upto)]
    row = rows.filter(F.col("load") == max(fit)).first() if fit else None
    return None if row is None else _state(row)


def _within(positions: Positions, upto: Positions) -> bool:
    return all(position <= upto.get(source, "") for source, position in positions.items())


def latest_of_all(spark: SparkSession, lake: LakeFile) -> list[Published]:
    """Return what was published last for every stream that ever published, by name."""
    return [state for _, state in sorted(_latest(spark, path(lake)).items())]


def _latest(spark: SparkSession, place: str) -> dict[str, Published]:
    """Return what was published last for every stream, read once for each commit of the table."""
    if not delta_log.is_table(spark, place):
        return {}
    mark = delta_log.mark(spark, place)
    if place not in _read or _read[place][0] != mark:
        rows = spark.read.format("delta").option("versionAsOf", mark[0]).load(place)
        newest = rows.groupBy("stream").agg(F.max_by(F.struct(*rows.columns), "load").alias("row")).select("row.*")
        states = map(_state, newest.collect())
        _read[place] = (mark, {state.stream: state for state in states})
    return _read[place][1]


def _state(row: Row) -> Published:
    found = row.asDict(recursive=True)
    # What an earlier release published has no warnings.
    tables = {
        table["table"]: Table(**table | {"warnings": table.get("warnings") or {}}) for table in found.pop("tables")
    }
    # PySpark hands out times without a zone, in this machine's.
    times = {name: found.pop(name).astimezone(UTC) for name in ("started_at", "finished_at")}
    return Published(**found, **times, tables=tables)


def _note(done: Published) -> str:
    """Return what a look without Spark must know: whether the next load has anything to do."""
    tables = {
        name: {
            "keyed": any(TableSchema.parse(text).key for text in one.schemas.values()),
            "history": one.history is not None,
        }
        for name, one in done.tables.items()
    }
    whole = all(one.problem is None and one.positions == done.positions for one in done.tables.values())
    return delta_log.write(NOTE, stream=done.stream, bronze_version=done.bronze_version, whole=whole, tables=tables)


def append(spark: SparkSession, lake: LakeFile, done: Published) -> None:
    """Publish; raise Retryable when another load, or maintenance, of the stream has published meanwhile."""
    # At the very same time it is a conflict of Delta's; a number that is there already would be passed over in silence.
    if latest(spark, lake, done.stream).load >= done.load:
        raise Retryable(
            f"stream {done.stream!r}: something else published while this ran; nothing was doubled",
            hint="Run one load, replay or maintenance of a stream at a time, then run this one again.",
        )
    done = replace(done, finished_at=datetime.now(UTC))
    known = _read.get(path(lake))
    row = msgspec.to_builtins(done)
    row["tables"] = [row["tables"][name] for name in sorted(done.tables)]
    # From text, so that no Python process is started for a single row.
    text = F.lit(msgspec.json.encode(row).decode())
    (
        spark.range(1)
        .select(F.inline(F.array(F.from_json(text, _STRUCTURE))))
        .coalesce(1)
        .write.format("delta")
        .mode("append")
        # A lake made by an earlier release lacks what is noted since.
        .option("mergeSchema", "true")
        .option("txnAppId", f"headrace.published.{done.stream}")
        .option("txnVersion", done.load)
        .option("userMetadata", _note(done))
        .save(path(lake))
    )
    mark = delta_log.mark(spark, path(lake))
    if known and mark[0] == known[0][0] + 1:
        _read[path(lake)] = (mark, known[1] | {done.stream: done})
    if done.load % _COMPACT_EVERY == 0:
        spark.sql(f"OPTIMIZE delta.`{path(lake)}`")
