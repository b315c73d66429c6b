"""Topics: made on request, checked before use, never changed silently (design decision 6).

`headrace bridge init` is the only place that makes a topic or adds partitions to one. Everybody else only looks.
"""

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from bridge.kafka import PATIENCE, NewPartitions, NewTopic, topic_resource, translated
from headrace.configuration.bridge import BridgeFile
from headrace.errors import NeedsOperator


class Made(NamedTuple):
    """What `init` did about a topic."""

    topic: str
    partitions: int
    #: `created`, `grown from N`, or `already there`.
    what: str


def wanted(file: BridgeFile) -> dict[str, int]:
    """Return each topic of the file with how many partitions its sources need."""
    return {
        file.topic(name): 1 + max(partition for owned in stream.sources.values() for partition in owned)
        for name, stream in file.streams.items()
    }


def check(admin: Any, topics: Mapping[str, int], patience: float = PATIENCE) -> dict[str, int]:
    """Return the largest record, in bytes, that each topic takes.

    Args:
        admin: an administration client.
        topics: topic -> how many partitions it needs.
        patience: seconds to wait for an answer.

    Raises:
        NotConnected: Kafka cannot be reached.
        NeedsOperator: a topic is missing, has too few partitions, or would drop records other than by age.
    """
    there = _partitions(admin, patience)
    for topic, needed in topics.items():
        if topic not in there:
            raise NeedsOperator(f"topic {topic!r} is not in Kafka", hint="Run 'headrace bridge init' to make it.")
        if there[topic] < needed:
            raise NeedsOperator(
                f"topic {topic!r} has {there[topic]} partitions, its sources own {needed}",
                hint="Run 'headrace bridge init' to add partitions, or correct the sources in the bridge's file.",
            )
    limits = {}
    with translated("read the topics' configuration"):
        asked = admin.describe_configs([topic_resource(topic) for topic in topics], request_timeout=PATIENCE)
        for resource, answer in asked.items():
            settings = answer.result()
            limits[resource.name] = int(settings["max.message.bytes"].value)
            if settings["cleanup.policy"].value != "delete":
                raise NeedsOperator(
                    f"topic {resource.name!r} has cleanup.policy={settings['cleanup.policy'].value}: "
                    "it would drop changes that later ones of the same key follow",
                    hint="Set cleanup.policy=delete on the topic, or name another topic in the bridge's file.",
                )
    return limits


def make(admin: Any, file: BridgeFile) -> list[Made]:
    """Make the topics that are missing, add partitions where there are too few, and return what was done."""
    there = _partitions(admin)
    made = []
    for name, stream in file.streams.items():
        topic = file.topic(name)
        needed = wanted(file)[topic]
        if topic not in there:
            hours = stream.retention_hours
            settings = {
                "cleanup.policy": "delete",
                "retention.ms": str(hours * 3_600_000 if hours else -1),
                # A row of a database is sometimes much larger than Kafka's 1 MB.
                "max.message.bytes": str(stream.largest_record_megabytes << 20),
                "min.insync.replicas": str(stream.min_insync_replicas or max(1, stream.replication - 1)),
            }
            _wait(admin.create_topics([NewTopic(topic, needed, stream.replication, config=settings)]), f"make {topic}")
            made.append(Made(topic, needed, "created"))
        elif there[topic] < needed:
            _wait(admin.create_partitions([NewPartitions(topic, needed)]), f"add partitions to {topic}")
            made.append(Made(topic, needed, f"grown from {there[topic]}"))
        else:
            made.append(Made(topic, there[topic], "already there"))
    _wait_until_seen(admin, file)
    return made


def _wait_until_seen(admin: Any, file: BridgeFile) -> None:
    """Return once what was made is known to those who ask; raise NeedsOperator when something is not as it must be."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            check(admin, wanted(file))
        except NeedsOperator:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)
        else:
            return


def _partitions(admin: Any, patience: float = PATIENCE) -> dict[str, int]:
    with translated("read the list of topics", admin):
        listed = admin.list_topics(timeout=patience).topics
    return {name: len(topic.partitions) for name, topic in listed.items() if topic.error is None}


def _wait(asked: Mapping[str, Any], doing: str) -> None:
    with translated(doing):
        for answer in asked.values():
            answer.result()


def owners(admin: Any, file: BridgeFile) -> list[dict[str, Any]]:
    """Return each owned partition with its source, and whether it is in Kafka."""
    there = _partitions(admin)
    return [
        {
            "stream": name,
            "topic": file.topic(name),
            "partition": partition,
            "source": source,
            "in_kafka": partition < there.get(file.topic(name), 0),
        }
        for name, stream in file.streams.items()
        for source, partitions in stream.sources.items()
        for partition in partitions
    ]
