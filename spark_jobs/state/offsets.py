"""Where the load of a stream goes on: from the offsets that the bronze table itself was committed with.

Every bronze commit carries a note: its topics, their ids, the offset after the last record in each of their partitions; where
tables have topics of their own, also up to where all of each source is in bronze. Of thousands of topics a note has those alone
that differ from an earlier note, of a few hours ago at most, which it names. No other state decides anything. Every commit
of a stream has the same Delta transaction id, and a number that follows from the note that was read before it: of several loads
that read the same note Delta takes the commit of one, whatever became of the others meanwhile. Called by bronze.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from time import time
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.

from headrace.configuration.lake import LakeFile
from headrace.errors import NeedsOperator
from spark_jobs.state import delta_log, published
from spark_jobs.state.log_files import LogFiles

NOTE = "bronze"
#: Topics up to which each note has all of them; the share of them that may have changed since a whole note, and its age, in
#: seconds: Delta keeps bronze's log for three days at least (retention.py).
_FEW_TOPICS, _CHANGED, _WHOLE_FOR = 100, 0.25, 6 * 60 * 60


class NotShown(NeedsOperator):
    """No note states where a load goes on, and rows do not show it."""


@dataclass(frozen=True)
class Held:
    """What the bronze table holds of one topic."""

    #: Offset after the last record of each partition.
    offsets: dict[int, int] = field(default_factory=dict)
    #: Kafka's id of the topic that was read; None when not known.
    id: str | None = None


@dataclass(frozen=True)
class Base:
    """A commit whose note has all topics, to which later notes refer."""

    version: int
    #: The id by which its writer found it.
    commit: str
    #: When it was written, in seconds since 1970.
    at: float
    topics: dict[str, Held]


@dataclass(frozen=True)
class Progress:
    """What the bronze table holds."""

    #: What is held, by topic; empty when there is no table.
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
    #: What notes of few changes refer to; None where the next one has to be whole.
    base: Base | None = field(default=None, compare=False)

    def of(self, topic: str) -> Held:
        """Return what is held of a topic."""
        return self.topics.get(topic, Held())


def note(stream: str, progress: Progress, *, commit: str = "", base: Base | None = None) -> str:
    """Return the text that a bronze commit carries; `commit` is an id by which its writer finds it.

    It has all topics, or those that differ from a `base`.
    """
    if base is None:
        topics: dict[str, Any] = {"topics": _plain(progress.topics)}
    else:
        # Another name: an earlier release, which would take them for all topics, does not read it.
        topics = {
            "changed": _plain(_changed(progress, base)),
            "base": {"version": base.version, "commit": base.commit},
        }
    return delta_log.write(
        NOTE,
        stream=stream,
        commit=commit,
        at=time(),
        sources={str(partition): list(names) for partition, names in progress.sources.items()},
        positions=progress.positions,
        rewritten=progress.rewritten,
        **topics,
    )


def choose_base(progress: Progress) -> Base | None:
    """Return the base to which a note of progress may refer; None where it has to be whole."""
    base, topics = progress.base, progress.topics
    if base is None or len(topics) <= _FEW_TOPICS or not base.topics.keys() <= topics.keys():
        return None
    if not 0 <= time() - base.at < _WHOLE_FOR or len(_changed(progress, base)) > _CHANGED * len(topics):
        return None
    return base


def _changed(progress: Progress, base: Base) -> dict[str, Held]:
    return {name: held for name, held in progress.topics.items() if base.topics.get(name) != held}


def _plain(topics: dict[str, Held]) -> dict[str, Any]:
    return {
        name: {"id": held.id, "offsets": {str(partition): offset for partition, offset in held.offsets.items()}}
        for name, held in topics.items()
    }


def parse(content: delta_log.Note, base: Base | None = None) -> Progress:
    """Return the content of a note, which may refer to a `base`; earlier releases wrote one topic only."""
    if base is None:
        topics = _held(
            content.get("topics") or {content["topic"]: {"id": content["topic_id"], "offsets": content["offsets"]}}
        )
    else:
        topics = base.topics | _held(content["changed"])
    return Progress(
        topics=topics,
        # Earlier releases noted none.
        sources={int(partition): tuple(names) for partition, names in (content.get("sources") or {}).items()},
        positions=content.get("positions"),
        rewritten=content.get("rewritten"),
        base=base,
    )


def _held(topics: dict[str, Any]) -> dict[str, Held]:
    return {
        name: Held({int(partition): int(offset) for partition, offset in topic["offsets"].items()}, topic["id"])
        for name, topic in topics.items()
    }


def read(spark: SparkSession, path: str, version: int | None = None) -> Progress | None:
    """Return what the newest note of a table states, or stated at a version.

    None when it has none, or what that refers to is in the log no more.
    """
    commit = delta_log.note(spark, path, NOTE, version)
    return commit and _resolved(commit, lambda version: delta_log.note(spark, path, NOTE, version))


def read_local(path: str, stream: str, files: LogFiles) -> Progress | None:
    """Return the same by the log's files, None for another stream's table too; starts no Spark."""
    commit = delta_log.local_note(path, NOTE, files)
    if commit is None or commit[1]["stream"] != stream:
        return None
    return _resolved(commit, lambda version: delta_log.local_note(path, NOTE, files, version))


def _resolved(
    commit: tuple[int, delta_log.Note], note_at: Callable[[int], tuple[int, delta_log.Note] | None]
) -> Progress | None:
    number, own = commit
    if "base" not in own:
        progress = parse(own)
        # Earlier releases noted no time.
        base = Base(number, own["commit"], own["at"], progress.topics) if {"at", "commit"} <= own.keys() else None
        return at(replace(progress, base=base), number)
    reference = own["base"]
    whole = note_at(reference["version"])
    if whole is None or (whole[0], whole[1].get("commit")) != (reference["version"], reference["commit"]):
        return None
    return at(parse(own, Base(whole[0], whole[1]["commit"], whole[1]["at"], parse(whole[1]).topics)), number)


def read_reached(
    spark: SparkSession, path: str, *, topic_per_table: bool, version: int | None = None
) -> dict[str, str] | None:
    """Return up to where all of each source is in the table, or was at a version; None when everything that is there counts."""
    commit = delta_log.note(spark, path, NOTE, version)
    positions = commit[1].get("positions") if commit else None
    return positions if positions is not None or not topic_per_table else {}


def of_table(
    spark: SparkSession, lake: LakeFile, path: str, stream: str, columns: list[str], *, by_rows: bool = False
) -> Progress:
    """Return what the table at the path holds; raise NeedsOperator when it is no bronze table of this stream.

    NotShown where its note is gone and rows were removed for their age: the last of a partition may be among them. With
    `by_rows` what is left shows it nevertheless.
    """
    if not delta_log.is_table(spark, path):
        return Progress()
    number, commit = 0, delta_log.note(spark, path, NOTE)
    if commit is None:
        # Ahead of what it numbers: a number that is too small is refused, one that is too great would let records in twice.
        number = _number(spark, path, stream) + 1
        commit = delta_log.note(spark, path, NOTE)
    version = delta_log.version(spark, path)
    frame = spark.read.format("delta").load(path)
    if set(columns) - set(frame.columns):
        raise NeedsOperator(
            f"{path} is a Delta table, but not one of bronze: it lacks {', '.join(sorted(set(columns) - set(frame.columns)))}",
            hint="Move it to another place, or name another [lake] root.",
        )
    if commit is None:
        # There are only commits of other programs: continue after the rows' greatest offsets.
        if not by_rows:
            _refuse_removed(spark, lake, path, stream)
        return Progress(topics=_of_rows(frame), version=version, number=number)
    if commit[1]["stream"] != stream:
        raise NeedsOperator(
            f"{path} holds stream {commit[1]['stream']!r}, not {stream!r}",
            hint="Give each stream a name of its own, or name another [lake] root.",
        )
    noted = _resolved(commit, lambda version: delta_log.note(spark, path, NOTE, version))
    if noted is None:
        # What did not change since the base is there by its rows.
        if not by_rows:
            _refuse_removed(spark, lake, path, stream)
        ids = _ids(spark, path)
        rows = {name: replace(held, id=ids.get(name)) for name, held in _of_rows(frame).items()}
        noted = replace(parse(commit[1], Base(-1, "", 0, rows)), base=None)
    return at(noted, commit[0])


def _refuse_removed(spark: SparkSession, lake: LakeFile, path: str, stream: str) -> None:
    # Earlier releases removed none.
    if published.latest(spark, lake, stream).bronze_removed:
        raise NotShown(
            f"{path} has no note of where its load goes on, and its rows do not show it: some were removed after "
            "'bronze_keep_days'",
            hint=f"Run 'headrace lake replay {stream} --layer bronze', then 'headrace lake load {stream}': what was removed and "
            "Kafka still has comes again, and silver passes over it. Offsets that the load then lacks may be of removed "
            "records alone.",
        )


def _ids(spark: SparkSession, path: str) -> dict[str, str]:
    """Return the ids of topics as the notes that the log still has state them last."""
    ids: dict[str, str] = {}
    for _, info in delta_log.commits(spark, path):
        if content := delta_log.read_note(info, NOTE):
            topics = parse(content, Base(-1, "", 0, {}) if "base" in content else None).topics
            ids |= {name: held.id for name, held in topics.items() if held.id and name not in ids}
    return ids


def _of_rows(frame: DataFrame) -> dict[str, Held]:
    rows = frame.groupBy("topic", "partition").agg(F.max("offset").alias("offset")).collect()
    topics: dict[str, Held] = {}
    for row in rows:
        topics.setdefault(row["topic"], Held()).offsets[int(row["partition"])] = int(row["offset"]) + 1
    return topics


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
    transaction = log.unsafeVolatileSnapshot().transactions().get(application(stream))
    return int(transaction.get()) if transaction.isDefined() else -1
