"""A transactional producer of librdkafka's, behind `TransactionalProducer` (bridge/model/ports.py). One lane has it.

Transactions that a bridge left open when it died: they hold back the positions in them until Kafka's time limit ends them.

A writer of records that belong to no transaction: dead letters of deliveries, and answers to requests.
"""

import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from functools import partial
from itertools import repeat
from typing import Any

from bridge.kafka.client import TIMEOUT, KafkaError, KafkaException, TopicPartition, producer, record_producer
from bridge.kafka.entries import metadata_of, reading
from bridge.kafka.errors import error_of, translated
from bridge.kafka.lifetime import Lifetime
from bridge.model.chain import parse
from bridge.model.ports import GroupMetadata, OpenProducer, Partition, PartitionsFailed, PositionCommit, Share
from headrace.configuration.kafka import KafkaConnection
from headrace.errors import NotConnected, ReplicationError

#: After so long it is looked whether partitions have no leader; and, once it takes no further partition for so long, whether
#: Kafka takes some partitions and others not.
_SLOW_SECONDS, _PARTIAL_SECONDS = 0.3, 2.0
#: How much longer for each partition: librdkafka sends a request for each, and a busy broker takes milliseconds for it.
_SLOW_PARTITION_SECONDS = 0.005
#: A look at a topic that may have got partitions, and one at a cluster that may not answer at all.
_LOOK_SECONDS, _ANSWER_SECONDS = 2.0, 1.0
_SLICE_SECONDS = 0.2
#: No record has it: Kafka's offsets have 63 bits.
_LAST_OFFSET = (1 << 63) - 1
#: Reports of records that an abort, or a failure of others, discarded: they report nothing about their partition.
_PURGED = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})  # noqa: SLF001 - named so.


class KafkaProducer:
    """Implements `TransactionalProducer`."""

    def __init__(self, connection: KafkaConnection, transactional_id: str, smallest_limit: int) -> None:
        self._id = transactional_id
        self.is_stale = Lifetime(connection).is_stale
        self._producer = producer(connection, transactional_id, smallest_limit)
        # Partitions whose last record has no report yet; the offset after the last one of the others; what was refused.
        self._pending: set[Partition] = set()
        self._ends: dict[Partition, int] = {}
        self._failed: dict[Partition, ReplicationError] = {}
        with translated(f"initialise transactions of {transactional_id}"):
            self._producer.init_transactions(TIMEOUT)

    def begin(self) -> None:
        """Begin a transaction."""
        self._pending, self._ends, self._failed = set(), {}, {}
        with translated(f"begin a transaction of {self._id}"):
            self._producer.begin_transaction()

    def produce(self, share: Share) -> None:
        """Queue records; only the last one is reported on: the order of a partition is kept."""
        place = (share.topic, share.partition)
        self._pending.add(place)
        try:
            try:
                self._put(share)
            except KafkaException as error:
                # A partition that the topic got since is known to the client after half a minute, unless it is made to look.
                # Nothing is queued yet: the first record is refused.
                if error.args[0].code() != KafkaError._UNKNOWN_PARTITION:  # noqa: SLF001 - named so.
                    raise
                self._producer.list_topics(share.topic, timeout=_LOOK_SECONDS)
                self._put(share)
        except KafkaException as error:
            raise PartitionsFailed({place: error_of(error, f"write to {share.topic}[{share.partition}]")}) from error
        self._producer.poll(0)

    def _put(self, share: Share) -> None:
        topic, number, keys, values, headers = share
        put = self._producer.produce
        if headers:
            for index, (key, value) in enumerate(zip(keys[:-1], values[:-1], strict=True)):
                put(topic, value, key, number, headers=headers.get(index))
        elif len(values) > 1:
            # A loop without a line of Python in it.
            deque(map(put, repeat(topic), values[:-1], keys[:-1], repeat(number)), maxlen=0)
        reported = partial(self._reported, (topic, number), self._ends, len(values) - 1)
        last = (headers or {}).get(len(values) - 1)
        put(topic, values[-1], keys[-1], number, on_delivery=reported, headers=last)

    def flush(self, seconds: float) -> dict[Partition, int]:
        """Wait until Kafka has taken all records.

        A busy broker takes one partition after the other, and a frozen one none: both are no fault of those that still wait.
        """
        began = moved = time.monotonic()
        taken, looked, answers, silent, was_slow = 0, False, False, False, False
        slow = _SLOW_SECONDS + _SLOW_PARTITION_SECONDS * len(self._pending)
        while not self._is_flushed():
            now = time.monotonic()
            if len(self._ends) > taken:
                taken, moved, answers, silent = len(self._ends), now, False, False
            if now - began > slow and not looked:
                looked = True
                if without := self._without_leader():
                    raise PartitionsFailed(without)
            if now - moved <= _PARTIAL_SECONDS and now - began <= seconds:
                continue
            if not taken:
                # Nothing is taken at all: the commit reports why, or waits.
                break
            if answers and self._pending:
                raise self._stuck(now - moved)
            if now - began > seconds:
                raise NotConnected(
                    f"Kafka: {taken} of {taken + len(self._pending)} partitions taken in {seconds:.0f} s"
                )
            # Every partition may be reported while the client still waits for the broker: then none is stuck.
            answers = bool(self._pending) and self._answers()
            is_slow = time.monotonic() - now > _ANSWER_SECONDS / 2
            if answers and (silent or (is_slow and not was_slow)):
                # It was frozen until now, or is slow, which counts once: its partitions get their time again.
                moved, answers, was_slow = time.monotonic(), False, was_slow or is_slow
            silent = bool(self._pending) and not answers and moved <= now
        return self._ends

    def commit(self, positions: Sequence[PositionCommit], group: GroupMetadata, seconds: float) -> None:
        """Commit records and positions."""
        offsets = [
            TopicPartition(topic, partition, offset, metadata=text) for topic, partition, offset, text in positions
        ]
        with translated(f"commit a transaction of {self._id}"):
            self._producer.send_offsets_to_transaction(offsets, group.opaque, seconds)
            self._producer.commit_transaction(seconds)
        if self._failed:
            raise PartitionsFailed(self._failed)

    def abort(self, seconds: float) -> None:
        """Abort the transaction."""
        with translated(f"abort a transaction of {self._id}"):
            self._producer.abort_transaction(seconds)

    def discard(self) -> None:
        """Give the producer up without waiting for anything."""
        gone, self._producer = self._producer, None
        if gone is not None:
            try:
                gone.purge()
            except KafkaException:
                # It is given up anyway.
                return

    def _reported(self, place: Partition, ends: dict[Partition, int], least: int, error: Any, record: Any) -> None:
        """Note what became of the last record of some, whose offset is `least` if Kafka has no other record in the partition."""
        if ends is not self._ends:
            # Of a transaction that is over.
            return
        if error is None:
            offset = record.offset()
            if offset is None or not least <= offset < _LAST_OFFSET:
                # A broker that knows them for repeats says no more; without the offset the position would not be committed. The
                # client counts from what the broker says of the first record of a request, also from -1.
                self._failed[place] = NotConnected(f"Kafka: {place[0]}[{place[1]}] took records and did not say where")
                return
            self._pending.discard(place)
            ends[place] = offset + 1
        elif error.code() not in _PURGED:
            self._failed[place] = error_of(KafkaException(error), f"write to {place[0]}[{place[1]}]")

    def _is_flushed(self) -> bool:
        """Wait a moment; return whether Kafka has taken everything, or raise what it has refused."""
        with translated(f"write a transaction of {self._id}"):
            left = self._producer.flush(_SLICE_SECONDS)
        if self._failed:
            raise PartitionsFailed(self._failed)
        return not left and not self._pending

    def _stuck(self, seconds: float) -> PartitionsFailed:
        """Return the error of the partitions that are not taken although the cluster answers and took others."""
        why = f"not taken within {seconds:.0f} s, while other partitions were"
        return PartitionsFailed(
            {place: NotConnected(f"Kafka: records for {place[0]}[{place[1]}] {why}") for place in self._pending}
        )

    def _answers(self) -> bool:
        """Return whether the cluster answers a question about one of the topics."""
        topic, _ = next(iter(self._pending))
        try:
            self._producer.list_topics(topic, timeout=_ANSWER_SECONDS)
        except KafkaException:
            return False
        return True

    def _without_leader(self) -> dict[Partition, ReplicationError]:
        """Return the partitions that cannot be written by what the cluster reports of them now."""
        errors: dict[Partition, ReplicationError] = {}
        for topic in {topic for topic, _ in self._pending}:
            try:
                metadata = self._producer.list_topics(topic, timeout=_ANSWER_SECONDS).topics[topic]
            except (KafkaException, KeyError):
                # No answer, or one about something else.
                return {}
            for place in [place for place in self._pending if place[0] == topic]:
                if metadata.error is not None:
                    errors[place] = error_of(KafkaException(metadata.error), f"write to {topic}")
                elif place[1] not in metadata.partitions or metadata.partitions[place[1]].leader < 0:
                    errors[place] = NotConnected(
                        f"Kafka: {topic}[{place[1]}] has no leader",
                        hint="Look at the brokers: 'headrace bridge doctor'.",
                    )
        return errors


def opener(connection: KafkaConnection, smallest_limit: Callable[[], int]) -> OpenProducer:
    """Return what opens producers; `smallest_limit` is asked for each of them."""

    def open_producer(transactional_id: str) -> KafkaProducer:
        return KafkaProducer(connection, transactional_id, smallest_limit())

    return open_producer


_log = logging.getLogger(__name__)

_TIMEOUT = 2.0
#: A bridge's transactions are not ended again before so many seconds; where that failed, before so many.
_AGAIN_SECONDS, _FAILED_SECONDS = 15.0, 3.0
_SMALLEST = 1 << 20


class Leftovers:
    """What other instances of the group left open."""

    def __init__(self, connection: KafkaConnection, instance: str, lanes: Collection[str]) -> None:
        self._connection = connection
        self._instance = instance
        self._lanes = lanes
        #: From when on an instance's may be ended again, in monotonic seconds.
        self._again: dict[str, float] = {}

    def end(self, group: str, places: Collection[Partition]) -> None:
        """End the open transactions of the bridges that committed in some partitions last; errors are only logged."""
        try:
            instances = self._instances(group, places) - {self._instance}
        except (KafkaException, ReplicationError) as error:
            _log.debug("it is not known whose open transactions are to be ended: %s", error)
            return
        for instance in instances:
            self._end(instance)

    def _end(self, instance: str) -> None:
        now = time.monotonic()
        if now < self._again.get(instance, now):
            return
        self._again[instance] = now + _AGAIN_SECONDS
        _log.warning("positions are held back by open transactions, which end now: bridge %s", instance)
        try:
            for lane in self._lanes:
                KafkaProducer(self._connection, f"{self._connection.prefix}.{instance}.{lane}", _SMALLEST).discard()
        except (KafkaException, ReplicationError) as error:
            self._again[instance] = now + _FAILED_SECONDS
            _log.debug("open transactions could not be ended: %s", error)

    def _instances(self, group: str, places: Collection[Partition]) -> set[str]:
        with reading(self._connection, group, stable=False) as client:
            answered = client.committed([TopicPartition(*place) for place in places], timeout=_TIMEOUT)
        instances = set()
        for each in answered:
            try:
                instances.add(parse(metadata_of(each)).bridge.split("/", 3)[3])
            except (ReplicationError, IndexError):
                continue
        return instances


#: How long what is on the way may take before another client is made, in seconds.
_LAST_SECONDS = 1.0
#: Called with the error, or None when Kafka has the record.
Report = Callable[[ReplicationError | None], None]


class RecordWriter:
    """Writes records to a topic; the report of each comes within `poll`. Used by one thread."""

    def __init__(self, connection: KafkaConnection, topic: str) -> None:
        self._topic = topic
        self._connection = connection
        self._lifetime = Lifetime(connection)
        self._producer = record_producer(connection)

    def write(
        self,
        key: bytes | None,
        value: bytes | None,
        written: Report,
        headers: Sequence[tuple[str, bytes | None]] = (),
    ) -> None:
        """Write a record; `written` is called in a later `poll`, or with an error at once."""

        def report(error: Any, _record: Any) -> None:
            if error is None:
                self._lifetime.works()
            written(None if error is None else error_of(KafkaException(error), f"write to {self._topic}"))

        try:
            self._producer.produce(self._topic, value, key, headers=list(headers), on_delivery=report)
        except (KafkaException, BufferError) as error:
            problem = error if isinstance(error, KafkaException) else KafkaException(KafkaError(KafkaError._QUEUE_FULL))  # noqa: SLF001 - named so.
            written(error_of(problem, f"write to {self._topic}"))

    def poll(self, seconds: float = 0) -> None:
        """Take reports."""
        self._producer.poll(seconds)
        if not len(self._producer):
            # Nothing waits, so nothing shows whether it works.
            self._lifetime.works()
        if self._lifetime.is_over():
            self._renew()

    def _renew(self) -> None:
        """Go on with a new client; what was not written is reported with an error, and written again by its owner."""
        try:
            # Made first: without a password or a token there is no other client yet.
            fresh = record_producer(self._connection)
        except ReplicationError:
            return
        self._producer.flush(_LAST_SECONDS)
        self._producer.purge()
        self._producer.flush(_LAST_SECONDS)
        self._producer = fresh

    def flush(self, seconds: float) -> None:
        """Wait for reports."""
        self._producer.flush(seconds)
