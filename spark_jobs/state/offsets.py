"""Where the load of a stream goes on: from the offsets that the bronze table itself was committed with.

Every bronze commit carries a note: its topics, their ids, the offset after the last record in each of their partitions; where
tables have topics of their own, also up to where all of each source is in bronze. No other state decides anything. Every commit
of a stream has the same Delta transaction id, and a number that follows from the note that was read before it: of several loads
that read the same note Delta takes the commit of one, whatever became of the others meanwhile. Called by bronze.

What the commits of a Delta table after a version report about themselves, read by the names of their files.

Versions are consecutive, so nothing is listed and no Spark job runs, however long the log is. Called by what has just committed.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.

from headrace.errors import NeedsOperator
from spark_jobs import storage
from spark_jobs.state import delta_log

_HEAD = '{"commitInfo"'


def after(spark: SparkSession, path: str, version: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the versions after one, oldest first, each with its commit's `commitInfo`."""
    while True:
        version += 1
        name = f"{path}/_delta_log/{version:020d}.json"
        if storage.is_local(spark, path):
            if not Path(storage.local(name)).exists():
                return
            lines = Path(storage.local(name)).read_text(encoding="utf-8").splitlines()
        else:
            if not storage.exists(spark, name):
                return
            lines = storage.read(spark, name).splitlines()
        yield version, next((json.loads(line)["commitInfo"] for line in lines if line.startswith(_HEAD)), {})


NOTE = "bronze"


@dataclass(frozen=True)
class Held:
    """What the bronze table holds of one topic."""

    #: Offset after the last record of each partition.
    offsets: dict[int, int] = field(default_factory=dict)
    #: Kafka's id of the topic that was read; None when not known.
    id: str | None = None


@dataclass(frozen=True)
class Progress:
    """What the bronze table holds."""

    #: By topic; empty when there is no table.
    topics: dict[str, Held] = field(default_factory=dict)
    #: Names that the records of a partition may have, the newest last; a partition of which nothing came is absent.
    sources: dict[int, tuple[str, ...]] = field(default_factory=dict)
    #: Position up to which all of each source is in the table; None where a stream has one topic, whose order shows it.
    positions: dict[str, str] | None = None
    #: Version of the table that this was read from: of the newest note, or of the table if it has none; -1 before there is one.
    version: int = -1
    #: Transaction number of the commit that follows this one; Delta passes over a number that it has seen, or a greater one.
    number: int = 0
    #: Version of the table at which rows were put in the place of others last; None when they never were.
    rewritten: int | None = None

    def of(self, topic: str) -> Held:
        """Return what is held of a topic."""
        return self.topics.get(topic, Held())


def note(stream: str, progress: Progress, *, commit: str = "") -> str:
    """Return the text that a bronze commit carries; `commit` is an id by which its writer finds it."""
    return delta_log.write(
        NOTE,
        stream=stream,
        commit=commit,
        topics={
            name: {"id": held.id, "offsets": {str(partition): offset for partition, offset in held.offsets.items()}}
            for name, held in progress.topics.items()
        },
        sources={str(partition): list(names) for partition, names in progress.sources.items()},
        positions=progress.positions,
        rewritten=progress.rewritten,
    )


def parse(found: delta_log.Note) -> Progress:
    """Return the content of a note; earlier releases wrote one topic only."""
    topics = found.get("topics") or {found["topic"]: {"id": found["topic_id"], "offsets": found["offsets"]}}
    return Progress(
        topics={
            name: Held({int(partition): int(offset) for partition, offset in one["offsets"].items()}, one["id"])
            for name, one in topics.items()
        },
        # Earlier releases noted none.
        sources={int(partition): tuple(names) for partition, names in (found.get("sources") or {}).items()},
        positions=found.get("positions"),
        rewritten=found.get("rewritten"),
    )


def reached(
    spark: SparkSession, path: str, *, topic_per_table: bool, version: int | None = None
) -> dict[str, str] | None:
    """Return up to where all of each source is in the table, or was at a version; None when everything that is there counts."""
    found = delta_log.note(spark, path, NOTE, version)
    positions = parse(found[1]).positions if found else None
    return positions if positions is not None or not topic_per_table else {}


def of_table(spark: SparkSession, path: str, stream: str, columns: list[str]) -> Progress:
    """Return what the table at the path holds; raise NeedsOperator when it is no bronze table of this stream."""
    if not delta_log.is_table(spark, path):
        return Progress()
    number, found = 0, delta_log.note(spark, path, NOTE)
    if found is None:
        # Ahead of what it numbers: a number that is too small is refused, one that is too great would let records in twice.
        number = _number(spark, path, stream) + 1
        found = delta_log.note(spark, path, NOTE)
    version = delta_log.version(spark, path)
    frame = spark.read.format("delta").load(path)
    if set(columns) - set(frame.columns):
        raise NeedsOperator(
            f"{path} is a Delta table, but not one of bronze: it lacks {', '.join(sorted(set(columns) - set(frame.columns)))}",
            hint="Move it to another place, or name another [lake] root.",
        )
    if found is None:
        # There are only commits of other programs: continue after the rows' greatest offsets.
        rows = frame.groupBy("topic", "partition").agg(F.max("offset").alias("offset")).collect()
        topics: dict[str, Held] = {}
        for row in rows:
            topics.setdefault(row["topic"], Held()).offsets[int(row["partition"])] = int(row["offset"]) + 1
        return Progress(topics=topics, version=version, number=number)
    if found[1]["stream"] != stream:
        raise NeedsOperator(
            f"{path} holds stream {found[1]['stream']!r}, not {stream!r}",
            hint="Give each stream a name of its own, or name another [lake] root.",
        )
    return at(parse(found[1]), found[0])


def at(progress: Progress, version: int) -> Progress:
    """Return the progress as it is once a commit has made it a version of the table."""
    return replace(progress, version=version, number=version + 1)


def application(stream: str) -> str:
    """Return the id of a stream's transactions on its bronze table."""
    return f"headrace.bronze.{stream}"


def _number(spark: SparkSession, path: str, stream: str) -> int:
    """Return the greatest transaction number that the table has seen of the stream; -1 when it has seen none."""
    jvm = spark._jvm  # noqa: SLF001 - PySpark offers no other way.
    log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, path)  # noqa: SLF001 - as above.
    known = log.unsafeVolatileSnapshot().transactions().get(application(stream))
    return int(known.get()) if known.isDefined() else -1
