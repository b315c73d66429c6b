"""The bridge when something dies: itself, Kafka or the wire. Every row is in Kafka once, in order."""

import os
import random
import signal

import psutil
import pytest

from tests.amqp.edge_double import Edge
from tests.edge.source_log import log
from tests.hostile.lying_broker import LyingBroker, Partition
from tests.kafka.reading import values
from tests.rules.waiting import eventually
from tests.servers.volume import small_volume

pytest_plugins = ["tests.bridge.fix_bridge", "tests.servers.fix_proxy"]
SEED = int(os.environ.get("HEADRACE_SEED", "11"))


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
            lambda enough=enough: edge.accepted >= min(enough, len(rows)),
            seconds=180,
            saying=f"rows before kill {kill}",
        )
        # when
        bridge.kill()
        bridge = outside(kafka.bootstrap, {source: [0]}, topic=name, port=0)
        edge.port = bridge.port
    # then
    edge.finish()
    assert values(kafka.bootstrap, name) == [row.value for row in rows]
    assert bridge.terminate() == 0


def test_sigterm_finishes_what_is_open_and_ends_within_seconds(kafka, topic, outside):
    name, source = topic(), "stopped/bank"
    rows = log(source, 15_000)
    bridge = outside(kafka.bootstrap, {source: [0]}, topic=name)
    edge = Edge(bridge.port, source, rows, sizes=lambda: 50)
    edge.start()
    eventually(lambda: edge.accepted > 2_000)
    assert bridge.terminate() == 0
    # then nothing was accepted that is not in Kafka, and the next bridge goes on
    edge.stop()
    assert values(kafka.bootstrap, name)[: edge.accepted] == [row.value for row in rows[: edge.accepted]]
    edge = Edge(outside(kafka.bootstrap, {source: [0]}, topic=name).port, source, rows, sizes=lambda: 300)
    edge.start()
    edge.finish()
    assert values(kafka.bootstrap, name) == [row.value for row in rows]


@pytest.fixture
def volume(tmp_path_factory):
    with small_volume(tmp_path_factory.mktemp("volume"), 160) as made:
        yield made


@pytest.mark.long
def test_nothing_is_lost_or_repeated_while_kafka_stands_still_has_a_full_disk_dies_and_comes_back_at_another_address(
    volume, private_kafka, outside
):
    kafka, source = private_kafka(data=volume.path), "still/bank"
    bridge_topic(kafka, "bank")
    chance = random.Random(SEED)
    rows = log(source, 10_500, pad=2_000)
    bridge = outside(kafka.bootstrap, {source: [0]}, topic="bank", credit=32)
    edge = Edge(bridge.port, source, rows, sizes=lambda: chance.randint(100, 200), window=200)
    edge.upto = 2_000
    edge.start()
    eventually(lambda: edge.accepted > 1_000)
    # when the broker stops in the middle of it, then the edge sends what it has credit for, and no more
    os.kill(kafka.pid, signal.SIGSTOP)
    try:
        edge.upto = 8_500
        eventually(lambda: edge.link.unsettled == 32, saying="the credit is used up")
        megabytes = psutil.Process(bridge.pid).memory_info().rss / 2**20
    finally:
        os.kill(kafka.pid, signal.SIGCONT)
    assert megabytes < 150
    # when it goes on
    before = edge.accepted
    eventually(lambda: edge.accepted > before)
    # with a full disk it ends by itself, and its supervisor starts it again once there is space
    volume.fill()
    edge.upto = 9_000
    eventually(lambda: not kafka.running, 120, saying="Kafka ends")
    assert edge.accepted < 9_000
    edge.upto = 9_200
    eventually(lambda: "Trying again" in bridge.said(), 90, saying="the bridge says that it waits for Kafka")
    volume.free()
    kafka.start()
    before = edge.accepted
    edge.upto = 9_500
    eventually(lambda: edge.accepted > before, 90, saying="it goes on")
    # when it dies, and comes back where nobody knows it, and the file is given its new address, after one of another cluster
    edge.upto = len(rows)
    kafka.kill()
    former = kafka.move()
    kafka.start()
    other = LyingBroker("bank", "g", {0: Partition()})

    def named(bootstrap, said):
        bridge.path.write_text(bridge.path.read_text().replace(former, bootstrap))
        bridge.process.send_signal(signal.SIGHUP)
        eventually(lambda: said in bridge.said(), saying=said)
        bridge.path.write_text(bridge.path.read_text().replace(bootstrap, former))

    named(other.bootstrap, "reload: Kafka: a broker is of the cluster c")
    named(kafka.bootstrap, "reload: brokers are looked for at")
    # then
    edge.finish()
    other.close()
    assert values(kafka.bootstrap, "bank") == [row.value for row in rows]
    assert bridge.terminate() == 0


def bridge_topic(kafka, name):
    from confluent_kafka.admin import AdminClient, NewTopic  # noqa: PLC0415

    admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(60)


def test_a_wire_that_is_cut_again_and_again_loses_and_repeats_nothing(kafka, topic, inside, proxies):
    name, source = topic(), "cut/bank"
    rows = log(source, 10_000)
    bridge = inside(kafka.bootstrap, {source: [0]}, topic=name)
    wire = proxies("127.0.0.1", bridge.port)
    edge = Edge(wire.port, source, rows, sizes=lambda: 40)
    edge.upto = 0
    edge.start()
    for enough in range(1_000, 8_500, 1_500):
        edge.upto = enough + 1_000
        eventually(lambda enough=enough: edge.accepted > enough)
        wire.cut()
    edge.finish()
    assert edge.went_back >= 5
    assert values(kafka.bootstrap, name) == [row.value for row in rows]
