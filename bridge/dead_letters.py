"""Dead letters: records that tell of a change whose row was too large to be one (docs/records.md), found in the topics.

They stand in the source's own order, in the place of the change, so nothing is hidden and no chain is broken. What is left to do
is the edge's: raise the limit and copy the row again. Reads whole topics; called by the command.
"""

from collections.abc import Iterator
from itertools import product
from typing import Any

import msgspec

from bridge.kafka import PATIENCE, KafkaError, KafkaException, TopicPartition, translated
from bridge.positions import reading
from headrace.configuration.bridge import BridgeFile
from headrace.errors import NotConnected

#: Stands in every dead letter. A text that holds the same is escaped.
_MARK = b'"too_large":{"bytes":'
#: Records asked for at once, and how often in a row none may come.
_MANY, _TRIES = 5000, 100


class _Size(msgspec.Struct):
    bytes: int
    sha256: str


class _Source(msgspec.Struct):
    name: str
    position: str
    schema: str
    table: str
    ts_ms: int


class _Letter(msgspec.Struct):
    source: _Source
    op: str
    too_large: _Size


_LETTER = msgspec.json.Decoder(_Letter)


def dead_letters(file: BridgeFile, stream: str) -> Iterator[dict[str, Any]]:
    """Yield what each dead letter of a stream tells, partition by partition, up to the present end.

    Raises ConfigurationError for a stream that the file has not, NotConnected, or NeedsOperator.
    """
    for source, partitions in file.streams[stream].sources.items():
        with reading(file.kafka, source) as client:
            for topic, partition in product(file.topics(stream), partitions):
                with translated(f"read {topic}"):
                    yield from _found(client, topic, partition)


def _found(client: Any, topic: str, partition: int) -> Iterator[dict[str, Any]]:
    low, high = client.get_watermark_offsets(TopicPartition(topic, partition), timeout=PATIENCE)
    client.assign([TopicPartition(topic, partition, low)])
    tries = 0
    while low < high and tries < _TRIES:
        records = client.consume(_MANY, timeout=0.1)
        tries = 0 if records else tries + 1
        for record in records:
            if record.error() is None:
                if _MARK in (record.value() or b""):
                    yield from _told(record)
            elif record.error().code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - named so.
                return
            else:
                raise KafkaException(record.error())
    if low < high:
        raise NotConnected(f"Kafka: the end of {topic}[{partition}] could not be read")


def _told(record: Any) -> Iterator[dict[str, Any]]:
    try:
        letter = _LETTER.decode(record.value())
    except msgspec.MsgspecError:
        # The mark stood in a text of somebody's.
        return
    yield {
        "source": letter.source.name,
        "position": letter.source.position,
        "table": f"{letter.source.schema}.{letter.source.table}",
        "op": letter.op,
        "key": (record.key() or b"").decode(errors="replace") or None,
        "bytes": letter.too_large.bytes,
        "sha256": letter.too_large.sha256,
        "committed_ms": letter.source.ts_ms,
        "offset": f"{record.topic()}[{record.partition()}]@{record.offset()}",
    }
