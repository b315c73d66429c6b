"""Records of erased rows emptied in bronze: by an erasure, and again where bronze was put back from a copy of before.

What is left of a record keeps its place, by which loads know what came and which transactions are whole. An erasure notes the
commit of bronze behind it: where that is not in bronze's log, bronze is another table, which may have the rows. Called by
erasures, and ahead of what reads bronze as a whole.
"""

import json
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from operator import and_
from typing import TypeVar

from delta import DeltaTable
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.

from headrace.configuration.lake import LakeFile
from headrace.errors import Retryable
from spark_jobs import storage
from spark_jobs.bronze import erasures, increment, sink
from spark_jobs.errors import is_conflict
from spark_jobs.state import delta_log

#: A row that a vector marks would stay in its file.
_VECTORS = "spark.databricks.delta.merge.deletionVectors.persistent"
#: How often a step is tried when loads or maintenance write to the same table, and the seconds between two tries.
_TRIES, _PAUSE_SECONDS = 60, 1.0

Result = TypeVar("Result")

_log = logging.getLogger(__name__)


def session_for(spark: SparkSession) -> SparkSession:
    """Return a session whose MERGE leaves nothing of a row in its file."""
    session = spark.newSession()
    session.conf.set(_VECTORS, "false")
    return session


def empty(
    session: SparkSession,
    lake: LakeFile,
    stream: str,
    table: str,
    keys: Sequence[tuple[str, str, str]],
    tombstones: Iterable[str],
) -> None:
    """Empty the records of keys, each with its source and last position, and tombstones with some keys.

    Behind its commits nothing before them is read by the log.
    """
    path, alone = sink.table_path(lake, stream), sorted(set(tombstones))
    if not keys and not alone:
        return
    session.conf.set(delta_log.NOTE_SETTING, delta_log.write(increment.ERASED, stream=stream))
    if keys:
        rows = [{"source": source, "key": key, "position": position} for source, key, position in keys]
        structure = "array<struct<source: string, key: string, position: string>>"
        given = session.range(1).select(F.inline(F.from_json(F.lit(json.dumps(rows)), structure)))
        same = reduce(and_, (F.col(f"t.{name}") == F.col(f"s.{name}") for name in ("source", "key")))
        inside = (F.col("t.table") == table) & (F.col("t.position") <= F.col("s.position"))
        merge = DeltaTable.forPath(session, path).alias("t").merge(F.broadcast(given).alias("s"), same & inside)
        merge.whenMatchedUpdate(set=erasures.left()).execute()
    if alone:
        given = session.range(1).select(F.explode(F.from_json(F.lit(json.dumps(alone)), "array<string>")).alias("key"))
        same = erasures.is_tombstone("t") & (F.col("t.key") == F.col("s.key"))
        merge = DeltaTable.forPath(session, path).alias("t").merge(F.broadcast(given).alias("s"), same)
        merge.whenMatchedUpdate(set={"key": F.lit(None).cast("string")}).execute()
    session.conf.unset(delta_log.NOTE_SETTING)
    purge(session, path)


def purge(session: SparkSession, path: str) -> None:
    """Write files again of which vectors mark rows: these would stay in them."""
    session.sql(f"REORG TABLE {storage.table(path)} APPLY (PURGE)")


def empty_again(spark: SparkSession, lake: LakeFile, stream: str) -> None:
    """Empty the records of rows that were erased from the stream, where bronze is another table than it was behind that."""
    path = sink.table_path(lake, stream)
    if not erasures.is_undone(spark, lake, stream, path):
        return
    # As an erasure does: old notes leave the log by commits.
    retry_conflicts(lambda: sink.renew(session_for(spark), lake, stream))
    by_table = dict[str, list[tuple[str, str, str]]]()
    for table, *key in erasures.find(spark, lake, stream, spark.read.format("delta").load(path)):
        by_table.setdefault(table, []).append((key[0], key[1], key[2]))
    for table, keys in sorted(by_table.items()):
        _log.warning(
            "bronze of stream %s is another table than rows were erased from; %d key(s) of %s are erased from it again",
            *(stream, len(keys), table),
        )
        tombstones = [key for _, key, _ in keys]
        # Each is used before the next one is made.
        retry_conflicts(lambda: empty(session_for(spark), lake, stream, table, keys, tombstones))  # noqa: B023
    erasures.note_again(spark, lake, stream, delta_log.mark(spark, path))


def retry_conflicts(step: Callable[[], Result]) -> Result:
    """Do a step, again while loads or maintenance write to the same table."""
    for tries in range(_TRIES):
        try:
            return step()
        except Retryable:
            if tries + 1 == _TRIES:
                raise
        except (PySparkException, Py4JError) as error:
            if tries + 1 == _TRIES or not is_conflict(error):
                raise
        time.sleep(_PAUSE_SECONDS)
    raise AssertionError("the last try returns or raises")
