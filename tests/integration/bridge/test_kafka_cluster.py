"""Three brokers that lose leaders, coordinators and too many replicas: every row is in Kafka once, in order."""

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import pytest
from confluent_kafka import ElectionType
from confluent_kafka.admin import AdminClient, NewTopic

from bridge.doctor import examine
from headrace.configuration.bridge import BridgeFile
from headrace.configuration.load import load
from infra.local.kafka import Kafka
from tests.amqp.edge_double import Edge
from tests.bridge.bridge_file import bridge_file
from tests.edge.source_log import log
from tests.kafka.reading import read_committed
from tests.rules.waiting import eventually

pytest_plugins = ["tests.bridge.fix_bridge"]

REPLICATED = {
    "min.insync.replicas": 2,
    "offsets.topic.replication.factor": 3,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 2,
    # Far longer than a busy machine has one wait.
    "broker.session.timeout.ms": 9000,
}
TOPIC = "bank"
SOURCES = {"lima/bank": [0], "oslo/bank": [1]}
#: Who keeps the partitions of a topic, first who leads them.
KEPT = {
    TOPIC: [[2, 3, 1], [3, 2, 1]],
    # The transactions of the first source are coordinated by partition 0, those of the second by 4.
    "__transaction_state": [[2, 3, 1], [3, 1, 2], [1, 2, 3], [2, 3, 1], [3, 1, 2]],
}


class Cluster:
    """Broker 1, which is the controller and is never harmed, and two others."""

    def __init__(self, folder, stack):
        first = Kafka(folder / "1", settings=REPLICATED, heap_megabytes=256)
        self.brokers = {1: first} | {
            number: Kafka(folder / str(number), settings=REPLICATED, heap_megabytes=256, joins=first, number=number)
            for number in (2, 3)
        }
        for broker in self.brokers.values():
            stack.callback(broker.delete)
        self.start(1)
        self.start(2, 3)
        self.bootstrap = ",".join(broker.bootstrap for broker in self.brokers.values())

    def start(self, *numbers):
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda number: self.brokers[number].start(), numbers))

    @property
    def admin(self):
        """A client that has met broker 1 alone: one that meets a broker which stands still waits for it."""
        return AdminClient({"bootstrap.servers": self.brokers[1].bootstrap, "log_level": 0})

    def create(self, topic, **settings):
        """Have a topic, kept by whom it should be: Kafka by itself would leave a broker that is fenced just then none to lead."""
        replicas, admin = KEPT[topic], self.admin

        def there():
            topics = admin.list_topics(timeout=60).topics
            if topic not in topics:
                # Refused while one of them is fenced, as a broker is that was slow for the length of its session.
                wanted = NewTopic(
                    topic, len(replicas), replica_assignment=replicas, config=settings | {"min.insync.replicas": "2"}
                )
                admin.create_topics([wanted])[topic].result(60)
            return [topics[topic].partitions[number].replicas for number in range(len(replicas))] == replicas

        eventually(there, 120, every=0.5, saying=f"{topic} is there")

    def partition(self, topic, number):
        return self.admin.list_topics(topic, timeout=60).topics[topic].partitions[number]

    def leader(self, topic, number):
        return self.partition(topic, number).leader

    def lead_as_preferred(self):
        """Have each partition led by the first of its replicas again."""
        admin = self.admin

        def led():
            admin.elect_leaders(ElectionType.PREFERRED).result(60)
            there = admin.list_topics(timeout=60).topics
            partitions = [it for topic in KEPT for it in there[topic].partitions.values()]
            return all(len(it.isrs) == 3 and it.leader == it.replicas[0] for it in partitions)

        eventually(led, 180, every=0.5, saying="all replicas are in sync, and leaders are as preferred")


@pytest.fixture
def cluster(tmp_path_factory):
    with ExitStack() as stack:
        made = Cluster(tmp_path_factory.mktemp("cluster"), stack)
        yield made
        # Shown where the test fails.
        print(f"--- brokers that run: {[number for number, broker in made.brokers.items() if broker.running]}")


@contextmanager
def standing_still(broker):
    os.kill(broker.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(broker.pid, signal.SIGCONT)


@pytest.mark.long
def test_rows_stand_once_and_in_order_whatever_happens_to_two_of_three_brokers(cluster, inside, tmp_path, caplog):
    # Given two sources, each with a partition, that send steadily until all is over.
    cluster.create(TOPIC)
    cluster.create("__transaction_state", **{"cleanup.policy": "compact"})
    bridge = inside(cluster.bootstrap, SOURCES, topic=TOPIC)
    over = threading.Event()
    rows = {source: log(source, 60_000, seed=number) for number, source in enumerate(SOURCES)}

    def paced():
        # So few that they last for a quarter of an hour.
        return 500 if over.wait(0.05) else 3

    edges = [Edge(bridge.port, source, rows[source], sizes=paced) for source in SOURCES]
    for edge in edges:
        edge.start()

    def go_on():
        enough = [edge.accepted + 100 for edge in edges]
        eventually(
            lambda: all(edge.accepted > least for edge, least in zip(edges, enough, strict=True)),
            300,
            saying="both go on",
        )

    go_on()
    # When a leader stands still until another one leads, and goes on.
    cluster.lead_as_preferred()
    with standing_still(cluster.brokers[2]):
        eventually(lambda: cluster.leader(TOPIC, 0) != 2, 120, saying="another broker leads")
    go_on()

    # When a broker dies that leads a partition and coordinates a source.
    cluster.lead_as_preferred()
    cluster.brokers[2].kill()
    go_on()

    # When the second of three dies, then both sources wait, the log says where to look, and what is found there is named.
    cluster.brokers[3].kill()
    # Where that broker coordinated the group, the bridge is no member any more, and cannot join: too few replicas are up.
    eventually(
        lambda: {bridge.figures(source)["state"] for source in SOURCES} == {"waiting for Kafka"},
        180,
        saying="both wait for Kafka",
    )
    eventually(lambda: "'headrace bridge doctor'" in caplog.text)
    accepted = [edge.accepted for edge in edges]
    file = load(bridge_file(tmp_path, cluster.bootstrap, SOURCES, topic=TOPIC), BridgeFile)

    def found():
        wrong = {each.check: each.text for each in examine(file) if each.level == "wrong"}
        fewer = "partitions [0, 1] have fewer replicas in sync than min.insync.replicas=2"
        return wrong.keys() >= {"topic", "__consumer_offsets", "__transaction_state"} and fewer in wrong["topic"]

    eventually(found, 180, saying="doctor names the partitions")
    assert [edge.accepted for edge in edges] == accepted

    # When one of them is back, then both go on.
    cluster.start(3)
    go_on()

    # Then every row stands there once.
    over.set()
    for edge in edges:
        edge.finish()
    records = read_committed(cluster.bootstrap, TOPIC)
    for source, (number,) in SOURCES.items():
        assert [it.value for it in records if it.partition == number] == [row.value for row in rows[source]]
