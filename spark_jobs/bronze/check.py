"""`headrace lake check`: bronze's preflight without a load, and without Spark where log_files.py can read the lake."""

import logging
import time
from typing import Any

from headrace.configuration.lake import LakeFile
from headrace.errors import ReplicationError
from headrace.retention import KafkaReader, RetentionReader
from spark_jobs.bronze import envelope
from spark_jobs.bronze import load as bronze
from spark_jobs.kafka import topics
from spark_jobs.state import delta_log, log_files, offsets
from spark_jobs.state.log_files import LogFiles
from spark_jobs.state.offsets import Progress

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
    found = {
        "stream": stream,
        "topic": there[0].name,
        "records": topics.todo(held, there),
        "partitions": partitions,
    }
    if retention:
        found["retention"] = _retention(lake, partitions)
    return found if reach is None else found | {"committed": reach.positions}


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
        found = _by_log(files, stream, path) if files is not None else None
    except log_files.Unreadable as error:
        _log.info("%s", error.message)
        found = None
    if found is not None:
        return found
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
