"""Who has a source: the newest link of an edge; of bridges the one that the group assigns it to; and what outlasts restarts."""

import os
import signal

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from headrace.errors import NeedsOperator
from tests.amqp.edge_double import Edge, Sender, message, send
from tests.edge.source_log import cut, log
from tests.kafka.reading import values
from tests.rules.waiting import eventually

pytest_plugins = ["tests.bridge.fix_bridge", "tests.servers.fix_proxy"]


def test_the_newest_link_of_a_source_wins_and_the_former_is_closed(kafka, topic, inside):
    name, source = topic(), "twice/bank"
    rows = log(source, 40)
    first, two = cut(source, rows, lambda: 20)
    bridge = inside(kafka.bootstrap, {source: [0]}, topic=name)
    former = Sender(bridge.port, f"cdc/{source}", [message(first)])
    assert former.all()[0].state == "accepted"
    # when a second edge attaches, as after a half-open connection
    assert send(bridge.port, f"cdc/{source}", [message(two)])[0].state == "accepted"
    # then
    assert former.wait(lambda it: it.closed is not None)
    assert former.closed.condition == "amqp:link:stolen"
    former.close()
    assert values(kafka.bootstrap, name) == [row.value for row in rows]


@pytest.mark.long
def test_of_two_processes_with_one_instance_name_the_former_ends_and_names_it(kafka, topic, inside):
    name, source = topic(), "fought-for/bank"
    rows = log(source, 600)
    one, *_ = cut(source, rows, lambda: 200)
    first = inside(kafka.bootstrap, {source: [0]}, topic=name, instance="the-only-one")
    first.expected = True
    assert send(first.port, f"cdc/{source}", [message(one)])[0].state == "accepted"
    # when
    second = inside(kafka.bootstrap, {source: [0]}, topic=name, instance="the-only-one")
    # then the first one ends, and the second serves all that the first one had
    assert first.join(60)
    assert isinstance(first.error, NeedsOperator)
    assert "instance 'the-only-one'" in str(first.error)
    edge = Edge(second.port, source, rows, sizes=lambda: 33)
    edge.start()
    edge.finish()
    assert values(kafka.bootstrap, name) == [row.value for row in rows]


def test_a_bridge_that_ends_hands_its_sources_over_at_once(kafka, topic, inside):
    name, names = topic(partitions=4), [f"handed/bank{number}" for number in range(4)]
    sources = {source: [number] for number, source in enumerate(names)}
    first = inside(kafka.bootstrap, sources, topic=name, sharing=f"group-{name}", session_seconds=60)
    for source in names:
        first.serves(source)
    second = inside(kafka.bootstrap, sources, topic=name, sharing=f"group-{name}", session_seconds=60)

    def served(bridge):
        return [source for source in names if bridge.figures(source)["state"] == "serving"]

    eventually(lambda: (len(served(first)), len(served(second))) == (2, 2), saying="each serves its half")
    # when one is stopped, then the other has all, long before the session ends: after 0.4 s on a machine at rest
    first.stop()
    eventually(lambda: len(served(second)) == 4, 30, saying="the other one serves all")


def test_a_bridge_that_is_started_again_with_another_source_in_its_file_serves_it(kafka, topic, inside):
    # Kafka gives a static member that returns its former assignment, which knows nothing of a partition that was added since.
    name, one, two = topic(), "grown/one", "grown/two"
    first = inside(kafka.bootstrap, {one: [0]}, topic=name)
    first.serves(one)
    first.stop()
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    admin.create_partitions([NewPartitions(name, 2)])[name].result(60)
    # when
    second = inside(kafka.bootstrap, {one: [0], two: [1]}, topic=name)
    second.serves(one)
    second.serves(two)
    assert send(second.port, f"cdc/{two}", [message(cut(two, log(two, 20), lambda: 20)[0])])[0].state == "accepted"


def test_a_bridge_started_again_while_the_broker_stands_still_serves_when_it_goes_on_e7(private_kafka, outside):
    kafka, source = private_kafka(), "still/bank"
    make_topic(kafka, "bank")
    rows = log(source, 6_000)
    bridge = outside(kafka.bootstrap, {source: [0]}, topic="bank")
    edge = Edge(bridge.port, source, rows, sizes=lambda: 40)
    edge.start()
    eventually(lambda: edge.accepted > 500)
    os.kill(kafka.pid, signal.SIGSTOP)
    try:
        # given a bridge that is killed while it waits for the broker, and one that waits in its place
        bridge.kill()
        second = outside(kafka.bootstrap, {source: [0]}, topic="bank")
        eventually(lambda: "does not answer" in second.said(), saying="the second one waits")
    finally:
        os.kill(kafka.pid, signal.SIGCONT)
    edge.port = second.port
    edge.finish()
    assert values(kafka.bootstrap, "bank") == [row.value for row in rows]
    assert second.terminate() == 0


def test_a_position_that_a_former_release_committed_is_taken_over_at_the_first_start(kafka, topic, inside):
    name, source = topic(), "former/bank"
    rows = log(source, 60)
    first, two, three = cut(source, rows, lambda: 20)
    # given what a former release wrote: a group for the source, with `POSITION TIME BRIDGE`
    former = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": f"headrace.{source}", "log_level": 0})
    text = f"{two.last} 2026-11-01T10:00:00.000Z host/17/0a1b2c3d"
    former.commit(offsets=[TopicPartition(name, 0, 40, metadata=text)], asynchronous=False)
    former.close()
    bridge = inside(kafka.bootstrap, {source: [0]}, topic=name)
    # then what is at or before it is a repeat, and the next link is taken
    states = [
        each.state for each in send(bridge.port, f"cdc/{source}", [message(each) for each in (first, two, three)])
    ]
    assert states == ["accepted"] * 3
    assert values(kafka.bootstrap, name) == [row.value for row in rows[40:]]
    # And a former bridge can do nothing more with what it wrote: it would continue from there, and double the rest.
    former = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": f"headrace.{source}", "log_level": 0})
    (entry,) = former.committed([TopicPartition(name, 0)], timeout=60)
    former.close()
    assert entry.metadata.startswith(f"2 {two.last} ")
    # From now on the position is in the group of bridges.
    bridge.stop()
    bridge = inside(kafka.bootstrap, {source: [0]}, topic=name)
    bridge.serves(source)
    assert bridge.figures(source)["position"] == str(three.last)


def test_a_transaction_that_another_producer_ended_is_done_again(kafka, topic, inside):
    name, source = topic(), "slow/bank"
    rows = log(source, 60)
    first, two, three = cut(source, rows, lambda: 20)
    bridge = inside(kafka.bootstrap, {source: [0]}, topic=name)
    assert send(bridge.port, f"cdc/{source}", [message(first)])[0].state == "accepted"
    # when the transactional ids of its lanes are initialised by somebody else, as when Kafka's time limit ends a transaction
    for number in range(2):
        fence(kafka, f"headrace.{name}.bridge.{number}")
    states = [outcome.state for outcome in send(bridge.port, f"cdc/{source}", [message(two)])]
    # then the bridge reads the position again by itself, be it that a lane noticed before
    assert states in (["released"], ["accepted"])
    bridge.serves(source)
    edge = Edge(bridge.port, source, rows, sizes=lambda: 20)
    edge.start()
    edge.finish()
    assert three.last
    assert values(kafka.bootstrap, name) == [row.value for row in rows]


def fence(kafka, transactional_id):
    from confluent_kafka import Producer  # noqa: PLC0415

    producer = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0, "transactional.id": transactional_id})
    producer.init_transactions(60)


def make_topic(kafka, name):
    from confluent_kafka.admin import AdminClient, NewTopic  # noqa: PLC0415

    admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(60)
