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

import msgspec
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.

from headrace.configuration.lake import LakeFile
from headrace.requests import caller
from spark_jobs.state import delta_log

#: In place of the kind of change: what is left of a record is its place, its position and whether it ends its transaction.
ERASED = "x"
_STRUCTURE = (
    "array<struct<erasure: string, stream: string, `table`: string, step: string, at: timestamp, by: string, reason: string, "
    "secret: string, hashes: array<struct<source: string, hash: string>>, upto: map<string, string>, "
    "counts: map<string, bigint>>>"
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
    hashed = [(source, _hash_of(erasure.secret, source, erasure.table, key)) for source, key in sorted(set(keys))]
    _append(spark, lake, erasure, "begun", hashed, upto, {})


def end(spark: SparkSession, lake: LakeFile, erasure: Erasure, counts: dict[str, int]) -> None:
    """Record how much was erased, by place."""
    _append(spark, lake, erasure, "done", [], {}, counts)


def tables(spark: SparkSession, lake: LakeFile, stream: str) -> list[str]:
    """Return the tables of a stream of which rows were erased."""
    if not _exists(spark, lake):
        return []
    rows = spark.read.format("delta").load(path(lake)).filter(F.col("stream") == stream).select("table").distinct()
    return sorted(row["table"] for row in rows.collect())


def has_since(spark: SparkSession, lake: LakeFile, stream: str, table: str, at: datetime) -> bool:
    """Return whether rows of a table were erased after a moment."""
    if not _exists(spark, lake):
        return False
    rows = spark.read.format("delta").load(path(lake)).filter((F.col("stream") == stream) & (F.col("table") == table))
    return not rows.filter(F.col("at") >= F.lit(at)).isEmpty()


def emptied(spark: SparkSession, lake: LakeFile, stream: str, rows: DataFrame) -> DataFrame:
    """Return bronze's rows, those of erased rows without key and value."""
    if not _exists(spark, lake):
        return rows
    begun = spark.read.format("delta").load(path(lake)).filter((F.col("stream") == stream) & (F.col("step") == "begun"))
    each = begun.select("secret", "table", "upto", F.explode("hashes").alias("h"))
    each = each.select("secret", "table", "h.source", "h.hash", F.expr("upto[h.source]").alias("upto"))
    cuts = each.groupBy("secret", "source").agg(F.max("upto").alias("upto")).collect()
    for secret in sorted({row["secret"] for row in cuts}):
        # Only what may have been there then is hashed.
        before = F.lit(False)
        for row in cuts:
            if row["secret"] == secret:
                before |= (F.col("source") == row["source"]) & (F.col("position") <= row["upto"])
        own = each.filter(F.col("secret") == secret).groupBy("hash").agg(F.max("upto").alias("_upto"))
        hashed = rows.withColumn("_hash", F.when(before & F.col("key").isNotNull(), _hash(secret)))
        matches = hashed.join(F.broadcast(own), F.col("_hash") == F.col("hash"), "left")
        gone = F.col("_upto").isNotNull() & (F.col("position") <= F.col("_upto"))
        rows = matches.withColumns(
            {name: F.when(gone, value).otherwise(F.col(name)) for name, value in left().items()}
        ).drop("_hash", "hash", "_upto")
    return rows


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


def _append(
    spark: SparkSession,
    lake: LakeFile,
    erasure: Erasure,
    step: str,
    hashes: list[tuple[str, str]],
    upto: dict[str, str],
    counts: dict[str, int],
) -> None:
    row = {
        "erasure": erasure.id,
        "stream": erasure.stream,
        "table": erasure.table,
        "step": step,
        "at": datetime.now(UTC),
        "by": caller(),
        "reason": erasure.reason,
        "secret": erasure.secret,
        "hashes": [{"source": source, "hash": hashed} for source, hashed in hashes],
        "upto": upto,
        "counts": counts,
    }
    # From text, so that no Python process is started for a few rows.
    frame = spark.range(1).select(F.inline(F.from_json(F.lit(msgspec.json.encode([row]).decode()), _STRUCTURE)))
    frame.coalesce(1).write.format("delta").mode("append").save(path(lake))
