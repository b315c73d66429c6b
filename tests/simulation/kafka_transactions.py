"""Kafka's transaction coordinator (KIP-98, KIP-360, KIP-447): transactional ids, epochs, fencing, timeouts, markers.

What a producer asks arrives here as a call and is answered with a value or a KafkaError's number. An end is decided at once
and its markers reach each partition, and the group's offsets, a little later and one by one, as a broker's do.
"""

from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError

from tests.simulation.kafka_group import Group
from tests.simulation.kafka_log import PartitionLog
from tests.simulation.scheduler import Scheduler


class Transaction:
    """What the coordinator knows of a transactional id."""

    def __init__(self, name: str, producer: int) -> None:
        self.name = name
        self.producer = producer
        self.epoch = -1
        #: `empty`, `ongoing`, `ending`.
        self.state = "empty"
        self.committed = False
        self.timeout = 60.0
        self.began_at = 0.0
        self.partitions: set[tuple[str, int]] = set()
        self.groups: set[str] = set()
        #: Markers that are still to be written.
        self.left = 0


class TransactionCoordinator:
    """All transactional ids of a cluster."""

    def __init__(
        self,
        scheduler: Scheduler,
        partition: Callable[[tuple[str, int]], PartitionLog | None],
        group: Callable[[str], Group],
        *,
        look_seconds: float = 10.0,
    ) -> None:
        self._scheduler = scheduler
        self._partition = partition
        self._group = group
        self._known: dict[str, Transaction] = {}
        #: How long a marker may take, in seconds.
        self.marker_seconds = 0.02
        self._look_seconds = look_seconds
        self.aborted_by_timeout = 0
        self.transactions = 0
        self._look()

    def init(self, name: str, timeout: float) -> tuple[int, int] | int:
        """InitProducerId: fence whoever has the id, and abort what it left open."""
        known = self._known.get(name)
        if known is None:
            known = self._known[name] = Transaction(name, 1000 + len(self._known))
        if known.state == "ongoing":
            self._scheduler.trace(f"init of {name} fences epoch {known.epoch} and aborts its transaction")
            known.epoch += 1
            self._end(known, commit=False)
        if known.state == "ending":
            return KafkaError.CONCURRENT_TRANSACTIONS
        known.epoch += 1
        known.timeout = timeout
        return known.producer, known.epoch

    def add_partitions(self, name: str, epoch: int, partitions: set[tuple[str, int]]) -> int:
        """AddPartitionsToTxn."""
        known, error = self._checked(name, epoch)
        if error:
            return error
        if any(self._partition(each) is None for each in partitions):
            return KafkaError.UNKNOWN_TOPIC_OR_PART
        self._begin(known)
        known.partitions |= partitions
        return 0

    def add_offsets(self, name: str, epoch: int, group: str) -> int:
        """AddOffsetsToTxn."""
        known, error = self._checked(name, epoch)
        if error:
            return error
        self._begin(known)
        known.groups.add(group)
        return 0

    def produce(self, name: str, epoch: int, at: tuple[str, int], records: list[Any]) -> int | tuple[int]:
        """Produce; return the offset of the first, or an error's number.

        The partition's leader asks the coordinator whether the transaction is open in it (KIP-890).
        """
        known = self._known[name]
        log = self._partition(at)
        if log is None:
            return KafkaError.UNKNOWN_TOPIC_OR_PART
        if epoch != known.epoch:
            return KafkaError.INVALID_PRODUCER_EPOCH
        if known.state != "ongoing" or at not in known.partitions:
            return KafkaError.INVALID_TXN_STATE
        first = log.end
        return (first,) if log.append(known.producer, epoch, records) else KafkaError.INVALID_PRODUCER_EPOCH

    def commit_offsets(self, name: str, epoch: int, group: str, member: Any, offsets: dict[Any, Any]) -> int:
        """TxnOffsetCommit, which the group's coordinator answers."""
        known = self._known[name]
        if epoch != known.epoch:
            return KafkaError.INVALID_PRODUCER_EPOCH
        if known.state != "ongoing" or group not in known.groups:
            return KafkaError.INVALID_TXN_STATE
        return self._group(group).commit_in_transaction(known.producer, member, offsets)

    def end(self, name: str, epoch: int, *, commit: bool) -> int:
        """EndTxn; asked again after a lost answer it is answered as before."""
        known = self._known.get(name)
        if known is None:
            return KafkaError.INVALID_PRODUCER_ID_MAPPING
        if epoch != known.epoch:
            return KafkaError.PRODUCER_FENCED
        if known.state == "ongoing":
            self._end(known, commit=commit)
            return 0
        if known.committed == commit:
            return KafkaError.CONCURRENT_TRANSACTIONS if known.state == "ending" else 0
        return KafkaError.INVALID_TXN_STATE

    def open(self) -> list[str]:
        """Return the ids whose transaction is not ended."""
        return [each.name for each in self._known.values() if each.state != "empty"]

    def _checked(self, name: str, epoch: int) -> tuple[Transaction, int]:
        known = self._known[name]
        if epoch != known.epoch:
            return known, KafkaError.PRODUCER_FENCED
        return known, KafkaError.CONCURRENT_TRANSACTIONS if known.state == "ending" else 0

    def _begin(self, known: Transaction) -> None:
        if known.state != "ongoing":
            known.state, known.began_at = "ongoing", self._scheduler.now
            known.partitions, known.groups = set(), set()

    def _end(self, known: Transaction, *, commit: bool) -> None:
        known.state, known.committed = "ending", commit
        self.transactions += 1
        steps: list[Callable[[], None]] = [
            lambda at=at: self._mark(known, at, commit) for at in sorted(known.partitions)
        ]
        steps += [
            lambda group=group: self._group(group).end_transaction(known.producer, commit=commit)
            for group in sorted(known.groups)
        ]
        known.left = len(steps)
        if not steps:
            known.state = "empty"
        for step in steps:
            self._scheduler.after(
                self._scheduler.random.random() * self.marker_seconds, lambda step=step: self._marked(known, step)
            )

    def _mark(self, known: Transaction, at: tuple[str, int], commit: bool) -> None:
        log = self._partition(at)
        if log is not None:
            log.mark(known.producer, known.epoch, commit=commit)

    def _marked(self, known: Transaction, step: Callable[[], None]) -> None:
        step()
        known.left -= 1
        if known.left == 0:
            known.state = "empty"

    def _look(self) -> None:
        """Abort what is open for too long, as a broker does every ten seconds; its producer is fenced by that."""
        for each in self._known.values():
            if each.state == "ongoing" and self._scheduler.now - each.began_at > each.timeout:
                self._scheduler.trace(f"the coordinator aborts {each.name}: open for too long")
                self.aborted_by_timeout += 1
                each.epoch += 1
                self._end(each, commit=False)
        self._scheduler.after(self._look_seconds, self._look)
