"""The topic of a delivery, read in a consumer group by all bridges that share it.

Used by the delivery's thread only (bridge/deliveries/worker.py); raises errors of headrace/errors.py. Nothing is committed but by
`commit`.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from bridge.deliveries.record import Record
from bridge.kafka.client import TopicPartition, delivery_consumer
from bridge.kafka.consuming import describe, events, leave_group
from bridge.kafka.entries import call_within
from bridge.kafka.errors import translated
from headrace import doors
from headrace.configuration.kafka import KafkaConnection
from headrace.errors import NotConnected

_log = logging.getLogger(__name__)

#: Seconds that looking up committed offsets may take.
_LOOK_SECONDS = 5.0
#: Seconds that a synchronous commit may take: librdkafka waits without end for a broker that hangs.
_COMMIT_SECONDS = 3.0


class End(NamedTuple):
    """A partition was read to its end: there is no record below the offset that was not read."""

    partition: int
    offset: int


class TopicReader:
    """Reads one topic in a group.

    Within `read` it calls `assigned` with each partition that is ours from now on, and `revoked` with each that is to be given
    up, with True where another bridge has it already, so that it is too late to commit.
    """

    def __init__(
        self,
        connection: KafkaConnection,
        group: str,
        topic: str,
        session_seconds: float,
        *,
        assigned: Callable[[int], None],
        revoked: Callable[[int, bool], None],
    ) -> None:
        self._topic = topic
        self._assigned, self._revoked = assigned, revoked
        self._consumer = delivery_consumer(connection, group, session_seconds, self._on_commit)
        #: Whether an asynchronous commit failed.
        self._uncommitted = False
        #: Partitions that were assigned and not checked yet (`count_removed`).
        self._new: list[int] = []
        #: Partitions whose assignment was reported; none is while it leaves.
        self._reported: set[int] = set()
        self._leaving = self._is_closed = False
        #: Whether a commit has not returned.
        self._hangs = False
        self._consumer.subscribe([topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost)

    def read(self, most: int, seconds: float) -> Iterable[Record | End]:
        """Yield what comes, waiting for the first at most `seconds`; raise what Kafka reports."""
        for event, is_end in events(self._consumer, self._topic, most, seconds):
            yield End(event.partition(), event.offset()) if is_end else _record(event)

    def count_removed(self) -> dict[int, int]:
        """Return how many offsets of newly assigned partitions were removed by Kafka before they were delivered, at most."""
        counts = {}
        for partition in self._new:
            place = TopicPartition(self._topic, partition)
            with translated(f"look up what is delivered of {self._topic}"):
                (committed,) = self._consumer.committed([place], timeout=_LOOK_SECONDS)
                low, _ = self._consumer.get_watermark_offsets(place, timeout=_LOOK_SECONDS)
            if 0 <= committed.offset < low:
                counts[partition] = low - committed.offset
        self._new = []
        return counts

    def pause(self, partition: int) -> None:
        """Read a partition no more, until `resume`."""
        self._consumer.pause([TopicPartition(self._topic, partition)])

    def resume(self, partition: int) -> None:
        """Read a paused partition on."""
        self._consumer.resume([TopicPartition(self._topic, partition)])

    def commit(self, offsets: Mapping[int, int], *, wait: bool) -> None:
        """Commit offsets; with `wait` return when they are committed, or raise NotConnected when that takes too long."""
        if not offsets:
            return
        places = [TopicPartition(self._topic, partition, offset) for partition, offset in offsets.items()]
        if wait:
            self._commit_in_time(places)
        else:
            self._commit(places, wait=False)

    def commit_failed(self) -> bool:
        """Return, once, whether an asynchronous commit failed."""
        failed, self._uncommitted = self._uncommitted, False
        return failed

    def check(self) -> None:
        """Raise what keeps the topic from being read: that it is not in Kafka, or may not be read."""
        with translated(f"read {self._topic}"):
            describe(self._consumer, self._topic, _LOOK_SECONDS)

    def close(self) -> None:
        """Leave the group; `revoked` is called with what was assigned.

        A client in which a commit hangs is left behind, since it would hang as well: Kafka misses it after a session.
        """
        if self._hangs:
            return
        self._leaving = True
        leave_group(self._consumer)
        self._is_closed = True
        self._consumer.close()

    def _commit(self, places: list[Any], *, wait: bool) -> None:
        with translated(f"commit what is delivered of {self._topic}"):
            self._consumer.commit(offsets=places, asynchronous=not wait)

    def _commit_in_time(self, places: list[Any]) -> None:
        """Commit in a thread that can be left behind: the call has no time limit of its own."""
        if not call_within(_COMMIT_SECONDS, f"commit {self._topic}", lambda: self._commit(places, wait=True)):
            self._hangs = True
            raise NotConnected(f"Kafka: offsets of {self._topic} not committed within {_COMMIT_SECONDS:.0f} s")

    def _on_assign(self, consumer: Any, places: list[Any]) -> None:
        if self._is_closed:
            return
        consumer.incremental_assign(places)
        if self._leaving:
            consumer.pause(places)
            return
        for place in places:
            self._reported.add(place.partition)
            self._assigned(place.partition)
            self._new.append(place.partition)

    def _on_revoke(self, consumer: Any, places: list[Any]) -> None:
        self._give_up(consumer, places, lost=False)

    def _on_lost(self, consumer: Any, places: list[Any]) -> None:
        _log.warning("%s: %d partitions were taken from this bridge", self._topic, len(places))
        self._give_up(consumer, places, lost=True)

    def _give_up(self, consumer: Any, places: list[Any], *, lost: bool) -> None:
        for place in places:
            if place.partition in self._reported:
                self._reported.discard(place.partition)
                self._revoked(place.partition, lost)
        consumer.incremental_unassign(places)

    def _on_commit(self, error: Any, _places: list[Any]) -> None:
        self._uncommitted = self._uncommitted or error is not None


def _record(event: Any) -> Record:
    _, timestamp = event.timestamp()
    try:
        headers = tuple(event.headers() or ())
    except UnicodeDecodeError as error:
        # Kafka takes any bytes for a header's name. Without its headers it has the address that its key gives, or none.
        doors.DELIVERY.refuse(error, event.topic())
        headers = ()
    return Record(
        event.topic(), event.partition(), event.offset(), event.key(), event.value(), headers, max(0, timestamp)
    )
