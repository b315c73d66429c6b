"""`headrace lake check`: bronze's preflight without a load, and without Spark when the lake stands on this machine."""

from pathlib import Path
from typing import Any

from headrace.configuration.lake import LakeFile
from spark_jobs import bronze, delta_log, envelope, kafka, offsets, preflight
from spark_jobs.offsets import Progress


def check(lake: LakeFile, stream: str) -> dict[str, Any]:
    """Return what a load would read; raise NotConnected, or NeedsOperator when it could not go on."""
    topic = kafka.describe(lake.kafka, lake.topic(stream))
    path = bronze.table_path(lake, stream)
    held = _held(lake, stream, path)
    preflight.check_one_topic(held.offsets, topic, lambda: kafka.tables_of(lake.kafka, topic.name))
    preflight.check_identity(held.offsets, topic, topic_id=held.topic_id, table=path)
    preflight.check_retention(held.offsets, topic, stream=stream)
    partitions = [
        {"partition": p, "needed": held.offsets.get(p, 0), "start": start, "end": topic.ends[p]}
        for p, start in sorted(topic.starts.items())
    ]
    todo = sum(place["end"] - place["needed"] for place in partitions)
    return {"stream": stream, "topic": topic.name, "records": todo, "partitions": partitions}


def _held(lake: LakeFile, stream: str, path: str) -> Progress:
    if "://" not in path:
        folder = Path(path)
        note = delta_log.local_note(path, offsets.NOTE)
        if note is not None and note["stream"] == stream:
            return offsets.parse(note)
        names = [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
        if not any(folder.glob("_delta_log/*")):
            delta_log.refuse_others(path, names)
            return Progress()
    from spark_jobs.session import session

    return offsets.of_table(session(lake), path, stream, envelope.COLUMNS)
