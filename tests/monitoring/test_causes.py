"""Alerts fire by what they are about, done to real parts, and resolve when it is undone.

Certificates, disks and warnings are in test_rules.py, by files and figures.
"""

import json
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.amqp.transport import Message
from headrace.position import Position
from tests.amqp.branch import Branch
from tests.amqp.edge_double import message, send
from tests.edge.source_log import cut, log
from tests.end_to_end.pipeline import headrace
from tests.monitoring.running import DELIVERY, SOURCE, Parts
from tests.rules.waiting import eventually

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Parts]:
    with Parts(tmp_path_factory.mktemp("causes")) as running:
        eventually(lambda: running.prometheus.ready, 60, saying="Prometheus answers")
        yield running


@pytest.fixture
def well(parts: Parts) -> Iterator[None]:
    parts.resolved()
    yield
    parts.resolved()


@pytest.mark.usefixtures("well")
def test_an_edge_that_is_killed(parts: Parts) -> None:
    parts.edge.stop_at_once()
    parts.fires("HeadraceEdgeAbsent", "HeadraceEdgeSilent")
    parts.edge.start()


@pytest.mark.usefixtures("well")
def test_a_bridge_that_is_killed_fills_spool_and_log(parts: Parts) -> None:
    parts.bridge.stop_at_once()
    parts.fires("HeadraceBridgeAbsent", "HeadraceEdgeIsNotReady")
    parts.fires("HeadraceRegionSpoolNearlyFull", kilobytes=100)
    parts.fires("HeadraceRegionLogNearItsLimit", kilobytes=4_000)
    parts.bridge.start()


@pytest.mark.usefixtures("well")
def test_a_broker_that_stands_still_and_one_that_is_killed(parts: Parts) -> None:
    parts.stop_kafka()
    parts.fires("HeadraceSourceLags", "HeadraceEdgeIsStuck")
    parts.continue_kafka()
    parts.fires("HeadraceCommitsAreSlow")
    parts.kafka.kill()
    parts.kafka.start()
    parts.fires("HeadraceSetbacks")


@pytest.mark.usefixtures("well")
def test_a_database_that_is_down(parts: Parts) -> None:
    parts.postgres.stop("immediate")
    parts.fires("HeadraceEdgeNotReady", kilobytes=0)
    parts.postgres.start()


@pytest.mark.usefixtures("well")
def test_a_slot_that_is_dropped_under_its_edge(parts: Parts) -> None:
    def drop() -> bool:
        parts.execute("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active")
        parts.execute("SELECT pg_drop_replication_slot('headrace')")
        return True

    eventually(drop, 60, every=0.01, saying="the slot is dropped before its edge is connected again")
    parts.fires("HeadraceEdgeNeedsOperator", "HeadraceRegionNeedsOperator")
    # As the hint says.
    parts.edge.stop()
    parts.checkpoint.rename(parts.folder / "checkpoint.lost")
    (parts.checkpoint.parent / "spool.sqlite").unlink(missing_ok=True)
    headrace("edge", "init", "--snapshot", "--replace", "--config", str(parts.edge_file))
    parts.edge.start()


@pytest.mark.usefixtures("well")
def test_batches_that_are_rejected_or_do_not_follow(parts: Parts) -> None:
    tail = json.loads(parts.checkpoint.read_text())["acknowledged"]
    parts.edge.stop()
    try:
        (old,) = cut(SOURCE, log(SOURCE, 3, epoch=1_000_000_000), lambda: 3)
        assert send(parts.port, f"cdc/{SOURCE}", [message(old)])[0].state == "rejected"
        parts.fires("HeadraceBatchRejected", kilobytes=0)
        # What is no batch.
        assert send(parts.port, f"cdc/{SOURCE}", [Message(body=b"x", inferred=True)])[0].state == "rejected"
        parts.fires("HeadraceInputRefused", kilobytes=0)
        # Batches of an edge that lost what it had sent before.
        epoch = Position.parse(tail).epoch
        (later,) = cut(SOURCE, log(SOURCE, 3, epoch=epoch, start=10**15), lambda: 3, Position(epoch, 10**17, 0))

        def is_found() -> bool:
            assert send(parts.port, f"cdc/{SOURCE}", [message(later)])[0].state == "released"
            return "HeadraceSourceNeedsOperator" in parts.prometheus.firing()

        eventually(is_found, 120, every=0.5, saying="the gap is a person's matter")
    finally:
        parts.edge.start()


@pytest.mark.usefixtures("well")
def test_a_delivery_without_receiver_topic_or_consent(parts: Parts) -> None:
    producer = Producer({"bootstrap.servers": parts.kafka.bootstrap})
    producer.produce(DELIVERY, b"hello", b"jakarta")
    assert producer.flush(30) == 0
    parts.fires("HeadraceDeliveryWaits")
    branch = Branch(f"amqp://127.0.0.1:{parts.port}", "alerts/jakarta", answer=lambda _message: "reject")
    try:
        parts.fires("HeadraceDeliveryDeadLetters")
    finally:
        branch.close()
    admin = AdminClient({"bootstrap.servers": parts.kafka.bootstrap})
    admin.delete_topics([DELIVERY])[DELIVERY].result(30)
    parts.fires("HeadraceDeliveryNeedsOperator")
    admin.create_topics([NewTopic(DELIVERY, 6, 1)])[DELIVERY].result(30)


@pytest.mark.usefixtures("well")
def test_a_lake_that_is_not_loaded_before_kafka_removes_its_records(parts: Parts) -> None:
    parts.load()
    parts.console.start()
    try:
        # Nothing is loaded now. Kafka removes nothing before the alert is seen, at three quarters of this time.
        parts.keep_records(120)
        parts.fires("HeadraceRetentionRunsOut", seconds=180)
        # As the runbook says: more time first, then a load.
        parts.keep_records(7 * 86400)
        parts.load()
        parts.resolved()
        parts.stop_kafka()
        try:
            parts.fires("HeadraceRetentionUnknown", seconds=120)
        finally:
            parts.continue_kafka()
        parts.resolved()
    finally:
        parts.console.stop()


def test_a_second_bridge_that_cannot_run(parts: Parts) -> None:
    # The last one: what it leaves is seen for as long as the rule of absent bridges looks back.
    # Its port is taken.
    parts.second_bridge.start()
    parts.fires("HeadraceBridgeNeedsOperator")
    parts.second_bridge.stop()
    # Prometheus knows it for as long as the rule looks back: it is absent.
    parts.fires("HeadraceBridgeAbsent")
    parts.second_bridge.start()
    parts.fires("HeadraceBridgeNeedsOperator")
