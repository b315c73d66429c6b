"""MirrorMaker 2 from one broker to another, by the example's file."""

import re
from pathlib import Path

from tests.consumers.environment import EXAMPLES
from tests.consumers.program import Program
from tests.servers import jars

#: What a test has otherwise than the example: one broker in each cluster, and no waiting.
_HERE = {
    "refresh.topics.interval.seconds": "2",
    "refresh.groups.interval.seconds": "2",
    "sync.group.offsets.interval.seconds": "2",
    "emit.checkpoints.interval.seconds": "2",
    "offset.flush.interval.ms": "500",
    "offset.lag.max": "0",
    "offset.storage.partitions": "1",
    "status.storage.partitions": "1",
}


def mirror(folder: Path, first: str, second: str, **changes: str) -> Program:
    """Return a MirrorMaker; `changes` are settings other than the example's, with `__` for dots."""
    folder.mkdir(parents=True)
    text = (EXAMPLES / "mirror.properties").read_text()
    text = text.replace("kafka.first:9092", first).replace("kafka.second:9092", second)
    text = re.sub(r"replication\.factor = 3", "replication.factor = 1", text)
    # Of a setting that is given twice the last one holds.
    more = _HERE | {name.replace("__", "."): value for name, value in changes.items()}
    properties = folder / "mirror.properties"
    properties.write_text("\n".join([text, *(f"{name} = {value}" for name, value in more.items())]))
    return Program(folder, jars.mirror(), ["org.apache.kafka.connect.mirror.MirrorMaker", str(properties)])
