"""The committer: one source's transactional producer (design decision 4).

Taking over fences whoever had the source and reads back where it stands. A transaction holds records and, in the same breath,
the position of the last; it is committed as a whole or not at all. After any error nothing is kept: the producer is thrown away
and the source is taken over again, which also settles a commit that was in doubt. Called by the source's thread only.
"""

import logging
import time
from collections import deque
from itertools import repeat
from typing import Any, NamedTuple

from bridge.kafka.client import (
    PATIENCE,
    KafkaException,
    TooLarge,
    TopicPartition,
    producer,
    record_limit,
    translated,
)
from bridge.kafka.commit_throttle import Rests
from bridge.kafka.deadline import Errands
from bridge.kafka.partitioner import Share, shares
from bridge.kafka.positions import (
    Committed,
    forget,
    group_of,
    metadata,
    read_committed,
    read_ends,
    read_last_record,
    reading,
)
from bridge.kafka.table_router import TableRouter
from bridge.kafka.topics import Wanted, check
from headrace.batch import Batch
from headrace.configuration.kafka import KafkaConnection
from headrace.errors import NeedsOperator, NotConnected, Retryable
from headrace.position import Position

_log = logging.getLogger(__name__)


class SourceRoute(NamedTuple):
    """Where a source's records go."""

    source: str
    #: The stream's own; the source's position is committed with its partitions.
    topic: str
    partitions: tuple[int, ...]
    #: Where the records of tables go, if not there.
    tables: TableRouter | None = None

    @property
    def topics(self) -> dict[str, str]:
        """All topics that its records go to, the stream's own one first, each with its `cleanup.policy`."""
        return {self.topic: "delete"} if self.tables is None else self.tables.topics


class Committer:
    """Writes batches of one source, in transactions that carry its position."""

    def __init__(
        self, connection: KafkaConnection, admin: Any, home: SourceRoute, bridge: str, rests: Rests | None = None
    ) -> None:
        self._connection = connection
        self._admin = admin
        self._home = home
        self._bridge = bridge
        self._rests = rests or Rests()
        self._errands = Errands()
        self._producer: Any = None
        self._group: Any = None
        self._ends: dict[int, int] = {}
        #: The largest record that each topic takes, in bytes.
        self._limits: dict[str, int] = {}
        self._touched: set[int] = set()
        #: Whether a transaction is open.
        self.is_open = False
        #: When the open transaction began, by the monotonic clock: after its rest.
        self.began_at = 0.0
        #: When something was last committed, by the monotonic clock.
        self.committed_at = 0.0
        # Records in the open transaction.
        self._written = 0
        # How long after that the next transaction begins at the earliest, in seconds.
        self._rest = 0.0

    def take_over(self) -> Position | None:
        """Fence whoever had the source; return its position, None when neither offsets nor records know one.

        Raises:
            NotConnected: Kafka cannot be reached.
            NeedsOperator: the topic or its partitions are missing, or the source owned others until now.
        """
        source, topic, partitions = self._home[:3]
        self._fence()
        with reading(self._connection, source) as client:
            self._group = client.consumer_group_metadata()
            self._ends = read_ends(client, topic, partitions)
            committed = read_committed(client, source, topic)
            check_assignment(self._home, committed)
            tail = committed.position if committed is not None else None
            if tail is None:
                tail = read_last_record(client, source, list(self._home.topics), partitions)
                if tail is not None:
                    _log.warning("%s: no committed position in Kafka; its last record stands at %s", source, tail)
        # Says at once who has the source, so that a bridge that finds itself fenced can tell by whom.
        self.commit(tail)
        return tail

    def move(self) -> Position:
        """Take the source over in partitions that it did not own until now; return the position that it goes on from.

        Raises NeedsOperator when no position is committed: there is nothing to go on from.
        """
        source, topic, partitions = self._home[:3]
        self._fence()
        with reading(self._connection, source) as client:
            self._group = client.consumer_group_metadata()
            self._ends = read_ends(client, topic, partitions)
            committed = read_committed(client, source, topic)
        if committed is None or committed.position is None:
            raise NeedsOperator(
                f"{source} has no committed position", hint="It can simply start in the partitions that the file names."
            )
        # Between the two steps the position is nowhere but here, so it is said first.
        _log.warning("%s: moving, its position is %s", source, committed.position)
        forget(self._admin, source)
        self.commit(committed.position)
        return committed.position

    def write(self, batch: Batch, index: int) -> None:
        """Put the batch's records from `index` on into the open transaction, or a new one.

        Raises:
            TooLarge: for a record that its topic does not take.
            CorruptInput, NoTopic: a record's table, or its topic, is not known. Nothing of the batch is written.
        """
        _, topic, partitions, tables = self._home
        parts = shares(batch, index, topic, partitions, tables)
        self._begin()
        produce, most = self._producer.produce, max(self._limits.values())
        try:
            with translated(f"write to {topic}"):
                for part in parts:
                    at, partition, keys, values = part
                    if self._limits[at] < most:
                        self._check_sizes(part)
                    # A loop without a line of Python in it.
                    deque(map(produce, repeat(at), values, keys, repeat(partition)), maxlen=0)
                    self._written += len(values)
                    if at == topic:
                        self._ends[partition] += len(values)
                        self._touched.add(partition)
        except TooLarge as error:
            if any(limit > self._limits[at] for at, limit in self._asked_limits().items()):
                raise Retryable(f"{topic} takes larger records than before") from error
            raise
        self._producer.poll(0)

    def _check_sizes(self, part: Share) -> None:
        """Raise TooLarge for a record that this topic does not take, and another one of the producer's does."""
        limit = record_limit(self._limits[part.topic])
        if any(len(key or b"") + len(value or b"") > limit for key, value in zip(part.keys, part.values, strict=True)):
            raise TooLarge(f"a record is larger than {part.topic} takes")

    def commit(self, tail: Position | None) -> None:
        """Commit the open transaction, or one without records, and `tail` with it.

        Raises:
            Fenced: another producer has the source, or Kafka gave up on the transaction.
            NotConnected: no answer in time: only taking over tells whether it is committed.
        """
        self._begin()
        began = time.monotonic()
        text = metadata(tail, self._bridge)
        offsets = [
            TopicPartition(self._home.topic, partition, end, metadata=text) for partition, end in self._ends.items()
        ]
        self._errands.within(
            2 * PATIENCE, f"commit {self._home.source}", self._end_transaction, self._producer, offsets
        )
        for partition in self._touched:
            # The transaction's own marker takes an offset.
            self._ends[partition] += 1
        self._touched.clear()
        self.is_open = False
        self.committed_at = time.monotonic()
        self._rest = self._rests.after(self._home.source, self.committed_at - began, self._written)
        self._written = 0

    def _end_transaction(self, client: Any, offsets: list[Any]) -> None:
        with translated(f"commit {self._home.source}"):
            # Meanwhile the partitions are registered, too. Records that are pushed out before that (by a flush, or by their
            # linger) have the client's thread turn without a rest until it is done: a third of the bridge's whole processor time.
            client.send_offsets_to_transaction(offsets, self._group, PATIENCE)
            client.commit_transaction(PATIENCE)

    def fenced_by(self) -> str:
        """Return the bridge that has taken the source over; empty when it was Kafka's own time limit for a transaction."""
        with reading(self._connection, self._home.source) as client:
            committed = read_committed(client, self._home.source, self._home.topic)
        return committed.bridge if committed is not None and committed.bridge != self._bridge else ""

    def abandon(self) -> None:
        """Throw the producer away with its open transaction; Kafka drops that when the source is taken over."""
        gone, self._producer, self.is_open = self._producer, None, False
        self._written = 0
        self._touched.clear()
        self._errands.end()
        if gone is not None:
            try:
                gone.purge()
            except KafkaException:
                _log.debug("%s: purging the producer failed", self._home.source, exc_info=True)

    def _fence(self) -> None:
        """Make the source's transactional id ours."""
        self.abandon()
        source = self._home.source
        self._limits = self._asked_limits()
        self._producer = producer(self._connection, group_of(source), self._limits.values())
        with translated(f"take over {source}"):
            self._errands.within(2 * PATIENCE, f"take over {source}", self._producer.init_transactions, PATIENCE)

    def _asked_limits(self) -> dict[str, int]:
        """Return the largest record that each topic takes, in bytes; raise NeedsOperator when a topic is not right."""
        needed = max(self._home.partitions) + 1
        try:
            return check(self._admin, {topic: Wanted(needed, cleanup) for topic, cleanup in self._home.topics.items()})
        except NotConnected:
            self._admin.renew()
            raise

    def _begin(self) -> None:
        if not self.is_open:
            time.sleep(max(0.0, self.committed_at + self._rest - time.monotonic()))
            with translated(f"begin a transaction of {self._home.source}"):
                self._producer.begin_transaction()
            self.began_at, self.is_open = time.monotonic(), True


def check_assignment(home: SourceRoute, committed: Committed | None) -> None:
    """Raise NeedsOperator when a source's position is committed in other partitions than those that the file gives it."""
    source, topic, partitions = home[:3]
    owns = {(topic, partition) for partition in partitions}
    if committed is not None and set(committed.offsets) != owns:
        raise NeedsOperator(
            f"{source} owned {_named(set(committed.offsets))} until now, and the bridge's file says {_named(owns)}",
            hint="Partitions never move silently: name the former ones in the file, or run "
            f"'headrace bridge move {source}' to go on in the new ones from the same position.",
        )


def _named(partitions: set[tuple[str, int]]) -> str:
    return ", ".join(f"{topic}[{partition}]" for topic, partition in sorted(partitions))
