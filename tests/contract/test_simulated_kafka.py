"""One script against Kafka and the simulated one: what that one does about transactions and groups is what a broker does."""

import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from tests.simulation import kafka_consumer, kafka_producer, kafka_writer
from tests.simulation.kafka_broker import Broker
from tests.simulation.scheduler import Process, Scheduler
from tests.simulation.world import begin

_names = itertools.count(1)


class Real:
    """A broker of infra/local."""

    def __init__(self, bootstrap: str, topic: Callable[..., str]) -> None:
        self._bootstrap = bootstrap
        self.topic = topic
        self.now = time.monotonic

    def run(self, script: Callable[["Any"], None]) -> None:
        script(self)

    def producer(self, name: str, seconds: float = 60.0) -> Any:
        return confluent_kafka.Producer(self._common() | _producing(name, seconds))

    def writer(self) -> Any:
        return confluent_kafka.Producer(self._common() | {"enable.idempotence": True})

    def consumer(self, group: str, instance: str = "") -> Any:
        return confluent_kafka.Consumer(self._common() | _consuming(group, instance))

    def _common(self) -> dict[str, Any]:
        return {"bootstrap.servers": self._bootstrap, "log_level": 0, "error_cb": lambda _error: None}


class Simulated:
    """The simulated one: the script is a task."""

    def __init__(self) -> None:
        self._scheduler = Scheduler(1)
        begin(self._scheduler)
        self._broker = Broker(self._scheduler)
        for client in (kafka_producer.Producer, kafka_consumer.Consumer, kafka_writer.RecordProducer):
            client.broker = self._broker  # type: ignore[attr-defined]
        kafka_producer.Producer.hang = staticmethod(lambda _what: 0.0)
        self.now = self._scheduler.monotonic

    def run(self, script: Callable[[Any], None]) -> None:
        task = self._scheduler.spawn(Process("test"), "script", lambda: script(self))
        self._scheduler.run(lambda: task.done, 300)
        self._scheduler.end()
        if task.failure is not None:
            raise task.failure
        assert task.done

    def topic(self, partitions: int = 1) -> str:
        name = f"t{next(_names)}"
        self._broker.make(name, partitions)
        return name

    def producer(self, name: str, seconds: float = 60.0) -> Any:
        return kafka_producer.Producer(_producing(name, seconds))

    def writer(self) -> Any:
        return kafka_writer.producer({"enable.idempotence": True})

    def consumer(self, group: str, instance: str = "") -> Any:
        return kafka_consumer.Consumer(_consuming(group, instance))


def _producing(name: str, seconds: float) -> dict[str, Any]:
    return {"transactional.id": name, "transaction.timeout.ms": int(seconds * 1000), "retry.backoff.ms": 5}


def _consuming(group: str, instance: str) -> dict[str, Any]:
    return {
        "group.id": group,
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "enable.partition.eof": True,
        "partition.assignment.strategy": "cooperative-sticky",
        "session.timeout.ms": 6000,
        "heartbeat.interval.ms": 300,
    } | ({"group.instance.id": instance} if instance else {})


@pytest.fixture(params=["simulated", "real"])
def world(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Yield what the script runs against."""
    if request.param == "real":
        yield Real(request.getfixturevalue("kafka").bootstrap, request.getfixturevalue("topic"))
    else:
        yield Simulated()


class Member:
    """A member of a group, and what its callbacks said."""

    def __init__(self, world: Any, group: str, topic: str, instance: str = "") -> None:
        self.consumer = world.consumer(group, instance)
        self.owned: set[int] = set()
        self.problem: Any = None
        self.consumer.subscribe([topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked)

    def _assigned(self, consumer: Any, partitions: list[Any]) -> None:
        self.owned |= {each.partition for each in partitions}
        consumer.incremental_assign(partitions)
        if partitions:
            consumer.pause(partitions)

    def _revoked(self, consumer: Any, partitions: list[Any]) -> None:
        self.owned -= {each.partition for each in partitions}
        consumer.incremental_unassign(partitions)

    def poll(self) -> None:
        event = self.consumer.poll(0.05)
        if event is not None and event.error() is not None and event.error().code() != KafkaError._PARTITION_EOF:
            self.problem = event.error()


def _until(world: Any, members: list[Member], holds: Callable[[], bool]) -> None:
    deadline = world.now() + 60
    while not holds():
        assert world.now() < deadline
        for member in members:
            member.poll()


def _refused(call: Callable[[], object]) -> Any:
    with pytest.raises(KafkaException) as raised:
        call()
    return raised.value.args[0]


def _position(topic: str, offset: int, text: str = "") -> list[Any]:
    return [TopicPartition(topic, 0, offset, metadata=text)]


def _read(world: Any, topic: str) -> list[bytes]:
    consumer = world.consumer(f"reader{next(_names)}")
    consumer.assign([TopicPartition(topic, 0, 0)])
    results: list[bytes] = []
    deadline = world.now() + 30
    while world.now() < deadline:
        for record in consumer.consume(100, timeout=0.2):
            if record.error():
                assert record.error().code() == KafkaError._PARTITION_EOF
                consumer.close()
                return results
            results.append(record.value())
    raise AssertionError("the end of the partition was not reached")


def _await(world: Any, topic: str, wanted: list[bytes]) -> None:
    """A commit returns before its markers are written."""
    deadline = world.now() + 60
    while (result := _read(world, topic)) != wanted:
        assert world.now() < deadline, result


def test_a_commit_under_a_former_generation_is_refused_and_can_be_aborted(world: Any) -> None:
    def script(world: Any) -> None:
        topic, group = world.topic(2), f"g{next(_names)}"
        first = Member(world, group, topic)
        _until(world, [first], lambda: first.owned == {0, 1})
        former = first.consumer.consumer_group_metadata()
        second = Member(world, group, topic)
        _until(world, [first, second], lambda: len(first.owned) == len(second.owned) == 1)
        producer = world.producer(f"p{next(_names)}")
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce(topic, b"refused", partition=0)
        producer.flush(30)
        error = _refused(lambda: producer.send_offsets_to_transaction(_position(topic, 1), former, 30))
        assert error.code() == KafkaError.ILLEGAL_GENERATION
        assert error.txn_requires_abort()
        assert not error.fatal()
        producer.abort_transaction(30)
        producer.begin_transaction()
        producer.produce(topic, b"taken", partition=0)
        producer.send_offsets_to_transaction(_position(topic, 4, "text"), first.consumer.consumer_group_metadata(), 30)
        producer.commit_transaction(30)
        (committed,) = first.consumer.committed(_position(topic, 0), timeout=30)
        assert (committed.offset, committed.metadata) == (4, "text")
        _await(world, topic, [b"taken"])
        gone = second.consumer.consumer_group_metadata()
        second.consumer.close()
        producer.begin_transaction()
        error = _refused(lambda: producer.send_offsets_to_transaction(_position(topic, 9), gone, 30))
        assert error.code() in {KafkaError.UNKNOWN_MEMBER_ID, KafkaError.ILLEGAL_GENERATION}
        assert error.txn_requires_abort()
        producer.abort_transaction(30)
        first.consumer.close()

    world.run(script)


def test_without_generation_and_member_nothing_is_checked(world: Any) -> None:
    def script(world: Any) -> None:
        topic, group = world.topic(1), f"g{next(_names)}"
        member = Member(world, group, topic)
        _until(world, [member], lambda: member.owned == {0})
        nobody = world.consumer(group)
        producer = world.producer(f"p{next(_names)}")
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.send_offsets_to_transaction(_position(topic, 3), nobody.consumer_group_metadata(), 30)
        producer.commit_transaction(30)
        (committed,) = member.consumer.committed(_position(topic, 0), timeout=30)
        assert committed.offset == 3
        nobody.close()
        member.consumer.close()

    world.run(script)


def test_who_initialises_an_id_aborts_its_transaction_and_fences_its_producer(world: Any) -> None:
    def script(world: Any) -> None:
        topic, group, name = world.topic(1), f"g{next(_names)}", f"p{next(_names)}"
        nobody = world.consumer(group)
        former = world.producer(name)
        former.init_transactions(30)
        former.begin_transaction()
        former.produce(topic, b"former", partition=0)
        former.flush(30)
        former.send_offsets_to_transaction(_position(topic, 1), nobody.consumer_group_metadata(), 30)
        # While the transaction is open nobody reads a position that it may change.
        error = _refused(lambda: nobody.committed(_position(topic, 0), timeout=1))
        assert error.code() in {KafkaError._TIMED_OUT, KafkaError.UNSTABLE_OFFSET_COMMIT}
        successor = world.producer(name)
        successor.init_transactions(30)
        (committed,) = nobody.committed(_position(topic, 0), timeout=30)
        assert committed.offset < 0
        error = _refused(lambda: former.commit_transaction(30))
        assert error.fatal()
        assert error.code() in {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH}
        successor.begin_transaction()
        successor.produce(topic, b"successor", partition=0)
        successor.commit_transaction(30)
        _await(world, topic, [b"successor"])
        nobody.close()

    world.run(script)


def test_the_broker_aborts_what_is_open_for_too_long(world: Any) -> None:
    def script(world: Any) -> None:
        topic = world.topic(1)
        first, slow, quick = (world.producer(f"p{next(_names)}", *limit) for limit in ((), (1.0,), ()))
        for producer in (first, slow, quick):
            producer.init_transactions(30)

        def write(producer: Any, value: bytes) -> None:
            producer.begin_transaction()
            producer.produce(topic, value, partition=0)
            producer.flush(30)

        write(first, b"first")
        write(quick, b"second")
        quick.commit_transaction(30)
        # The open one holds back what comes after it.
        assert _read(world, topic) == []
        first.abort_transaction(30)
        _await(world, topic, [b"second"])
        # So does the next, until the broker aborts it.
        write(slow, b"slow")
        write(quick, b"third")
        quick.commit_transaction(30)
        _await(world, topic, [b"second", b"third"])
        error = _refused(lambda: slow.commit_transaction(30))
        assert error.fatal() or error.txn_requires_abort()

    world.run(script)


def test_a_static_member_comes_back_without_a_rebalance_and_fences_its_former_self(world: Any) -> None:
    def script(world: Any) -> None:
        topic, group = world.topic(2), f"g{next(_names)}"
        first, other = Member(world, group, topic, "one"), Member(world, group, topic, "two")
        _until(world, [first, other], lambda: len(first.owned) == len(other.owned) == 1)
        before = first.consumer.consumer_group_metadata()
        again = Member(world, group, topic, "one")
        _until(world, [again, other], lambda: again.owned == first.owned)
        assert len(other.owned) == 1
        _until(world, [first, again, other], lambda: first.problem is not None)
        assert first.problem.code() in {KafkaError.FENCED_INSTANCE_ID, KafkaError._FATAL}
        producer = world.producer(f"p{next(_names)}")
        producer.init_transactions(30)
        producer.begin_transaction()
        error = _refused(lambda: producer.send_offsets_to_transaction(_position(topic, 1), before, 30))
        assert error.code() == KafkaError.FENCED_INSTANCE_ID
        producer.abort_transaction(30)
        for member in (first, again, other):
            member.consumer.close()

    world.run(script)


class Reader(Member):
    """A member that reads what it has."""

    def __init__(self, world: Any, group: str, topic: str) -> None:
        self.came: list[Any] = []
        super().__init__(world, group, topic)

    def _assigned(self, consumer: Any, partitions: list[Any]) -> None:
        self.owned |= {each.partition for each in partitions}
        consumer.incremental_assign(partitions)

    def poll(self) -> None:
        event = self.consumer.poll(0.05)
        if event is None:
            return
        if event.error() is None:
            self.came.append((event.offset(), event.key(), event.value(), event.headers(), event.timestamp()[0]))
        elif event.error().code() == KafkaError._PARTITION_EOF:
            self.came.append(event.offset())
        else:
            self.problem = event.error()


def test_a_member_reads_from_what_its_group_committed_and_learns_where_partitions_end(world: Any) -> None:
    def script(world: Any) -> None:
        topic, group, reports = world.topic(1), f"g{next(_names)}", []
        writer = world.writer()
        for number in range(4):
            headers = [("name", b"%d" % number)] if number else None
            writer.produce(
                topic,
                b"v%d" % number,
                b"k",
                headers=headers,
                on_delivery=lambda error, at: reports.append((error, at.offset())),
            )
        assert writer.flush(30) == 0
        assert reports == [(None, number) for number in range(4)]

        records = [(n, b"k", b"v%d" % n, [("name", b"%d" % n)] if n else None, 1) for n in range(4)]
        first = Reader(world, group, topic)
        _until(world, [first], lambda: first.came == [*records, 4])
        # Paused, it reads nothing, not even what came meanwhile.
        first.consumer.pause([TopicPartition(topic, 0)])
        writer.produce(topic, b"v4", b"k")
        assert writer.flush(30) == 0
        until = world.now() + 1
        while world.now() < until:
            first.poll()
        assert len(first.came) == 5
        first.consumer.resume([TopicPartition(topic, 0)])
        _until(world, [first], lambda: first.came[5:] == [(4, b"k", b"v4", None, 1), 5])
        first.consumer.commit(offsets=_position(topic, 2), asynchronous=False)
        first.consumer.close()

        second = Reader(world, group, topic)
        _until(world, [second], lambda: len(second.came) >= 4)
        assert second.came == [*records[2:], (4, b"k", b"v4", None, 1), 5]
        assert second.consumer.committed(_position(topic, -1001), timeout=30)[0].offset == 2
        assert second.problem is None
        second.consumer.close()

    world.run(script)
