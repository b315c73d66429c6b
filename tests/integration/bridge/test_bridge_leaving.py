"""A bridge that ends while its group assigns to it what another one has just left, or while Kafka does not answer."""

import os
import signal
import time

import pytest
from confluent_kafka.admin import NewTopic

from bridge.deliveries.record import TopicReader
from bridge.group.client import KafkaMember
from bridge.kafka.client import TopicPartition, admin
from bridge.kafka.entries import commit_offsets, reading
from headrace.configuration.kafka import KafkaConnection
from headrace.errors import NotConnected
from tests.amqp.branch import Branch
from tests.integration.requests.deliveries import is_all_committed, produce, section
from tests.rules.waiting import eventually

pytest_plugins = ["tests.bridge.fix_bridge"]


def test_a_bridge_that_is_assigned_a_source_while_it_ends_takes_nothing_on(kafka, topic):
    # Given two members of a group, one of which has the only partition.
    name = topic()
    connection = KafkaConnection(bootstrap=kafka.bootstrap)
    group, assigned = f"leaving.{name}", {"first": 0, "second": 0}

    def joined(instance):
        kafka_member = KafkaMember(connection, admin(connection), group, instance, 6.0)

        def on_assigned(partitions):
            # What the bridge does in this callback; a client that is closed refuses it.
            kafka_member.metadata()
            assigned[instance] += len(partitions)

        kafka_member.join({name}, on_assigned, lambda _: None, lambda _: None)
        return kafka_member

    first, second = joined("first"), joined("second")

    def both():
        first.poll(0.05)
        second.poll(0.05)
        return sum(assigned.values()) == 1 and first.metadata() and second.metadata()

    eventually(both, saying="both are members")
    owner, other = (first, second) if assigned["first"] else (second, first)

    # When the owner leaves, and the other is assigned the partition, and ends before it has heard of that.
    owner.close(leave=True)
    eventually(lambda: other.unassigned({(name, 0)}) == set(), saying="the group has assigned it to the other one")
    other.close(leave=False)

    # Then it ends without an error, and has taken nothing on.
    assert sum(assigned.values()) == 1


def test_a_delivery_that_is_assigned_a_partition_while_it_ends_takes_nothing_on(kafka, topic):
    # Given two readers of a delivery's topic, which share its partitions.
    name = topic(partitions=2)
    connection = KafkaConnection(bootstrap=kafka.bootstrap)
    group, held = f"delivery.{name}", {"first": set(), "second": set()}

    def joined(reader):
        return TopicReader(
            connection,
            group,
            name,
            6.0,
            assigned=held[reader].add,
            revoked=lambda partition, _lost: held[reader].discard(partition),
        )

    first, second = joined("first"), joined("second")

    def shared():
        for reader in (first, second):
            list(reader.read(10, 0.05))
        return len(held["first"]) == len(held["second"]) == 1

    eventually(shared, saying="both have one partition")

    # When one leaves, and the other ends without having heard of what it is assigned for that.
    first.close()
    kept = set(held["second"])
    coordinator = admin(connection)

    def all_assigned():
        result = coordinator.describe_consumer_groups([group])[group].result()
        return [len(each.assignment.topic_partitions) for each in result.members] == [2]

    eventually(all_assigned, saying="the group has assigned both to the other one")
    assert held == {"first": set(), "second": kept}
    second.close()

    # Then it has given up what it had and has taken nothing on.
    assert held == {"first": set(), "second": set()}


@pytest.mark.parametrize(
    "state", ["frozen", *(pytest.param(state, marks=pytest.mark.long) for state in ("frozen and idle", "gone"))]
)
def test_a_bridge_whose_kafka_does_not_answer_ends_within_seconds(private_kafka, outside, state):
    """A supervisor kills what has not ended in time: 30 s with Kubernetes."""
    # Given a bridge that serves a source and has delivered what there is.
    kafka = private_kafka()
    names = ["cdc", "alerts", "alerts.dead-letters", "requests", "answers"]
    client = admin(KafkaConnection(bootstrap=kafka.bootstrap))
    for each in client.create_topics([NewTopic(name, 1, 1) for name in names]).values():
        each.result(60)
    more = section("alerts") + '\n[requests]\ntopic = "requests"\nanswers_topic = "answers"\n'
    bridge = outside(kafka.bootstrap, {"jakarta/bank": [0]}, topic="cdc", more=more)
    produce(kafka.bootstrap, "alerts", [(b"jakarta/1", number) for number in range(20)])
    branch = Branch(f"amqp://127.0.0.1:{bridge.port}", "alerts/jakarta")
    try:
        eventually(lambda: len(set(branch.accepted())) == 20, saying="all is delivered")
        if state == "frozen and idle":
            group = "headrace.cdc.deliveries.alerts"
            eventually(lambda: is_all_committed(kafka.bootstrap, group, "alerts"), saying="all is committed")
        # When its broker hangs, or dies, with something accepted that is not committed.
        os.kill(kafka.pid, signal.SIGKILL if state == "gone" else signal.SIGSTOP)
        began = time.monotonic()
        code = bridge.terminate()
    finally:
        branch.close()
        if state != "gone":
            os.kill(kafka.pid, signal.SIGCONT)

    # Then it ends all the same.
    assert code == 0
    assert time.monotonic() - began < 30


def test_a_delivery_whose_commit_is_on_its_way_ends_within_seconds_while_kafka_hangs(private_kafka):
    """Kafka's client waits for the answer when it is closed: a bridge that was stopped then did not end for a minute."""
    kafka = private_kafka()
    connection, held = KafkaConnection(bootstrap=kafka.bootstrap), set()
    client = admin(connection)
    client.create_topics([NewTopic("alerts", 1, 1)])["alerts"].result(60)
    reader = TopicReader(
        connection,
        "delivery",
        "alerts",
        6.0,
        assigned=held.add,
        revoked=lambda partition, _lost: held.discard(partition),
    )
    eventually(lambda: list(reader.read(10, 0.05)) and held, saying="it has its partition")
    os.kill(kafka.pid, signal.SIGSTOP)
    try:
        reader.commit({0: 0}, wait=False)
        began = time.monotonic()
        reader.close()
        took = time.monotonic() - began
    finally:
        os.kill(kafka.pid, signal.SIGCONT)
    assert took < 20
    assert held == set()


def test_a_commit_of_positions_is_given_up_while_kafka_hangs_and_can_be_done_again(private_kafka):
    """`headrace bridge move`, `forget` and `import`, and taking over from a former release, commit so."""
    kafka = private_kafka()
    connection = KafkaConnection(bootstrap=kafka.bootstrap)
    client = admin(connection)
    client.create_topics([NewTopic("cdc", 1, 1)])["cdc"].result(60)
    offsets = [TopicPartition("cdc", 0, 7, metadata="here")]
    os.kill(kafka.pid, signal.SIGSTOP)
    try:
        with pytest.raises(NotConnected, match="no answer to a commit of positions of group moved"):
            commit_offsets(connection, "moved", offsets, seconds=1)
    finally:
        os.kill(kafka.pid, signal.SIGCONT)
    for _ in range(2):
        commit_offsets(connection, "moved", offsets)
    with reading(connection, "moved") as reader:
        (offset,) = reader.committed([TopicPartition("cdc", 0)], timeout=30)
    assert (offset.offset, offset.metadata) == (7, "here")
