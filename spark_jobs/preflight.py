"""Before a load, without Spark, in a second: what would keep it from working (`headrace lake check`), and whether it has anything
to do.

Only where the tables' logs can be read without Spark (log_files.py), and only where it is certain; everything else is left to the
load itself. `look` is called before a Spark session is made, by the command and by submit.py.
"""

import logging
import time
from dataclasses import dataclass
from itertools import islice
from time import monotonic
from typing import Any

from headrace.configuration.lake import LakeFile
from headrace.errors import ReplicationError
from headrace.retention import KafkaReader, RetentionReader
from spark_jobs.bronze import envelope, sink
from spark_jobs.bronze import load as bronze
from spark_jobs.bronze.load import BronzeReport, mirror
from spark_jobs.kafka import topics
from spark_jobs.load import Report, Step
from spark_jobs.silver.load import SilverReport
from spark_jobs.state import delta_log, log_files, offsets, publication
from spark_jobs.state.log_files import LogFiles
from spark_jobs.state.offsets import Progress

#: Most publications, other streams' included, among which the stream's own is searched; Spark finds it by its row.
_PUBLICATIONS = 100

#: Records, and commits of bronze, that a load of few takes, and seconds that the one before it took: a JVM that
#: optimizes little does not pay where tables are large.
_FEW_RECORDS, _FEW_COMMITS, _FEW_SECONDS = 100_000, 200, 30

_log = logging.getLogger(__name__)


def check(lake: LakeFile, stream: str, *, retention: bool = True) -> dict[str, Any]:
    """Return what a load would read; raise NotConnected, or NeedsOperator when it could not go on.

    Without `retention` Kafka is not asked how long it keeps records, which takes requests and a client of their own.
    """
    path = bronze.table_path(lake, stream)
    # Ahead of Kafka's ends: a load may run meanwhile.
    held = _held(lake, stream, path)
    reach = topics.observe(lake, stream)
    there = topics.describe(lake, stream, reach)
    topics.check(lake, stream, held, there, path)
    topics.check_retention(held, there, stream)
    partitions = [
        {
            "topic": topic.name,
            "partition": p,
            "needed": held.of(topic.name).offsets.get(p, 0),
            "start": start,
            "end": topic.ends[p],
        }
        for topic in there
        for p, start in sorted(topic.starts.items())
    ]
    report = {
        "stream": stream,
        "topic": there[0].name,
        "records": topics.todo(held, there),
        "partitions": partitions,
    }
    if retention:
        report["retention"] = _retention(lake, partitions)
    return report if reach is None else report | {"committed": reach.positions}


def _retention(lake: LakeFile, partitions: list[dict[str, Any]]) -> dict[str, Any]:
    """Return for how many seconds Kafka keeps records, and what is not loaded; why it is not known, where Kafka does not answer.

    A user who may load and may not see a topic's settings is no reason against a load.
    """
    loaded = {(place["topic"], place["partition"]): place["needed"] for place in partitions}
    try:
        retention = RetentionReader(KafkaReader(lake.kafka)).read({topic for topic, _ in loaded}.__contains__, loaded)
    except ReplicationError as error:
        return {"problem": error.message, "hint": error.hint or ""}
    assert retention is not None
    return {"seconds": retention.retention, "headroom_seconds": retention.headroom(time.time())}


def _held(lake: LakeFile, stream: str, path: str) -> Progress:
    try:
        files = log_files.of_lake(lake)
        held = _by_log(files, stream, path) if files is not None else None
    except log_files.Unreadable as error:
        _log.info("%s", error.message)
        held = None
    if held is not None:
        return held
    from spark_jobs.session import session

    return offsets.of_table(session(lake), lake, path, stream, envelope.COLUMNS)


def _by_log(files: LogFiles, stream: str, path: str) -> Progress | None:
    """Return what the table's log notes, nothing where there is no table yet; None when Spark has to look at its rows."""
    folder = files.path("bronze", stream)
    held = offsets.read_local(folder, stream, files)
    if held is not None:
        return held
    if files.names(f"{folder}/_delta_log"):
        return None
    delta_log.refuse_others(path, files.names(folder))
    return Progress()


@dataclass(frozen=True)
class Outlook:
    """What a load will find."""

    #: The report of a load that has nothing to do; None when there is something, or may be.
    report: Report | None = None
    #: Whether it certainly has few records for tables that the load before it brought up within seconds.
    few: bool = False


def look(lake: LakeFile, stream: str, only: Step | None = None) -> Outlook:
    """Return what a load will find, as far as that is certain; raise what the load's own check of Kafka raises."""
    try:
        files = log_files.of_lake(lake)
        return _look(files, lake, stream, only) if files is not None else Outlook()
    except log_files.Unreadable as error:
        _log.info("%s", error.message)
        return Outlook()


def report(lake: LakeFile, stream: str, only: Step | None = None) -> Report | None:
    """Return the report of a load that has nothing to do, or None when there is something, or may be."""
    return look(lake, stream, only).report


def whole(lake: LakeFile, stream: str) -> bool:
    """Whether all tables of a stream are certainly where the stream is: none stopped, and none is behind or copied."""
    try:
        files = log_files.of_lake(lake)
        note = _published(files, stream) if files is not None else None
    except log_files.Unreadable as error:
        _log.info("%s", error.message)
        return False
    return note is not None and bool(note["whole"])


def _look(files: LogFiles, lake: LakeFile, stream: str, only: Step | None) -> Outlook:
    began, bronze = monotonic(), files.path("bronze", stream)
    held = offsets.read_local(bronze, stream, files)
    if held is None and files.names(f"{bronze}/_delta_log"):
        return Outlook()
    result = check(lake, stream, retention=False) if only != "silver" else None
    records = result["records"] if result else 0
    if held is None:
        return Outlook(few=records <= _FEW_RECORDS)
    if only != "silver" and sink.is_old(delta_log.local_noted_at(bronze, offsets.NOTE, files)):
        return Outlook()
    note = _published(files, stream)
    ready = note if note is not None and only != "bronze" and _is_whole(note, files, lake, stream) else None
    moved = result and any((held.positions or {}).get(s, "") < p for s, p in result.get("committed", {}).items())
    if records or moved or (only != "bronze" and not (ready and _is_current(ready, bronze, files))):
        few = records <= _FEW_RECORDS and (
            only == "bronze" or (ready is not None and _is_few(ready, bronze, files, records))
        )
        return Outlook(few=few)
    raw = None
    if result:
        mirror(lake, stream, held)
        raw = BronzeReport(stream=stream, topic=result["topic"], seconds=monotonic() - began)
    current = SilverReport(stream=stream, seconds=monotonic() - began) if only != "bronze" else None
    return Outlook(report=Report(bronze=raw, silver=current))


def _is_whole(note: delta_log.Note, files: LogFiles, lake: LakeFile, stream: str) -> bool:
    """Whether all tables of silver, and the histories that are wanted, are where their stream was published last."""
    if (
        not note["whole"]
        or note["bronze_version"] is None
        or note.get("settings") != publication.settings(lake, stream)
    ):
        return False
    # Folders of dropped tables stay until maintenance.
    there = set(files.tables(files.path("silver", stream))) - set(note.get("dropped", ()))
    return bool(publication.tables_digest(there) == note["tables"])


def _is_current(note: delta_log.Note, bronze: str, files: LogFiles) -> bool:
    """Whether a stream is published up to the end of bronze."""
    commit = note.get("bronze_commit")
    return delta_log.local_only_maintained(bronze, note["bronze_version"], files, commit=commit)


def _is_few(note: delta_log.Note, bronze: str, files: LogFiles, records: int) -> bool:
    """Whether what came to bronze since a publication, and what comes with the next records, is little for its tables."""
    seconds = note.get("seconds")
    if seconds is None or not 0 <= seconds <= _FEW_SECONDS:
        return False
    commit = note.get("bronze_commit")
    added = delta_log.local_added(bronze, note["bronze_version"], files, commit=commit, most=_FEW_COMMITS)
    return added is not None and records + added + note["waiting"] <= _FEW_RECORDS


def _published(files: LogFiles, stream: str) -> delta_log.Note | None:
    """Return the newest note of what is published of a stream; None when there is none, or many were published since."""
    notes = islice(delta_log.local_notes(files.path("state"), publication.NOTE, files), _PUBLICATIONS)
    return next((note for note in notes if note["stream"] == stream), None)
