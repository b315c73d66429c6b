"""The bridge when something dies: itself, Kafka, the wire, or its hold on a source. Every row stands in Kafka once, in order."""

import os
import random
import signal

import psutil
import pytest

from headrace.configuration.kafka import KafkaConnection
from tests.edge_double import Edge, Sender, cut, log, message, send
from tests.kafka_reading import read_committed
from tests.waiting import eventually

pytest_plugins = ["tests.fix_bridge", "tests.fix_proxy"]

SEED = int(os.environ.get("HEADRACE_SEED", "11"))


def values(kafka, topic):
    return [record.value for record in read_committed(kafka.bootstrap, topic)]


def ended(edge, seconds=90):
    edge.join(seconds)
    assert edge.end == "done", edge.end


def test_a_bridge_killed_at_random_moments_loses_and_repeats_nothing(kafka, topic, outside):
    chance = random.Random(SEED)
    name, source = topic(), "killed/bank"
    rows = log(source, 12_000)
    bridge = outside(kafka.bootstrap, {source: [0]}, topic=name, port=0)
    edge = Edge(bridge.port, source, rows, sizes=lambda: chance.randint(1, 60))
    edge.start()
    for kill in range(3):
        # given that it has committed some more since the last time
        enough = edge.accepted + chance.randint(200, 3_000)
        eventually(
            lambda enough=enough: edge.accepted >= min(enough, len(rows)), seconds=90, saying=f"rows before kill {kill}"
        )
        # when
        bridge.kill()
        bridge = outside(kafka.bootstrap, {source: [0]}, topic=name, port=0)
        edge.port = bridge.port
    # then
    ended(edge)
    assert values(kafka, name) == [row.value for row in rows]
    assert bridge.terminate() == 0


def test_sigterm_finishes_what_is_open_and_ends_within_seconds(kafka, topic, outside):
    name, source = topic(), "stopped/bank"
    rows = log(source, 15_000)
    bridge = outside(kafka.bootstrap, {source: [0]}, topic=name)
    edge = Edge(bridge.port, source, rows, sizes=lambda: 50)
    edge.start()
    eventually(lambda: edge.accepted > 2_000)
    assert bridge.terminate(seconds=8) == 0
    # then nothing was accepted that is not in Kafka, and the next bridge goes on
    edge.stop()
    assert values(kafka, name)[: edge.accepted] == [row.value for row in rows[: edge.accepted]]
    edge = Edge(outside(kafka.bootstrap, {source: [0]}, topic=name).port, source, rows, sizes=lambda: 300)
    edge.start()
    ended(edge)
    assert values(kafka, name) == [row.value for row in rows]


def test_while_kafka_stands_still_memory_is_bounded_and_when_it_dies_nothing_is_lost_or_repeated(
    private_kafka, outside
):
    kafka, source = private_kafka(), "still/bank"
    bridge_topic(kafka, "bank")
    chance = random.Random(SEED)
    rows = log(source, 20_000, pad=2_000)
    bridge = outside(kafka.bootstrap, {source: [0]}, topic="bank", credit=64)
    edge = Edge(bridge.port, source, rows, sizes=lambda: chance.randint(100, 200), window=200)
    edge.start()
    eventually(lambda: edge.accepted > 1_000)
    # when the broker stops in the middle of it, then the edge sends what it has credit for, and no more
    os.kill(kafka.pid, signal.SIGSTOP)
    try:
        eventually(lambda: edge.link.unsettled == 64, saying="the credit is used up")
        megabytes = psutil.Process(bridge.pid).memory_info().rss / 2**20
    finally:
        os.kill(kafka.pid, signal.SIGCONT)
    assert megabytes < 150
    # when it goes on, and then dies and comes back
    before = edge.accepted
    eventually(lambda: edge.accepted > before)
    assert edge.accepted < len(rows)
    kafka.kill()
    eventually(lambda: "Trying again" in bridge.said(), saying="the bridge says that it waits for Kafka")
    kafka.start()
    # then
    ended(edge)
    assert values(kafka, "bank") == [row.value for row in rows]


def bridge_topic(kafka, name):
    from confluent_kafka.admin import AdminClient, NewTopic  # noqa: PLC0415

    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(30)


def test_a_wire_that_is_cut_again_and_again_loses_and_repeats_nothing(kafka, topic, inside, proxies):
    name, source = topic(), "cut/bank"
    rows = log(source, 20_000)
    bridge = inside(kafka.bootstrap, {source: [0]}, topic=name)
    wire = proxies("127.0.0.1", bridge.port)
    edge = Edge(wire.port, source, rows, sizes=lambda: 40)
    edge.start()
    for enough in range(2_000, 17_000, 3_000):
        eventually(lambda enough=enough: edge.accepted > enough)
        wire.cut()
    ended(edge)
    assert edge.went_back >= 5
    assert values(kafka, name) == [row.value for row in rows]


def test_the_newest_link_of_a_source_wins_and_the_former_is_told(kafka, topic, inside):
    name, source = topic(), "twice/bank"
    rows = log(source, 40)
    one, two = cut(source, rows, lambda: 20)
    bridge = inside(kafka.bootstrap, {source: [0]}, topic=name)
    former = Sender(bridge.port, f"cdc/{source}", [message(one)])
    assert former.all()[0].state == "accepted"
    # when a second edge attaches, as after a half-open connection
    assert send(bridge.port, f"cdc/{source}", [message(two)])[0].state == "accepted"
    # then
    assert former.wait(lambda it: it.closed is not None)
    assert former.closed.condition == "amqp:link:stolen"
    former.close()
    assert values(kafka, name) == [row.value for row in rows]


def test_of_two_bridges_the_newest_has_the_source_and_nothing_is_doubled(kafka, topic, inside):
    name, source = topic(), "fought-for/bank"
    rows = log(source, 600)
    one, two, *_ = cut(source, rows, lambda: 200)
    first = inside(kafka.bootstrap, {source: [0]}, topic=name)
    assert send(first.port, f"cdc/{source}", [message(one)])[0].state == "accepted"
    # when
    second = inside(kafka.bootstrap, {source: [0]}, topic=name)
    second.serves(source)
    (outcome,) = send(first.port, f"cdc/{source}", [message(two)])
    # then the first one takes nothing, says who has the source, sends the edge away, and stops
    assert outcome.state in {"released", "closed"}
    eventually(lambda: first.bridge.roster.running[source].taken_by == second.bridge.name)
    assert first.join(20)
    assert "other bridges have taken over all sources" in str(first.error)
    edge = Edge(second.port, source, rows, sizes=lambda: 33)
    edge.start()
    ended(edge)
    assert values(kafka, name) == [row.value for row in rows]


def test_an_edge_of_a_source_that_was_taken_over_is_told_where_it_is(kafka, topic, inside):
    name, source, other = topic(partitions=2), "moved/bank", "kept/bank"
    (batch,) = cut(source, log(source, 20), lambda: 20)
    first = inside(kafka.bootstrap, {source: [0], other: [1]}, topic=name)
    first.serves(source)
    second = inside(kafka.bootstrap, {source: [0]}, topic=name)
    second.serves(source)
    send(first.port, f"cdc/{source}", [message(batch)])
    eventually(lambda: first.figures(source)["state"] == "taken over")
    # then its link is refused, and the bridge goes on with its other source
    (outcome,) = send(first.port, f"cdc/{source}", [message(batch)])
    assert (outcome.condition, outcome.description) == (
        "amqp:resource-locked",
        f"{source} is served by bridge {second.bridge.name}",
    )
    (batch,) = cut(other, log(other, 20), lambda: 20)
    assert send(first.port, f"cdc/{other}", [message(batch)])[0].state == "accepted"


def test_a_bridge_that_slept_through_a_take_over_does_not_take_it_for_a_gap(kafka, topic, inside):
    name, source = topic(), "asleep/bank"
    one, two, three = cut(source, log(source, 60), lambda: 20)
    first = inside(kafka.bootstrap, {source: [0]}, topic=name)
    assert send(first.port, f"cdc/{source}", [message(one)])[0].state == "accepted"
    second = inside(kafka.bootstrap, {source: [0]}, topic=name)
    assert send(second.port, f"cdc/{source}", [message(two)])[0].state == "accepted"
    # when the edge comes back to the first one, which has written nothing since and so has met no fence
    for _ in range(2):
        send(first.port, f"cdc/{source}", [message(three)])
    # then
    eventually(lambda: first.bridge.roster.running[source].taken_by == second.bridge.name)


def test_a_transaction_that_kafka_gave_up_on_is_not_taken_for_another_bridge(kafka, topic, inside):
    name, source = topic(), "slow/bank"
    rows = log(source, 60)
    one, two, three = cut(source, rows, lambda: 20)
    bridge = inside(kafka.bootstrap, {source: [0]}, topic=name)
    assert send(bridge.port, f"cdc/{source}", [message(one)])[0].state == "accepted"
    # when the bridge's hold ends without anybody who says that the source is theirs, as when Kafka's time limit ends it
    fence(kafka, source)
    states = [outcome.state for outcome in send(bridge.port, f"cdc/{source}", [message(two)])]
    # then the bridge takes the source over again by itself
    assert states == ["released"]
    eventually(lambda: bridge.figures(source)["state"] == "serving")
    assert {outcome.state for outcome in send(bridge.port, f"cdc/{source}", [message(two), message(three)])} == {
        "accepted"
    }
    assert values(kafka, name) == [row.value for row in rows]


def fence(kafka, source):
    from confluent_kafka import Producer  # noqa: PLC0415

    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": f"headrace.{source}"})
    producer.init_transactions(20)


@pytest.mark.parametrize("records", [True, False], ids=["records are there", "records are gone too"])
def test_a_forgotten_group_is_read_back_from_the_records_or_left_to_an_operator(kafka, topic, inside, records, caplog):
    name, source = topic(), f"forgotten-{int(records)}/bank"
    rows = log(source, 60)
    one, two, three = cut(source, rows, lambda: 20)
    bridge = inside(kafka.bootstrap, {source: [0]}, topic=name)
    assert {outcome.state for outcome in send(bridge.port, f"cdc/{source}", [message(one), message(two)])} == {
        "accepted"
    }
    bridge.stop()
    # when
    forget(kafka, source, None if records else name)
    bridge = inside(kafka.bootstrap, {source: [0]}, topic=name)
    bridge.serves(source)
    # then
    outcomes = [outcome.state for outcome in send(bridge.port, f"cdc/{source}", [message(one), message(three)])]
    if records:
        assert outcomes == ["accepted", "accepted"]
        assert values(kafka, name) == [row.value for row in rows]
    else:
        # The first one starts the epoch, and so is the only one that can be taken.
        assert outcomes == ["accepted", "released"]
        assert [record for record in caplog.records if record.levelname == "ERROR"] == []


def test_an_edge_that_goes_on_after_everything_was_forgotten_waits_for_an_operator(kafka, topic, inside, caplog):
    name, source = topic(), "lost/bank"
    rows = log(source, 60)
    one, two, three = cut(source, rows, lambda: 20)
    bridge = inside(kafka.bootstrap, {source: [0]}, topic=name)
    send(bridge.port, f"cdc/{source}", [message(one), message(two)])
    bridge.stop()
    forget(kafka, source, name)
    bridge = inside(kafka.bootstrap, {source: [0]}, topic=name)
    bridge.serves(source)
    assert [outcome.state for outcome in send(bridge.port, f"cdc/{source}", [message(three)])] == ["released"]
    (said,) = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert str(two.last) in said
    assert values(kafka, name) == []


def forget(kafka, source, topic):
    """Delete the source's group, as Kafka does after its retention, and with `topic` the records as well."""
    from confluent_kafka import TopicPartition  # noqa: PLC0415
    from confluent_kafka.admin import AdminClient  # noqa: PLC0415

    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    group = f"headrace.{source}"
    admin.delete_consumer_groups([group])[group].result(20)
    if topic is not None:
        partition = TopicPartition(topic, 0, -1)
        admin.delete_records([partition])[partition].result(20)


def test_an_idle_source_commits_its_position_again_before_kafka_forgets_it(kafka, topic, inside):
    name, source = topic(), "idle/bank"
    (one,) = cut(source, log(source, 20), lambda: 20)
    bridge = inside(kafka.bootstrap, {source: [0]}, topic=name, options={"recommit_seconds": 0.5})
    assert send(bridge.port, f"cdc/{source}", [message(one)])[0].state == "accepted"
    before = committed(kafka, source, name)
    assert before.position == one.last
    eventually(lambda: committed(kafka, source, name).at > before.at)
    assert committed(kafka, source, name).position == one.last


def committed(kafka, source, topic):
    from bridge.positions import read_committed as read_position  # noqa: PLC0415
    from bridge.positions import reading  # noqa: PLC0415

    with reading(KafkaConnection(bootstrap=kafka.bootstrap), source) as client:
        return read_position(client, source, topic)
