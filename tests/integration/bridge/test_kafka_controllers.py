"""Three nodes, each a broker and a controller: another one is active every few seconds, and all of them move to other addresses.

Every row is in Kafka once, in order, and no bridge is started again.
"""

import os
import random
import signal
import socket
import struct
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from bridge.kafka.lifetime import cluster
from infra.local.kafka import Kafka
from infra.local.server import free_port
from tests.amqp.edge_double import Roaming
from tests.edge.source_log import log
from tests.kafka.reading import read_committed
from tests.rules.waiting import eventually

pytest_plugins = ["tests.bridge.fix_bridge"]

SEED = int(os.environ.get("HEADRACE_SEED", "5"))
SETTINGS = {
    "min.insync.replicas": 2,
    "default.replication.factor": 3,
    "offsets.topic.replication.factor": 3,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 2,
    # Longer than a controller stands still; far longer than a busy machine has one wait.
    "broker.session.timeout.ms": 9000,
    "controller.quorum.fetch.timeout.ms": 1000,
    "controller.quorum.election.timeout.ms": 500,
}
TOPIC, GROUP = "bank", "bridges"
SOURCES = {f"region{number}/bank": [number] for number in range(4)}
#: Of Kafka's protocol, DescribeQuorum in version 0, of the one partition of the log of controllers.
_QUORUM = b"".join(
    (
        struct.pack(">hhih", 55, 0, 1, 8),
        b"headrace\0",
        b"\2\x13__cluster_metadata",
        b"\2",
        struct.pack(">i", 0),
        b"\0\0\0",
    )
)


class Nodes:
    """The nodes by their numbers."""

    def __init__(self, folder):
        self.quorum = quorum = {number: free_port() for number in (1, 2, 3)}
        self.nodes = {
            number: Kafka(folder / str(number), settings=SETTINGS, heap_megabytes=256, quorum=quorum, number=number)
            for number in quorum
        }
        with ThreadPoolExecutor() as pool:
            list(pool.map(Kafka.start, self.nodes.values()))

    @property
    def bootstrap(self):
        return ",".join(node.bootstrap for node in self.nodes.values())

    def active(self, *others):
        """Return the number of the active controller, which alone answers, if it is none of some; None while there is none."""
        for number in self.quorum.keys() - set(others):
            with (
                suppress(OSError, struct.error),
                socket.create_connection(("127.0.0.1", self.quorum[number]), timeout=1) as wire,
            ):
                wire.settimeout(1)
                wire.sendall(struct.pack(">i", len(_QUORUM)) + _QUORUM)
                size = struct.unpack(">i", wire.recv(4, socket.MSG_WAITALL))[0]
                # Behind number and tags: an error.
                if struct.unpack_from(">h", wire.recv(size, socket.MSG_WAITALL), 5)[0] == 0:
                    return number
        return None

    def unseat(self):
        """Have the active controller stand still until another one is active."""
        number = eventually(self.active, 60, saying="one is active")
        os.kill(self.nodes[number].pid, signal.SIGSTOP)
        try:
            eventually(lambda: self.active(number), 60, saying="another one is active")
        finally:
            os.kill(self.nodes[number].pid, signal.SIGCONT)

    def all_in_sync(self):
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

        def are():
            topics = admin.list_topics(timeout=60).topics.values()
            return all(len(it.isrs) == 3 for topic in topics for it in topic.partitions.values())

        eventually(are, 120, every=0.5, saying="all replicas are in sync")


@pytest.fixture
def nodes(tmp_path_factory):
    made = Nodes(tmp_path_factory.mktemp("nodes"))
    admin = AdminClient({"bootstrap.servers": made.bootstrap, "log_level": 0})
    eventually(lambda: len(admin.list_topics(timeout=60).brokers) == 3, 60, saying="all are there")
    admin.create_topics([NewTopic(TOPIC, len(SOURCES), 3)])[TOPIC].result(60)
    yield made
    for node in made.nodes.values():
        node.delete()


@pytest.mark.long
def test_rows_stand_once_while_controllers_change_every_few_seconds_and_all_brokers_move(nodes, inside, outside):
    # Given two bridges that share four sources, which send steadily until all is over
    chance = random.Random(SEED)
    options = {"topic": TOPIC, "sharing": GROUP}
    first = nodes.bootstrap
    kept, killed = inside(first, SOURCES, **options), outside(first, SOURCES, **options)
    bridges, over = [kept, killed], threading.Event()
    rows = {source: log(source, 40_000, seed=number) for number, source in enumerate(SOURCES)}

    def paced():
        return 500 if over.wait(0.05) else 2

    edges = [Roaming(bridges, source, rows[source], sizes=paced) for source in SOURCES]
    for edge in edges:
        edge.start()

    def go_on(saying):
        enough = [edge.accepted + 50 for edge in edges]
        eventually(
            lambda: all(edge.accepted > least for edge, least in zip(edges, enough, strict=True)), 180, saying=saying
        )

    go_on("all go on")

    # when another controller is active every few seconds, and one of the bridges is killed meanwhile
    for number in range(12):
        nodes.unseat()
        if number == 4:
            go_on("all go on while controllers change")
            killed.kill()
            bridges.remove(killed)
        seen = sum(edge.accepted for edge in edges)
        more = chance.randint(50, 400)
        eventually(lambda seen=seen, more=more: sum(edge.accepted for edge in edges) > seen + more, 120)
    eventually(
        lambda: all(kept.figures(source)["state"] == "serving" for source in SOURCES), 120, saying="one serves all"
    )
    go_on("all go on with one bridge")

    # when one broker after the other comes back at another address
    for node in nodes.nodes.values():
        node.stop()
        node.move()
        node.start()
        nodes.all_in_sync()
        go_on("all go on while brokers move")
    assert not set(first.split(",")) & set(nodes.bootstrap.split(","))
    # then clients that are made now find them: all of the bridge's are, and no address of its file is left
    cluster(first).generation += 1
    go_on("all go on with new clients")
    assert TOPIC in kept.bridge._admin.list_topics(timeout=30).topics
    # and whoever comes with the new addresses has its part
    bridges.append(outside(nodes.bootstrap, SOURCES, **options))
    eventually(
        lambda: sum(kept.figures(source)["state"] == "serving" for source in SOURCES) == 2, 120, saying="two share"
    )

    over.set()
    for edge in edges:
        edge.finish()
    records = read_committed(nodes.bootstrap, TOPIC)
    for source, (number,) in SOURCES.items():
        assert [it.value for it in records if it.partition == number] == [row.value for row in rows[source]]
    assert bridges[-1].terminate() == 0
