"""Reads withheld records of one table, in order, up to where the source's withheld records end."""

import time
from typing import Any, NamedTuple, Protocol

from bridge.kafka.client import PATIENCE, KafkaError, KafkaException, TopicPartition, consumer
from bridge.kafka.errors import translated
from bridge.model import withheld_records as records
from bridge.model.ports import Partition
from headrace import doors
from headrace.batch import Batch
from headrace.configuration.kafka import KafkaConnection
from headrace.errors import NeedsOperator, NotConnected

#: A step of a release is as large, in bytes, and a batch more.
_MOST_BYTES = 1 << 20
_MANY = 100
#: A step takes no longer where it has come further, in seconds: other sources wait for theirs, and the position for all of them.
_STEP_SECONDS = 1.0


class WithheldRecord(NamedTuple):
    """One withheld record."""

    offset: int
    batch: Batch
    #: In bytes.
    size: int


class ReadsWithheld(Protocol):
    """What a releaser needs of Kafka; used by one thread."""

    def read(
        self, place: Partition, key: bytes, begin: int, end: int, *, most: int = _MOST_BYTES
    ) -> tuple[list[WithheldRecord], int]:
        """Return the next withheld records of a key from an offset on, and the offset to go on from: `end` where all is read.

        Raises NotConnected, NeedsOperator for records that are gone, CorruptInput for one that no bridge wrote.
        """

    def delete(self, place: Partition, end: int) -> None:
        """Delete what is before an offset: all of it is in other topics."""

    def close(self) -> None:
        """Give the connection up; the next call makes another one."""


class KafkaReader:
    """Implements `ReadsWithheld`; keeps a connection between calls."""

    def __init__(self, connection: KafkaConnection, group: str, admin: Any) -> None:
        self._connection, self._group, self._admin = connection, group, admin
        self._client: Any = None
        self._is_stale = False

    def renew(self) -> None:
        """Have the next read make its client again; for any thread."""
        self._is_stale = True

    def read(
        self, place: Partition, key: bytes, begin: int, end: int, *, most: int = _MOST_BYTES
    ) -> tuple[list[WithheldRecord], int]:
        """Return the next withheld records of a key, and where to go on."""
        if begin >= end:
            return [], end
        with translated(f"read withheld records in {place[0]}[{place[1]}]"):
            if self._is_stale:
                self._is_stale = False
                self.close()
            if self._client is None:
                self._client = consumer(self._connection, self._group)
            low, _ = self._client.get_watermark_offsets(TopicPartition(*place), timeout=PATIENCE)
            if low > begin:
                raise NeedsOperator(
                    f"withheld records of {key.decode()} are gone from {place[0]}[{place[1]}]: they began at offset {begin} or "
                    f"after it, and the partition begins at {low}",
                    hint="Restore the topic from a copy: these records are in no other one.",
                )
            self._client.assign([TopicPartition(*place, begin)])
            try:
                return self._read(place, key, begin, end, most)
            finally:
                self._client.unassign()

    def _read(self, place: Partition, key: bytes, begin: int, end: int, most: int) -> tuple[list[WithheldRecord], int]:
        own_records: list[WithheldRecord] = []
        size, at = 0, begin
        until, enough = time.monotonic() + PATIENCE, time.monotonic() + _STEP_SECONDS
        while size < most and not (at > begin and time.monotonic() > enough):
            if time.monotonic() > until:
                # A transaction that is committed may lack its marker in this partition for a moment.
                raise NotConnected(f"Kafka: {place[0]}[{place[1]}] could not be read up to offset {end}")
            for record in self._client.consume(_MANY, timeout=0.1):
                if record.error() is not None:
                    if record.error().code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - named so.
                        continue
                    raise KafkaException(record.error())
                until = time.monotonic() + PATIENCE
                if record.offset() >= end:
                    return own_records, end
                at = record.offset() + 1
                if record.key() == key:
                    where = f"{place[0]}[{place[1]}], offset {record.offset()},"
                    try:
                        batch = records.batch_of(record.headers(), record.value(), where)
                    except Exception as error:
                        raise doors.WITHHELD.refuse(error, where) from error
                    own_records.append(WithheldRecord(record.offset(), batch, len(record.value())))
                    size += own_records[-1].size
                if at == end:
                    return own_records, end
        return own_records, at

    def delete(self, place: Partition, end: int) -> None:
        """Delete what is before an offset."""
        with translated(f"delete released records in {place[0]}[{place[1]}]", self._admin):
            for answer in self._admin.delete_records([TopicPartition(*place, end)], request_timeout=PATIENCE).values():
                answer.result()

    def close(self) -> None:
        """Give the connection up."""
        gone, self._client = self._client, None
        if gone is not None:
            gone.close()
