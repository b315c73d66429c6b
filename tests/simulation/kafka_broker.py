"""A simulated Kafka: topics, coordinators, and the way that requests take to them and answers back.

A request arrives after a while, in order for each client, and is done whether or not its client still waits. Faults: requests
and answers lost (the client sends again, as librdkafka does), a broker that is frozen and does later what it was asked
meanwhile, and one that is down.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from tests.simulation.kafka_group import Group
from tests.simulation.kafka_log import PartitionLog
from tests.simulation.kafka_transactions import TransactionCoordinator
from tests.simulation.scheduler import Process, Scheduler, Task

#: Which part of a cluster answers what; each may be another broker.
_PARTS = {
    "InitProducerId": "transactions",
    "AddPartitionsToTxn": "transactions",
    "AddOffsetsToTxn": "transactions",
    "EndTxn": "transactions",
    "TxnOffsetCommit": "group",
    "OffsetFetch": "group",
    "OffsetCommit": "group",
    "JoinGroup": "group",
    "Heartbeat": "group",
    "LeaveGroup": "group",
}
#: Of these a member asks again by itself.
_MEMBERSHIP = frozenset({"JoinGroup", "Heartbeat", "LeaveGroup"})
PARTS = ("transactions", "group", "leaders")
#: What a client asks again after a moment.
RETRIED = frozenset(
    {
        KafkaError.CONCURRENT_TRANSACTIONS,
        KafkaError.UNSTABLE_OFFSET_COMMIT,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.NOT_COORDINATOR,
    }
)


class Broker:
    """One cluster; it looks like one broker."""

    def __init__(
        self, scheduler: Scheduler, *, initial_rebalance_delay: float = 0.0, look_seconds: float = 10.0
    ) -> None:
        self.scheduler = scheduler
        self.topics: dict[str, list[PartitionLog]] = {}
        self.settings: dict[str, dict[str, str]] = {}
        self.groups: dict[str, Group] = {}
        self._delay = initial_rebalance_delay
        self.transactions = TransactionCoordinator(scheduler, self.partition, self.group, look_seconds=look_seconds)
        #: How long a request or an answer takes, in seconds; how likely one is lost.
        self.latency = (0.0002, 0.004)
        self.loss = 0.0
        #: Nothing is answered before this time; down, it is not even taken.
        self.still_until = dict.fromkeys(PARTS, 0.0)
        #: What happens to the next request of a kind: its process is frozen, or it is late, for so many seconds.
        self.traps: dict[str, tuple[str, float]] = {}
        self.down_until = 0.0
        #: A coordinator is another broker's before this time, and the one that is asked says so.
        self.moved_until = dict.fromkeys(("transactions", "group"), 0.0)
        #: Returns for how long a client hangs at a call, whatever its timeout.
        self.hang: Callable[[str], float] = lambda _client: 0.0
        self.requests = 0
        #: Partitions that have no leader before some time.
        self.leaderless_until: dict[tuple[str, int], float] = {}

    def has_leader(self, at: tuple[str, int]) -> bool:
        """Whether a partition can be read and written now."""
        return self.scheduler.now >= self.leaderless_until.get(at, 0.0)

    def make(self, topic: str, partitions: int, **settings: str) -> None:
        """Make a topic."""
        self.topics[topic] = [PartitionLog() for _ in range(partitions)]
        self.settings[topic] = {"max.message.bytes": "1048588", "cleanup.policy": "delete"} | settings

    def delete(self, topic: str) -> None:
        """Delete a topic, and what groups have committed in it."""
        del self.topics[topic], self.settings[topic]
        for group in self.groups.values():
            group.offsets = {at: each for at, each in group.offsets.items() if at[0] != topic}

    def partition(self, at: tuple[str, int]) -> PartitionLog | None:
        """Return a partition's log, None when it is not there."""
        logs = self.topics.get(at[0], [])
        return logs[at[1]] if at[1] < len(logs) else None

    def group(self, name: str) -> Group:
        """Return a group, new if need be."""
        if name not in self.groups:
            self.groups[name] = Group(name, self.scheduler, self._partitions, self._delay)
        return self.groups[name]

    def _partitions(self, topics: Iterable[str]) -> list[tuple[str, int]]:
        return [(topic, number) for topic in sorted(topics) for number in range(len(self.topics.get(topic, [])))]

    def stand_still(self, parts: Iterable[str], seconds: float) -> None:
        """Have parts of the cluster answer nothing for some seconds."""
        for part in parts:
            self.still_until[part] = max(self.still_until[part], self.scheduler.now + seconds)

    def travel(self) -> float:
        """Return how long the next message between a client and the broker takes."""
        least, most = self.latency
        return least + (most - least) * self.scheduler.random.random() ** 3

    def lost(self) -> bool:
        """Whether the next message is lost."""
        return bool(self.loss) and self.scheduler.random.random() < self.loss


class Answer:
    """What a client waits for."""

    def __init__(self) -> None:
        self.waiters: deque[Task] = deque()
        self.value: Any = None
        self.is_there = False


class Channel:
    """One client's connection to the broker: what it asks arrives in order."""

    def __init__(self, broker: Broker, name: str) -> None:
        self.broker = broker
        self.name = name
        self.scheduler = broker.scheduler
        self.process: Process = self.scheduler.current.process if self.scheduler.current else self.scheduler.outside
        self._newest = 0.0

    def send(
        self,
        what: str,
        apply: Callable[[], Any],
        answered: Callable[[Any], None],
        failed: Callable[[], None] = lambda: None,
    ) -> None:
        """Send a request; `answered` is called with what `apply` returned at the broker, `failed` when something is lost."""
        broker, scheduler = self.broker, self.scheduler
        broker.requests += 1
        lost, unanswered = broker.lost(), broker.lost()
        part = _PARTS.get(what, "leaders")
        trap, seconds = broker.traps.pop(what.split(" ", 1)[0], ("", 0.0))
        if trap:
            scheduler.trace(f"{self.name}: {trap} of {seconds} s at {what}")
        if trap == "pause":
            self.process.paused_until = scheduler.now + seconds
        self._newest = max(self._newest, scheduler.now + broker.travel() + (seconds if trap == "delay" else 0.0))

        def arrive() -> None:
            now = scheduler.now
            if now < broker.down_until:
                scheduler.after(0.1, failed)
                return
            if now < broker.still_until[part]:
                # In the order in which they came.
                scheduler.after(broker.still_until[part] - now, arrive)
                return
            if now < broker.moved_until.get(part, 0.0):
                if what in _MEMBERSHIP:
                    scheduler.after(0.1, failed)
                else:
                    scheduler.after(broker.travel(), lambda: answered(KafkaError.NOT_COORDINATOR))
                return
            value = apply()
            if unanswered:
                scheduler.trace(f"{self.name}: the answer to {what} is lost")
                scheduler.after(0.1, failed)
                return
            scheduler.after(broker.travel(), lambda: answered(value))

        if lost:
            scheduler.trace(f"{self.name}: {what} is lost")
            scheduler.after(0.1, failed)
        else:
            scheduler.after(self._newest - scheduler.now, arrive)

    def hang(self, what: str) -> None:
        """Hang at a call, if clients do now."""
        if seconds := self.broker.hang(self.name):
            self.scheduler.trace(f"{self.name}: {what} hangs for {seconds:.0f} s")
            self.scheduler.sleep(seconds)

    def ask(self, what: str, apply: Callable[[], Any], seconds: float, *, retried: frozenset[int] = RETRIED) -> Any:
        """Ask, from a task, until there is an answer that is not to be asked for again; raise _TIMED_OUT when time is up.

        An int below or above 0 is an error's number and raised, but for those that are asked again.
        """
        scheduler = self.scheduler
        scheduler.check()
        self.hang(what)
        until = scheduler.now + seconds
        pause = 0.005
        while True:
            answer = Answer()

            def answered(value: Any, answer: Answer = answer) -> None:
                answer.value, answer.is_there = value, True
                scheduler.wake(answer.waiters)

            # A lost connection is noticed soon; a frozen broker only when the time is up.
            self.send(what, apply, answered, lambda answer=answer: scheduler.wake(answer.waiters))  # type: ignore[misc]
            scheduler.wait(answer.waiters, max(0.0, until - scheduler.now))
            if answer.is_there:
                value = answer.value
                if not isinstance(value, int) or isinstance(value, bool) or value == 0:
                    return value
                if value not in retried:
                    return value
            if scheduler.now >= until:
                raise KafkaException(failure(KafkaError._TIMED_OUT, f"{what} timed out", retriable=True))
            scheduler.sleep(min(pause, max(0.0, until - scheduler.now)))
            pause = min(pause * 2, 0.1)


def failure(code: int, reason: str = "", *, retriable: bool = False, abort: bool = False, fatal: bool = False) -> Any:
    """Return an error of the client's."""
    return KafkaError(code, reason or None, fatal=fatal, retriable=retriable, txn_requires_abort=abort)
