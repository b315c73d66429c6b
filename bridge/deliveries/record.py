"""Records to deliver: the topic that they are read from, what Kafka holds of each, and the id by which a receiver recognises it.

The topic is read in a consumer group by all bridges that share the delivery, by its thread only (bridge/deliveries/worker.py);
raises errors of headrace/errors.py. Nothing is committed but by `commit`.

Addresses of records: a template of the bridge's file, filled from a record's key or headers.

Figures of each delivery: written by its thread and the receiver's, read by anybody. docs/metrics.md explains each.
"""

import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from bridge.kafka.client import TopicPartition, delivery_consumer
from bridge.kafka.entries import call_within, describe, events, leave_group
from bridge.kafka.errors import translated
from headrace import doors
from headrace.configuration.kafka import KafkaConnection
from headrace.configuration.sections import ADDRESS_FIELD
from headrace.errors import NotConnected
from headrace.metrics.collector import Rate, counter, gauge, states, worked_out

STATES = ("starting", "delivering", "waiting for Kafka", "needs an operator", "stopped")
_log = logging.getLogger(__name__)

#: Seconds that looking up committed offsets may take.
_LOOK_SECONDS = 5.0
#: Seconds that a synchronous commit may take: librdkafka waits without end for a broker that hangs.
_COMMIT_SECONDS = 3.0
#: Seconds that Kafka's client may take to end: it waits for answers to commits.
_CLOSE_SECONDS = 5.0


@dataclass(slots=True)
class DeliveryMetrics:
    """One delivery's figures; counts are since the bridge started."""

    state: str = states("state", "1 for the state that the delivery is in, 0 for the others.", STATES)
    #: What explains the state; empty while it delivers.
    reason: str = ""
    read: int = counter("read_records_total", "Records read from the topic.")
    delivered: int = counter("delivered_records_total", "Records that a receiver accepted.")
    redelivered: int = counter("redelivered_records_total", "Times that a record was sent again.")
    dead_lettered: int = counter("dead_lettered_records_total", "Records written to the dead-letter topic.")
    removed: int = counter(
        "removed_records_total", "Records that Kafka's retention removed before they were delivered, at most."
    )
    pending: int = gauge("pending_records", "Records read that are neither accepted nor dead letters.", 0)
    paused: int = gauge("paused_partitions", "Partitions not read on, as too many of their records are pending.", 0)
    assigned: int = gauge("assigned_partitions", "Partitions that this bridge delivers.", 0)
    #: Addresses with pending records that have no receiver, or one without credit.
    waiting_addresses: int = gauge("waiting_addresses", "Addresses with records and nobody who takes them.", 0)
    #: The timestamp of the oldest pending record, in milliseconds since 1970; None while none is pending.
    oldest_ms: int | None = None
    #: Why addresses wait, shown by `headrace status`.
    notes: list[str] = field(default_factory=list)
    rate: Rate = field(default_factory=Rate)

    @property
    @worked_out("oldest_pending_seconds", "Age of the oldest pending record by its timestamp; 0 while none is pending.")
    def oldest_age(self) -> float:
        """Seconds."""
        return 0.0 if self.oldest_ms is None else max(0.0, time.time() - self.oldest_ms / 1000)


Headers = tuple[tuple[str, bytes | None], ...]
#: What keeps its order: records of one key, which are in one partition. Those without a key keep the order of their partition.
OrderKey = tuple[int, bytes | None]


class Record(NamedTuple):
    """One Kafka record."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    #: None is a tombstone.
    value: bytes | None
    headers: Headers = ()
    #: Milliseconds since 1970; 0 when Kafka has none.
    timestamp: int = 0

    @property
    def id(self) -> str:
        """Return the id of the message, the same each time that the record is sent."""
        return f"{self.topic}/{self.partition}/{self.offset}"

    @property
    def order_key(self) -> OrderKey:
        """Return what it has to stay in order with."""
        return self.partition, self.key

    @property
    def size(self) -> int:
        """Return the bytes of key, value and headers."""
        headers = sum(len(name) + len(value or b"") for name, value in self.headers)
        return len(self.key or b"") + len(self.value or b"") + headers


_LONGEST = 200
_SEGMENT = r"[A-Za-z0-9_.@=+~-]+"
_SEGMENTS = rf"{_SEGMENT}(?:/{_SEGMENT})*"
_REGION = r"[A-Za-z0-9][A-Za-z0-9_.-]*"


class Undeliverable(Exception):  # noqa: N818 - a state, which reads best without a suffix.
    """A record has no address."""


class AddressTemplate:
    """A template such as `alerts/{region}`."""

    def __init__(self, text: str) -> None:
        self._text = text
        pattern = "".join(
            re.escape(part) if number % 2 == 0 else (_REGION if part == "region" else _SEGMENTS)
            for number, part in enumerate(ADDRESS_FIELD.split(text))
        )
        self._pattern = re.compile(pattern)
        self._fields = ADDRESS_FIELD.findall(text)

    def address(self, record: Record) -> str:
        """Return a record's address; raise Undeliverable, with the reason and without the value, when it has none."""
        values = {field: _value(field, record) for field in self._fields}
        address = ADDRESS_FIELD.sub(lambda match: values[match.group(1)], self._text)
        if len(address) > _LONGEST:
            raise Undeliverable(f"the address would be longer than {_LONGEST} characters")
        return address

    def matches(self, address: str) -> bool:
        """Return whether a record could have this address."""
        return len(address) <= _LONGEST and self._pattern.fullmatch(address) is not None


def _value(field: str, record: Record) -> str:
    if field.startswith("header."):
        name = field.removeprefix("header.")
        # The last of several, as Kafka's own clients take it.
        values = [value for header, value in record.headers if header == name]
        return _check(values[-1] if values else None, f"header {name!r}", _SEGMENTS)
    if field == "region":
        key = record.key.partition(b"/")[0] if record.key is not None else None
        return _check(key, "region in the key", _REGION)
    return _check(record.key, "key", _SEGMENTS)


def _check(value: bytes | None, what: str, pattern: str) -> str:
    if not value:
        raise Undeliverable(f"no {what}")
    try:
        text = value.decode("ascii")
    except UnicodeDecodeError:
        text = ""
    if not re.fullmatch(pattern, text):
        raise Undeliverable(f"the {what} has characters that no address may have")
    return text


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
        #: Whether a commit, or the client's end, has not returned.
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

        A client in which a commit hangs is left behind, since it would hang as well, and so is one that waits for the answer to a
        commit for too long: Kafka misses them after a session.
        """
        if self._hangs:
            return
        self._leaving = True
        leave_group(self._consumer)
        self._is_closed = True
        if not call_within(_CLOSE_SECONDS, f"close {self._topic}", self._consumer.close):
            self._hangs = True
            _log.warning("%s: Kafka's client did not return, and is left behind", self._topic)

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
            # Of a client that was left behind nothing is ours any more.
            if place.partition in self._reported and not self._hangs:
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
