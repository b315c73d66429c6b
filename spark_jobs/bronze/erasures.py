"""`<root>/erasures`: which rows were erased from the lake, by whom, why and when, without a value of theirs.

A row for the beginning and one for the end of each erasure. Of the keys it has hashes, with a secret of the lake that is kept
here too: whoever can read the lake's root can test a guess. Records of erased rows that come to bronze again, from a topic that
still holds them, are emptied by these hashes. Called by what writes bronze, and by erasures.
"""

import hashlib
import secrets
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import reduce
from operator import and_
from typing import Any

import msgspec
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.

from headrace.configuration.lake import LakeFile
from headrace.requests import caller
from spark_jobs.errors import is_conflict
from spark_jobs.state import delta_log

#: In place of the kind of change: what is left of a record is its place, its position and whether it ends its transaction.
ERASED = "x"
#: The version of bronze that was noted last of each stream, as it was read at a commit of the table.
_noted: dict[tuple[str, str], tuple[tuple[int, str], tuple[int, str] | None]] = {}
_STRUCTURE = (
    "array<struct<erasure: string, stream: string, `table`: string, step: string, at: timestamp, by: string, reason: string, "
    "secret: string, hashes: array<struct<source: string, hash: string>>, upto: map<string, string>, "
    "counts: map<string, bigint>, bronze_version: bigint, bronze_commit: string, load: bigint>>"
)


@dataclass(frozen=True, kw_only=True)
class Erasure:
    """An erasure that began."""

    id: str
    stream: str
    table: str
    reason: str
    secret: str


def path(lake: LakeFile) -> str:
    """Return the path of the table."""
    return f"{lake.root}/erasures"


def new(spark: SparkSession, lake: LakeFile, stream: str, table: str, reason: str) -> Erasure:
    """Return an erasure, of which nothing is recorded yet."""
    first = spark.read.format("delta").load(path(lake)).select("secret").first() if _exists(spark, lake) else None
    secret = first["secret"] if first else secrets.token_hex(32)
    return Erasure(id=uuid.uuid4().hex, stream=stream, table=table, reason=reason, secret=secret)


def begin(
    spark: SparkSession, lake: LakeFile, erasure: Erasure, keys: Iterable[tuple[str, str]], upto: dict[str, str]
) -> None:
    """Record, ahead of all that it changes, that the rows of sources with keys, as records have them, are erased.

    Records up to a position of each source stay erased, wherever they come from.
    """
    hashes = [
        {"source": source, "hash": _hash_of(erasure.secret, source, erasure.table, key)}
        for source, key in sorted(set(keys))
    ]
    _append(spark, lake, erasure, "begun", hashes=hashes, upto=upto)


def end(
    spark: SparkSession,
    lake: LakeFile,
    erasure: Erasure,
    counts: dict[str, int],
    bronze: tuple[int, str] | None,
    load: int | None,
) -> None:
    """Record how much was erased, by place, and what was made without it, where there is some.

    These are the version of bronze with the id of its commit, and the number by which silver and history were published.
    """
    version, commit = bronze if bronze is not None else (None, None)
    _append(spark, lake, erasure, "done", counts=counts, bronze_version=version, bronze_commit=commit, load=load)


def note_again(spark: SparkSession, lake: LakeFile, stream: str, bronze: tuple[int, str]) -> None:
    """Record a version of bronze that has none of the rows that were erased so far, and the id of its commit."""
    version, commit = bronze
    for table in tables(spark, lake, stream):
        erasure = new(spark, lake, stream, table, "bronze is another table")
        _append(spark, lake, erasure, "again", bronze_version=version, bronze_commit=commit)


def is_undone(spark: SparkSession, lake: LakeFile, stream: str, bronze: str) -> bool:
    """Whether bronze is another table than the one that the stream's rows were erased from: it may have them."""
    if not _exists(spark, lake) or not delta_log.is_table(spark, bronze):
        return False
    mark = delta_log.mark(spark, path(lake))
    known = _noted.get((path(lake), stream))
    if known is None or known[0] != mark:
        known = _noted[path(lake), stream] = mark, _read_noted(spark, lake, stream)
    if known[1] is None:
        return False
    version, commit = known[1]
    found = delta_log.commit_id(spark, bronze, version)
    # What is older than the log is taken for the same.
    return found != commit if found is not None else delta_log.version(spark, bronze) < version


def _read_noted(spark: SparkSession, lake: LakeFile, stream: str) -> tuple[int, str] | None:
    rows = spark.read.format("delta").load(path(lake)).filter(F.col("stream") == stream)
    if "bronze_version" not in rows.columns:
        # Of an earlier release.
        return None
    noted = rows.filter(F.col("bronze_version").isNotNull()).orderBy(F.desc("at")).first()
    return (noted["bronze_version"], noted["bronze_commit"]) if noted is not None else None


def tables(spark: SparkSession, lake: LakeFile, stream: str) -> list[str]:
    """Return the tables of a stream of which rows were erased."""
    if not _exists(spark, lake):
        return []
    rows = spark.read.format("delta").load(path(lake)).filter(F.col("stream") == stream).select("table").distinct()
    return sorted(row["table"] for row in rows.collect())


def has_since(spark: SparkSession, lake: LakeFile, stream: str, table: str, at: datetime) -> bool:
    """Return whether rows of a table were erased after a moment, in part at least; again from restored bronze does not count."""
    if not _exists(spark, lake):
        return False
    rows = spark.read.format("delta").load(path(lake)).filter((F.col("stream") == stream) & (F.col("table") == table))
    return not rows.filter((F.col("step") != "again") & (F.col("at") >= F.lit(at))).isEmpty()


def find_since(spark: SparkSession, lake: LakeFile, stream: str, load: int, at: datetime) -> set[str]:
    """Return the tables of which rows were erased after a load that was published at a moment: what it published has them."""
    if not _exists(spark, lake):
        return set()
    frame = spark.read.format("delta").load(path(lake)).filter((F.col("stream") == stream) & (F.col("step") != "again"))
    # Earlier releases did not record it.
    by = F.col("load") if "load" in frame.columns else F.lit(None).cast("bigint")
    rows = frame.select(
        "erasure", "table", "step", by.alias("load"), (F.col("at") >= F.lit(at)).alias("later")
    ).collect()
    ended = {row["erasure"] for row in rows if row["step"] == "done"}
    return {
        row["table"]
        for row in rows
        if (row["load"] > load if row["load"] is not None else row["later"])
        and (row["step"] == "done" or row["erasure"] not in ended)
    }


def emptied(spark: SparkSession, lake: LakeFile, stream: str, rows: DataFrame) -> DataFrame:
    """Return bronze's rows, those of erased rows without key and value."""
    for secret, cuts in _cuts(spark, lake, stream).items():
        marked = _marked(spark, lake, stream, rows, secret, cuts)
        values = {name: F.when(_gone(), value).otherwise(F.col(name)) for name, value in left().items()}
        rows = marked.withColumns(values).drop("_upto")
    return rows


def find(spark: SparkSession, lake: LakeFile, stream: str, rows: DataFrame) -> list[tuple[str, str, str, str]]:
    """Return what bronze's rows have of erased ones: table, source, key, and up to which position it is erased."""
    found = []
    for secret, cuts in _cuts(spark, lake, stream).items():
        gone = _marked(spark, lake, stream, rows, secret, cuts).filter(_gone())
        found += gone.select("table", "source", "key", "_upto").distinct().collect()
    return sorted((row["table"], row["source"], row["key"], row["_upto"]) for row in found)


def _cuts(spark: SparkSession, lake: LakeFile, stream: str) -> dict[str, dict[str, str]]:
    """Return up to which position of each source rows were erased, by secret."""
    cuts: dict[str, dict[str, str]] = {}
    if _exists(spark, lake):
        each = _hashes(spark, lake, stream)
        for row in each.groupBy("secret", "source").agg(F.max("upto").alias("upto")).collect():
            cuts.setdefault(row["secret"], {})[row["source"]] = row["upto"]
    return dict(sorted(cuts.items()))


def _hashes(spark: SparkSession, lake: LakeFile, stream: str) -> DataFrame:
    known = spark.read.format("delta").load(path(lake)).filter((F.col("stream") == stream) & (F.col("step") == "begun"))
    each = known.select("secret", "upto", F.explode("hashes").alias("h"))
    return each.select("secret", "h.source", "h.hash", F.expr("upto[h.source]").alias("upto"))


def _marked(
    spark: SparkSession, lake: LakeFile, stream: str, rows: DataFrame, secret: str, cuts: dict[str, str]
) -> DataFrame:
    """Return rows with the position `_upto` which theirs are erased, null where they are not."""
    # Only what may have been there then is hashed.
    before = F.lit(False)
    for source, upto in sorted(cuts.items()):
        before |= (F.col("source") == source) & (F.col("position") <= upto)
    own = _hashes(spark, lake, stream).filter(F.col("secret") == secret).groupBy("hash")
    hashed = rows.withColumn("_hash", F.when(before & F.col("key").isNotNull(), _hash(secret)))
    found = hashed.join(F.broadcast(own.agg(F.max("upto").alias("_upto"))), F.col("_hash") == F.col("hash"), "left")
    return found.drop("_hash", "hash")


def _gone() -> Column:
    return F.col("_upto").isNotNull() & (F.col("position") <= F.col("_upto"))


def is_tombstone(alias: str) -> Column:
    """Return the condition that a record follows a delete: it has nothing but the key."""
    return reduce(and_, (F.col(f"{alias}.{name}").isNull() for name in ("value", "table", "source")))


def left() -> dict[str, Column]:
    """Return what a record of an erased row has in its columns instead; it has the others as before."""
    text = F.lit(None).cast("string")
    return {
        "key": text,
        "value": text,
        "table": text,
        "op": F.lit(ERASED),
        "partial": F.lit(False),
        "rekeyed": F.lit(False),
    }


def _hash(secret: str) -> Column:
    return F.sha2(F.concat_ws("\0", F.lit(secret), F.col("source"), F.col("table"), F.col("key")), 256)


def _hash_of(secret: str, source: str, table: str, key: str) -> str:
    return hashlib.sha256(f"{secret}\0{source}\0{table}\0{key}".encode()).hexdigest()


def _exists(spark: SparkSession, lake: LakeFile) -> bool:
    return delta_log.is_table(spark, path(lake))


def _last(spark: SparkSession, lake: LakeFile) -> datetime:
    """Return a time after all that are recorded: of what is noted of bronze the last counts, also of a clock that was ahead."""
    row = spark.read.format("delta").load(path(lake)).agg(F.unix_micros(F.max("at")).alias("at")).first()
    return datetime.fromtimestamp((row["at"] if row is not None else 0) // 1_000_000 + 1, UTC)


def _append(spark: SparkSession, lake: LakeFile, erasure: Erasure, step: str, **columns: Any) -> None:
    now = datetime.now(UTC)
    row = {
        "erasure": erasure.id,
        "stream": erasure.stream,
        "table": erasure.table,
        "step": step,
        "at": max(now, _last(spark, lake)) if columns.get("bronze_version") is not None else now,
        "by": caller(),
        "reason": erasure.reason,
        "secret": erasure.secret,
        "hashes": [],
        "upto": {},
        "counts": {},
        **columns,
    }
    # From text, so that no Python process is started for a few rows.
    frame = spark.range(1).select(F.inline(F.from_json(F.lit(msgspec.json.encode([row]).decode()), _STRUCTURE)))
    # A table of an earlier release lacks what is recorded since.
    writer = frame.coalesce(1).write.format("delta").mode("append").option("mergeSchema", "true")
    try:
        writer.save(path(lake))
    except PySparkException as error:
        if not is_conflict(error):
            raise
        # Another erasure made the table, or gave it the new columns, at the same time: they are there now.
        writer.save(path(lake))
