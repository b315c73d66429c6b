"""Where the load of a stream goes on: from the offsets that the bronze table itself was committed with.

Every bronze commit carries a note: its topics, their ids, the offset after the last record in each of their partitions, and which
streaming batch wrote it; where tables have topics of their own, also up to where all of each source is in bronze. A streaming
checkpoint is used while it agrees with the newest note; a lost, foreign or overtaken one is set aside and the query starts from
the note, never from "earliest" onto existing rows. Called by bronze.
"""

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.

from headrace.errors import NeedsOperator
from spark_jobs import delta_log, storage

NOTE = "bronze"

_log = logging.getLogger(__name__)


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
    #: Position up to which all of each source is in the table; None where a stream has one topic, which says so by itself.
    positions: dict[str, str] | None = None
    #: The streaming query and its batch that wrote the newest note; None when not known.
    query: str | None = None
    batch: int | None = None
    #: Version of the table at which rows were put in the place of others last; None when they never were.
    rewritten: int | None = None

    def of(self, topic: str) -> Held:
        """Return what is held of a topic."""
        return self.topics.get(topic, Held())


def note(stream: str, progress: Progress) -> str:
    """Return the text that a bronze commit carries."""
    return delta_log.write(
        NOTE,
        stream=stream,
        topics={
            name: {"id": held.id, "offsets": {str(partition): offset for partition, offset in held.offsets.items()}}
            for name, held in progress.topics.items()
        },
        positions=progress.positions,
        query=progress.query,
        batch=progress.batch,
        rewritten=progress.rewritten,
    )


def parse(found: delta_log.Note) -> Progress:
    """Return what a note says; earlier releases wrote of one topic alone."""
    topics = found.get("topics") or {found["topic"]: {"id": found["topic_id"], "offsets": found["offsets"]}}
    return Progress(
        topics={
            name: Held({int(partition): int(offset) for partition, offset in one["offsets"].items()}, one["id"])
            for name, one in topics.items()
        },
        positions=found.get("positions"),
        query=found["query"],
        batch=found["batch"],
        rewritten=found.get("rewritten"),
    )


def reached(spark: SparkSession, path: str, *, topic_per_table: bool) -> dict[str, str] | None:
    """Return up to where all of each source is in the table; None when everything that is there counts."""
    found = delta_log.note(spark, path, NOTE)
    positions = parse(found[1]).positions if found else None
    return positions if positions is not None or not topic_per_table else {}


def of_table(spark: SparkSession, path: str, stream: str, columns: list[str]) -> Progress:
    """Return what the table at the path holds; raise NeedsOperator when it is no bronze table of this stream."""
    if not delta_log.is_table(spark, path):
        return Progress()
    frame = spark.read.format("delta").load(path)
    if set(columns) - set(frame.columns):
        raise NeedsOperator(
            f"{path} is a Delta table, but not one of bronze: it lacks {', '.join(sorted(set(columns) - set(frame.columns)))}",
            hint="Move it away, or name another [lake] root.",
        )
    found = delta_log.note(spark, path, NOTE)
    if found is None:
        # Somebody else's commits alone: the rows tell where to go on.
        rows = frame.groupBy("topic", "partition").agg(F.max("offset").alias("offset")).collect()
        topics: dict[str, Held] = {}
        for row in rows:
            topics.setdefault(row["topic"], Held()).offsets[int(row["partition"])] = int(row["offset"]) + 1
        return Progress(topics=topics)
    if found[1]["stream"] != stream:
        raise NeedsOperator(
            f"{path} holds stream {found[1]['stream']!r}, not {stream!r}",
            hint="Give each stream a name of its own, or name another [lake] root.",
        )
    return parse(found[1])


def checkpoint_agrees(spark: SparkSession, checkpoint: str, progress: Progress) -> bool:
    """Whether the checkpoint's next batch follows what the table holds.

    It does when the newest note was written by the checkpoint's query in its last finished batch, or in the batch after that:
    then the load died between Delta's commit and the checkpoint's, and the repeated batch is skipped by its transaction id.
    """
    if not storage.exists(spark, f"{checkpoint}/metadata"):
        return False
    finished = _last(spark, f"{checkpoint}/commits")
    return progress.query == query_of(spark, checkpoint) and progress.batch in {finished, finished + 1}


def query_of(spark: SparkSession, checkpoint: str) -> str:
    """Return the id of the streaming query that a checkpoint belongs to: a new checkpoint is a new query."""
    return str(json.loads(storage.read(spark, f"{checkpoint}/metadata"))["id"])


def set_aside(spark: SparkSession, checkpoint: str) -> None:
    """Remove a checkpoint that the table does not agree with; the table says all that it could."""
    if storage.exists(spark, checkpoint):
        _log.warning("the streaming checkpoint %s does not follow the table; starting from the table", checkpoint)
        storage.delete(spark, checkpoint)


def of_batch(spark: SparkSession, checkpoint: str, batch: int) -> dict[str, dict[int, int]]:
    """Return the offset after each partition's last record of a planned batch, by topic, as Spark wrote it ahead of it."""
    last_line = storage.read(spark, f"{checkpoint}/offsets/{batch}").rstrip().rpartition("\n")[2]
    return {
        topic: {int(partition): int(offset) for partition, offset in ends.items()}
        for topic, ends in json.loads(last_line).items()
    }


def starting(progress: Progress, starts: Mapping[str, Mapping[int, int]]) -> str:
    """Return Spark's `startingOffsets`; a partition that the table does not know begins where Kafka does."""
    return json.dumps(
        {
            topic: {str(p): max(progress.of(topic).offsets.get(p, 0), start) for p, start in sorted(first.items())}
            for topic, first in starts.items()
        }
    )


def _last(spark: SparkSession, folder: str) -> int:
    """Return the greatest batch number noted in a folder of a checkpoint; -1 when there is none."""
    return max((int(name) for name in storage.names(spark, folder) if name.isdigit()), default=-1)
