"""What `headrace bridge doctor` looks at in the group of bridges: whether it is this environment's alone (O11).

Two environments with one `[kafka] prefix` share a group: each is assigned partitions of the other, which nobody serves then.

What `headrace bridge doctor` looks at of a delivery: its topics, its group's offsets, who may receive.
What `headrace bridge doctor` looks at of requests to edges: the two topics.
What `headrace bridge doctor` looks at of the schema registry. Called by bridge/doctor.py.
"""

from collections.abc import Collection, Iterator
from typing import Any

from bridge.kafka.client import TIMEOUT, KafkaException, TopicPartition, consumer
from bridge.kafka.entries import NOBODY, Entries
from bridge.kafka.errors import translated
from bridge.kafka.topics import Wanted, check
from headrace.configuration.bridge import BridgeFile
from headrace.configuration.sections import Registry
from headrace.findings import Finding
from headrace.registry.client import RegistryClient
from headrace.requests import LARGEST_REQUEST

_SHOWN = 3
_OWN = "Give each environment a prefix of its own in [kafka] prefix"


def look_at_group(admin: Any, group: str, topics: Collection[str]) -> Iterator[Finding]:
    """Yield what is wrong with the members of a group, which is to have those of some topics alone."""
    with translated(f"read who is in group {group}"):
        description = admin.describe_consumer_groups([group], request_timeout=TIMEOUT)[group].result()
    others = {
        each.topic
        for member in description.members
        if member.assignment is not None
        for each in member.assignment.topic_partitions
    } - set(topics)
    if others:
        yield Finding(
            "group",
            "wrong",
            f"{group} has bridges of other topics: {_listed(others)}. Each bridge is assigned sources that it does not know",
            f"{_OWN}, or the same streams in the files of all bridges.",
        )
    else:
        yield Finding("group", "ok", f"{group}: {len(description.members)} bridges, of this file's topics alone")


def look_at_holders(group: str, entries: Entries, sources: Collection[str]) -> Iterator[Finding]:
    """Yield which sources have positions in a group that the file does not name."""
    strangers = {text.source for _, text in entries.values()} - {*sources, NOBODY, ""}
    if strangers:
        yield Finding(
            "group",
            "warning",
            f"{group} holds positions of sources that the file does not name: {_listed(strangers)}",
            f"If they were retired: 'headrace bridge forget SOURCE'. If they are another environment's: {_OWN.lower()}.",
        )


def _listed(names: Collection[str]) -> str:
    shown = ", ".join(sorted(names)[:_SHOWN])
    return shown + ", …" * (len(names) > _SHOWN)


def deliveries(file: BridgeFile, name: str) -> Iterator[Finding]:
    """Yield what is found of one delivery; raise what keeps it from being looked at."""
    settings = file.deliveries[name]
    topic, dead_letters = settings.topics(name)
    client = consumer(file.kafka, file.delivery_group(name))
    try:
        with translated(f"look at topic {dead_letters} of delivery {name}"):
            _partitions(client, dead_letters)
        with translated(f"look at topic {topic} of delivery {name}"):
            partitions = _partitions(client, topic)
            committed = client.committed([TopicPartition(topic, number) for number in partitions], timeout=TIMEOUT)
            ends = {place.partition: client.get_watermark_offsets(place, timeout=TIMEOUT) for place in committed}
    finally:
        client.close()
    behind = sum(max(0, ends[place.partition][1] - max(place.offset, ends[place.partition][0])) for place in committed)
    removed = sum(max(0, ends[place.partition][0] - place.offset) for place in committed if place.offset >= 0)
    yield Finding(
        "delivery", "ok", f"{name}: {topic}, {len(partitions)} partitions, {behind} offsets not committed yet"
    )
    if removed:
        problem = f"{name}: Kafka removed up to {removed} records of {topic} before they were delivered"
        yield Finding("delivery", "warning", problem, f"Raise retention.ms of {topic}.")
    if file.interconnect.listen is not None and file.interconnect.certificate is not None and not settings.receivers:
        problem = f"{name}: no certificate may receive from {settings.address}"
        yield Finding("delivery", "warning", problem, f"Name those that may under [deliveries.{name}] receivers.")


def _partitions(client: Any, topic: str) -> list[int]:
    metadata = client.list_topics(topic, timeout=TIMEOUT).topics[topic]
    if metadata.error is not None:
        raise KafkaException(metadata.error)
    return sorted(metadata.partitions)


def requests(file: BridgeFile, admin: Any) -> Iterator[Finding]:
    """Yield what is found of the topics; raise what keeps them from being used."""
    if file.requests is None:
        problem = (
            "this bridge carries no requests to edges: 'headrace ask', and 'headrace verify' in regions, need them"
        )
        yield Finding("requests", "ok", problem)
        return
    names = file.requests.topics(file.kafka.prefix)
    limits = check(admin, dict.fromkeys(names, Wanted(1)))
    yield Finding("requests", "ok", f"{names.requests} and {names.answers} are there")
    for topic, largest in limits.items():
        if largest < LARGEST_REQUEST:
            problem = f"{topic}: records up to {largest} bytes: a request may have {LARGEST_REQUEST}"
            yield Finding("requests", "warning", problem, f"Raise max.message.bytes of {topic}.")


def registry(section: Registry) -> Iterator[Finding]:
    """Yield that it answers and takes the login; raises errors as the client does."""
    rule = RegistryClient(section).compatibility()
    yield Finding("registry", "ok", f"{section.url} answers; its rule for subjects without one of their own is {rule}")
