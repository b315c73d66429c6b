"""The committed position of a source: how it is written to Kafka and read back (design decision 4).

It is a consumer group's offset, committed in the same transaction as the records, for every partition that the source owns, so
the group records the assignment too. The offset is the log's end, so lag tools show nothing odd; the position is in the
offset's metadata: `POSITION TIME BRIDGE`, the position `-` while none is known. Kafka forgets idle groups; then the last
committed record in the source's own partitions tells the position.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from bridge.kafka.client import PATIENCE, KafkaError, KafkaException, TopicPartition, consumer, translated
from headrace.configuration.bridge import BridgeFile
from headrace.configuration.kafka import KafkaConnection
from headrace.errors import CorruptInput, NeedsOperator, NotConnected
from headrace.position import Position

_NONE = "-"


class Committed(NamedTuple):
    """What a source's group holds."""

    #: None: a bridge took the source over and knew no position.
    position: Position | None
    #: When it was committed, ISO 8601, UTC, by the bridge's clock.
    at: str
    #: The bridge that committed it.
    bridge: str
    #: Offset committed for each (topic, partition): the recorded assignment.
    offsets: dict[tuple[str, int], int]


def group_of(source: str) -> str:
    """Return the consumer group, and the transactional id, of a source."""
    return f"headrace.{source}"


def metadata(position: Position | None, bridge: str) -> str:
    """Return the text that goes with the offset."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return f"{position or _NONE} {now} {bridge}"


@contextmanager
def reading(connection: KafkaConnection, source: str) -> Iterator[Any]:
    """Yield a client that can read what Kafka holds of a source."""
    # Not the administration client: librdkafka 2.16 crashes when it asks for a group whose coordinator is still loading.
    client = consumer(connection, group_of(source))
    try:
        yield client
    finally:
        client.close()


def read_committed(client: Any, source: str, topic: str) -> Committed | None:
    """Return what is committed for a source in any partition of a topic, None when Kafka knows of nothing.

    Raises NotConnected, or NeedsOperator when somebody else wrote to the source's group.
    """
    with _hinted(source), translated(f"read the committed position of {source}"):
        described = client.list_topics(topic, timeout=PATIENCE).topics[topic]
        if described.error is not None:
            raise KafkaException(described.error)
        asked = [TopicPartition(topic, partition) for partition in described.partitions]
        found = [each for each in client.committed(asked, timeout=PATIENCE) if each.offset >= 0]
    if not found:
        return None
    try:
        # All were committed at once, unless the assignment was changed: the newest counts.
        position, at, bridge = max((each.metadata.split(" ", 2) for each in found), key=lambda parts: parts[1])
        return Committed(
            position=None if position == _NONE else Position.parse(position),
            at=at,
            bridge=bridge,
            offsets={(each.topic, each.partition): each.offset for each in found},
        )
    except (CorruptInput, ValueError, IndexError, AttributeError) as error:
        group = group_of(source)
        raise NeedsOperator(
            f"group {group} holds offsets that the bridge did not write",
            hint=f"Keep other consumers out of groups named 'headrace.*', and delete the group {group}: "
            "the position is then read from the source's last records.",
        ) from error


@contextmanager
def _hinted(source: str) -> Iterator[None]:
    try:
        yield
    except NotConnected as error:
        # A user who may not see the group gets no answer at all.
        error.hint = f"If Kafka is there: the bridge's user must be allowed to read the group {group_of(source)!r}."
        raise


def read_ends(client: Any, topic: str, partitions: Sequence[int]) -> dict[int, int]:
    """Return the offset that the next record of each partition gets."""
    with translated(f"read the ends of {topic}"):
        return {
            partition: client.get_watermark_offsets(TopicPartition(topic, partition), timeout=PATIENCE)[1]
            for partition in partitions
        }


def forget(admin: Any, source: str) -> None:
    """Delete the source's group with its offsets."""
    group = group_of(source)
    with translated(f"delete group {group}"):
        admin.delete_consumer_groups([group], request_timeout=PATIENCE)[group].result()


def read_last_record(client: Any, source: str, topics: Sequence[str], partitions: Sequence[int]) -> Position | None:
    """Return the greatest position that stands in the source's partitions of its topics, None when none does.

    Reads backward from the end in growing steps, over markers, tombstones and records that are not the source's.
    """
    with translated(f"read the last record of {source}"):
        found = [_last(client, source, topic, partition) for topic in topics for partition in partitions]
    return max((position for position in found if position is not None), default=None)


def _last(client: Any, source: str, topic: str, partition: int) -> Position | None:
    low, high = client.get_watermark_offsets(TopicPartition(topic, partition), timeout=PATIENCE)
    end, step = high, 100
    while end > low:
        start = max(low, end - step)
        position = _greatest(client, source, TopicPartition(topic, partition, start), end)
        if position is not None:
            return position
        end, step = start, min(step * 10, 100_000)
    return None


def _greatest(client: Any, source: str, start: Any, end: int) -> Position | None:
    """Return the greatest position from `start` to before `end`, None when there is none."""
    client.assign([start])
    greatest: Position | None = None
    until = time.monotonic() + PATIENCE
    # Read to the end of the range, or, where markers are the last of it, of the partition.
    while time.monotonic() < until:
        for record in client.consume(1000, timeout=0.1):
            until = time.monotonic() + PATIENCE
            if record.error() and record.error().code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - named so.
                raise KafkaException(record.error())
            if record.error() or record.offset() >= end:
                return greatest
            position = _position_of(record.value(), source)
            if position is not None and (greatest is None or position > greatest):
                greatest = position
            if record.offset() == end - 1:
                return greatest
    raise NotConnected(f"Kafka: the last records of {source} could not be read")


class _Origin(msgspec.Struct):
    name: str
    position: str


class _Envelope(msgspec.Struct):
    source: _Origin


_ENVELOPE = msgspec.json.Decoder(_Envelope)


def _position_of(value: bytes | None, source: str) -> Position | None:
    """Return the position that a record's value names, None when it is not a record of the source."""
    try:
        origin = _ENVELOPE.decode(value or b"").source
        return Position.parse(origin.position) if origin.name == source else None
    except (msgspec.MsgspecError, CorruptInput):
        return None


def survey(file: BridgeFile) -> list[dict[str, Any]]:
    """Return what Kafka holds for each source of a file, in the file's order; nulls where it holds nothing."""
    known = []
    for stream, section in file.streams.items():
        for source in section.sources:
            with reading(file.kafka, source) as client:
                committed = read_committed(client, source, file.topic(stream))
            position = committed.position if committed is not None else None
            known.append(
                {
                    "source": source,
                    "stream": stream,
                    "topic": file.topic(stream),
                    "position": str(position) if position is not None else None,
                    "epoch": datetime.fromtimestamp(position.epoch, UTC).isoformat() if position is not None else None,
                    "committed_at": committed.at if committed is not None else None,
                    "bridge": committed.bridge if committed is not None else None,
                    "offsets": [
                        {"topic": topic, "partition": partition, "offset": offset}
                        for (topic, partition), offset in sorted(
                            committed.offsets.items() if committed is not None else ()
                        )
                    ],
                }
            )
    return known
