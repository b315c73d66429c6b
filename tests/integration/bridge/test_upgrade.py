"""Edges and bridges of two releases: what 0.1 sent and kept, with this bridge and edge; and this edge with 0.1's bridge.

0.1 itself does not run here: its batches, state folders and committed positions are the bytes that it wrote, its bridge is the
code by which it read and judged batches (tests/compatibility).
"""

from dataclasses import replace

import pytest
from confluent_kafka import Consumer, TopicPartition
from proton import Message

from bridge.model.delivery import Accept, Reject, Release
from edge.delivery.link import Sender
from edge.delivery.outbox import Outbox
from edge.mysql.checkpoint import MysqlCheckpoint
from edge.observability.figures import Figures
from edge.postgres.checkpoint import PostgresCheckpoint
from edge.progress.checkpoint import State
from edge.progress.spool import Spool
from edge.progress.spooler import Spooler
from headrace.configuration.edge import Interconnect
from headrace.errors import CorruptInput
from tests.amqp.edge_double import send
from tests.amqp.interconnect_ends import Edge, Far
from tests.compatibility import bridge_0_1, make
from tests.compatibility.reading import SOURCE, batches, position_text, state
from tests.kafka.reading import values
from tests.rules.waiting import eventually

pytest_plugins = ["tests.bridge.fix_bridge"]

KINDS = {"postgresql": PostgresCheckpoint, "mariadb": MysqlCheckpoint}
MADE = {"postgresql": make.postgresql_batches, "mariadb": make.mariadb_batches}


class Upgraded:
    """This release's edge over the state folder of a former one, without a database."""

    def __init__(self, folder, engine, url):
        checkpoint = State(folder, KINDS[engine]).read(SOURCE)
        figures = Figures()
        self.outbox = Outbox(limit_bytes=1 << 20, tail=checkpoint.position, confirmed=checkpoint.confirmed)
        spool = Spool(folder, SOURCE, 1 << 20)
        spool.open(checkpoint.position, checkpoint.promised, checkpoint.confirmed)
        self._spooler = Spooler(spool, self.outbox, figures, after_seconds=0.0)
        self._sender = Sender(Interconnect(url=url), SOURCE, self.outbox, figures)
        self._spooler.start()
        self._sender.start()

    def acknowledged(self):
        self.outbox.check()
        return str(self.outbox.progress()[0])

    def close(self):
        self._sender.stop(5)
        self._spooler.stop()


class FormerBridge(Far):
    """Takes and refuses batches as 0.1's bridge did; gives the first one back, as a bridge that has no position yet."""

    values: list[bytes]

    def _judge(self, source, delivery):
        try:
            batch = bridge_0_1.decode(delivery.properties, delivery.content_encoding, delivery.body)
        except CorruptInput as error:
            return Reject("amqp:decode-error", f"{error.message}. {error.hint}")
        verdict = bridge_0_1.judge(self.tails[source], batch)
        if self.release > 0 or isinstance(verdict, bridge_0_1.Gap):
            self.release -= 1
            return Release(0.02)
        if isinstance(verdict, bridge_0_1.Next):
            self.values = [*getattr(self, "values", []), *batch.values[verdict.begin :]]
            self.tails[source] = batch.last
        return Accept()


@pytest.mark.parametrize("engine", ["postgresql", "mariadb"])
def test_a_former_edge_and_its_spool_with_a_new_bridge_o12(kafka, topic, inside, tmp_path, engine):
    name = topic()
    first, second, third = batches("0.1", engine)
    # given the position that 0.1's bridge committed with the first batch
    text = f"{first.properties['last']} {position_text('0.1').split(' ', 1)[1]}"
    former = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": f"headrace.{SOURCE}", "log_level": 0})
    former.commit(offsets=[TopicPartition(name, 0, 3, metadata=text)], asynchronous=False)
    former.close()
    bridge = inside(kafka.bootstrap, {SOURCE: [0]}, topic=name)

    # when 0.1's edge sends what it sent before and one batch more, and is upgraded with the rest in its spool
    sent = [Message(address=f"cdc/{SOURCE}", durable=True, **each._asdict()) for each in (first, second)]
    outcomes = send(bridge.port, f"cdc/{SOURCE}", sent)
    edge = Upgraded(state("0.1", engine, tmp_path), engine, f"amqp://127.0.0.1:{bridge.port}")
    try:
        eventually(lambda: edge.acknowledged() == third.properties["last"], saying="the spool of 0.1 is acknowledged")
    finally:
        edge.close()

    # then each record is in Kafka once
    assert [each.state for each in outcomes] == ["accepted", "accepted"]
    assert values(kafka.bootstrap, name) == second.decoded().values + third.decoded().values
    assert bridge.figures(SOURCE)["position"] == third.properties["last"]


@pytest.mark.parametrize("engine", ["postgresql", "mariadb"])
def test_a_new_edge_with_what_a_former_bridge_takes_o12(engine):
    far = FormerBridge((SOURCE,), release=1)
    made = MADE[engine]()
    edge = Edge(far.url(), made[0].follows)
    try:
        edge.put(*made)
        edge.acknowledged(made[-1].last)
        expected = [value for batch in batches("0.1", engine) for value in batch.decoded().values]
        assert len(far.values) == len(expected)
        # A batch of a version that it does not read ends the edge, and says what to do.
        newer = replace(made[-1], properties=made[-1].properties | {"version": 2}, follows=made[-1].last)
        edge.put(newer)
        problem = edge.problem()
    finally:
        edge.close()
        far.close()
    assert "the message has version '2', this bridge reads version 1" in problem.message
