"""The committed position of a source: how it is written to Kafka and read back (design decision 4).

It is a consumer group's offset, committed in the same transaction as the records, for every partition that the source owns, so
the group records the assignment too. The offset is the log's end, so lag tools show nothing odd; the position is in the
offset's metadata: `POSITION TIME BRIDGE`, the position `-` while none is known. Kafka forgets idle groups; then the last
committed record in the source's own partitions tells the position.
"""

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from bridge.kafka import PATIENCE, ConsumerGroupTopicPartitions, TopicPartition, consumer, translated
from headrace.configuration.bridge import BridgeFile
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


def read_committed(admin: Any, source: str) -> Committed | None:
    """Return what is committed for a source, None when Kafka knows of nothing; raise NotConnected or NeedsOperator."""
    group = group_of(source)
    with translated(f"read the committed position of {source}"):
        asked = admin.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group)], require_stable=True, request_timeout=PATIENCE
        )
        found = asked[group].result().topic_partitions
    offsets = {(each.topic, each.partition): each.offset for each in found if each.offset >= 0}
    texts = [each.metadata or "" for each in found if each.offset >= 0]
    if not offsets:
        return None
    try:
        # All were committed at once, unless the assignment was changed: the newest counts.
        position, at, bridge = max((text.split(" ", 2) for text in texts), key=lambda parts: parts[1])
        return Committed(None if position == _NONE else Position.parse(position), at, bridge, offsets)
    except (CorruptInput, ValueError, IndexError) as error:
        raise NeedsOperator(
            f"group {group} holds offsets that the bridge did not write",
            hint=f"Keep other consumers out of groups named 'headrace.*', and delete the group {group}: "
            "the position is then read from the source's last records.",
        ) from error


def forget(admin: Any, source: str) -> None:
    """Delete the source's group with its offsets."""
    group = group_of(source)
    with translated(f"delete group {group}"):
        admin.delete_consumer_groups([group], request_timeout=PATIENCE)[group].result()


def read_last_record(bootstrap: str, source: str, topic: str, partitions: Sequence[int]) -> Position | None:
    """Return the greatest position that stands in the source's partitions, None when none does.

    Reads backward from the end in growing steps, over markers, tombstones and records that are not the source's.
    """
    client = consumer(bootstrap, group_of(source))
    try:
        with translated(f"read the last record of {source}"):
            found = [_last(client, source, topic, partition) for partition in partitions]
    finally:
        client.close()
    return max((position for position in found if position is not None), default=None)


def _last(client: Any, source: str, topic: str, partition: int) -> Position | None:
    low, high = client.get_watermark_offsets(TopicPartition(topic, partition), timeout=PATIENCE)
    end, step = high, 100
    while end > low:
        start = max(low, end - step)
        position = _greatest(client, source, TopicPartition(topic, partition, start), end)
        if position is not None:
            return position
        end, step = start, step * 10
    return None


def _greatest(client: Any, source: str, start: Any, end: int) -> Position | None:
    """Return the greatest position from `start` to before `end`, None when there is none."""
    client.assign([start])
    greatest: Position | None = None
    until = time.monotonic() + 3 * PATIENCE
    while time.monotonic() < until:
        record = client.poll(1.0)
        if record is None:
            continue
        # An error is the end of the partition; another one is met again by the next request.
        if record.error():
            return greatest
        if record.offset() >= end:
            return greatest
        position = _position_of(record.value(), source)
        if position is not None and (greatest is None or position > greatest):
            greatest = position
    raise NotConnected(f"Kafka: the last records of {source} could not be read in time")


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


def survey(admin: Any, file: BridgeFile) -> list[dict[str, Any]]:
    """Return what Kafka holds for each source of a file, in the file's order; nulls where it holds nothing."""
    known = []
    for stream, section in file.streams.items():
        for source in section.sources:
            committed = read_committed(admin, source)
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
