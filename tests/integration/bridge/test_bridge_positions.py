"""Committed positions, written to a real Kafka and read back, from offsets or from records; what is in doubt is not read."""

import json

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from bridge.group.client import parse
from bridge.kafka.client import admin
from bridge.kafka.entries import reading
from bridge.kafka.producer import KafkaProducer, Leftovers
from bridge.model.chain import position_text
from bridge.model.ports import GroupMetadata, PositionCommit, Share
from bridge.model.route import SourceRoute
from bridge.positions.last_record import read_last_record
from bridge.positions.read import Positions
from headrace.configuration.bridge import BridgeFile
from headrace.configuration.kafka import KafkaConnection
from headrace.configuration.load import load
from headrace.errors import NeedsOperator, NotConnected
from headrace.position import Position
from tests.bridge.bridge_file import bridge_file
from tests.integration.bridge.test_bridge_command import headrace
from tests.rules.waiting import eventually

SOURCE, OTHER = "positions/bank", "positions/other"
FIRST, LAST = Position(1_700_000_000, 5, 0), Position(1_700_000_000, 9, 3)


@pytest.fixture
def commit(kafka):
    """Commit records and positions as a lane does, or leave the transaction open."""
    made = []

    def commit(group, transactional_id, *positions, shares=(), is_open=False):
        client = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": group, "log_level": 0})
        # A bridge has joined its group before it commits; without a coordinator the client would wait for ever.
        client.committed([TopicPartition(positions[0].topic, 0)], timeout=60)
        opaque = client.consumer_group_metadata()
        producer = KafkaProducer(at(kafka), transactional_id, 1 << 20)
        made.append(producer)
        producer.begin()
        for share in shares:
            producer.produce(share)
        ends = producer.flush(10)
        if is_open:
            offsets = [TopicPartition(*each[:3], metadata=each[3]) for each in positions]
            producer._producer.send_offsets_to_transaction(offsets, opaque, 10)
        else:
            producer.commit(positions, parse(opaque) or GroupMetadata(opaque, group, -1, ""), 10)
        return ends

    yield commit
    for each in made:
        each.discard()


def read(kafka, group, routes, source=SOURCE, leftovers=None):
    positions = Positions(at(kafka), admin(at(kafka)), group, {route.source: route for route in routes}, leftovers)
    try:
        return positions.read([source])[source]
    finally:
        positions.close()


def test_a_position_is_read_back_for_every_partition_of_its_source_and_a_moved_source_needs_an_operator(
    kafka, topic, commit
):
    name = topic(partitions=3)
    group = f"group-{name}"
    ends = commit(
        group,
        f"id-{name}",
        PositionCommit(name, 0, 1, position_text(SOURCE, LAST, "one")),
        PositionCommit(name, 2, 3, position_text(SOURCE, LAST, "one")),
        PositionCommit(name, 1, 7, position_text(OTHER, FIRST, "one")),
        shares=[Share(name, 0, [b"k"], [b"v"]), Share(name, 2, [None] * 3, [b"v"] * 3)],
    )
    assert ends == {(name, 0): 1, (name, 2): 3}
    ours, other = SourceRoute(SOURCE, name, (0, 2)), SourceRoute(OTHER, name, (1,))
    result = read(kafka, group, [ours, other])
    assert (result.position, result.bridge, result.offsets) == (LAST, "one", {(name, 0): 1, (name, 2): 3})
    # when the file gives it other partitions, or one that holds another source's position
    moved = read(kafka, group, [SourceRoute(SOURCE, name, (0,)), other])
    assert isinstance(moved, NeedsOperator)
    assert f"owned {name}[0], {name}[2] until now" in moved.message
    taken = read(kafka, group, [SourceRoute("positions/new", name, (1,)), other], "positions/new")
    assert isinstance(taken, NeedsOperator)
    assert "holds the position of positions/other" in taken.message


def test_what_an_open_transaction_may_still_change_is_not_read_before_it_is_ended(kafka, topic, commit, monkeypatch):
    name = topic(partitions=2)
    group, route, lane = f"group-{name}", SourceRoute(SOURCE, name, (0,)), f"headrace.one-{name}.0"
    bridge = f"host/17/0a1b2c3d/one-{name}"
    commit(
        group,
        lane,
        PositionCommit(name, 0, 1, position_text(SOURCE, FIRST, bridge)),
        PositionCommit(name, 1, 1, position_text(OTHER, FIRST, bridge)),
    )
    commit(group, lane, PositionCommit(name, 0, 2, position_text(SOURCE, LAST, bridge)), is_open=True)
    with pytest.raises(NotConnected):
        read(kafka, group, [route])
    # and it holds up nobody else: with many sources, some are in an open transaction at any time
    assert read(kafka, group, [route, SourceRoute(OTHER, name, (1,))], OTHER).position == FIRST
    # when the instance comes back, then its transactional id ends what its former self left open
    KafkaProducer(at(kafka), lane, 1 << 20).discard()
    assert eventually(lambda: read(kafka, group, [route])).position == FIRST
    # when another one takes over what an instance that died left open, then it ends that itself, long before Kafka does
    monkeypatch.setattr("bridge.kafka.client.TRANSACTION_TIMEOUT", 300_000)
    commit(group, lane, PositionCommit(name, 0, 2, position_text(SOURCE, LAST, bridge)), is_open=True)
    leftovers = Leftovers(at(kafka), "two", ["0"])
    assert eventually(lambda: read(kafka, group, [route], leftovers=leftovers)).position == FIRST


def test_a_position_is_found_behind_records_that_are_not_the_sources(kafka, topic):
    name = topic(partitions=2)
    first, last = FIRST, LAST
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    for partition, position in ((0, last), (1, first)):
        producer.produce(name, json.dumps({"source": {"name": SOURCE, "position": str(position)}}), partition=partition)
        for value in [b"not ours", None, b'{"source":{"name":"other/bank","position":"7"}}'] * 70:
            producer.produce(name, value, b"key", partition)
    assert producer.flush(60) == 0
    with reading(at(kafka), SOURCE) as client:
        assert read_last_record(client, SOURCE, [name], [0, 1]) == last
        assert read_last_record(client, SOURCE, [name], [1]) == first
        assert read_last_record(client, "third/bank", [name], [0, 1]) is None


def test_no_position_is_found_in_an_empty_topic(kafka, topic):
    with reading(at(kafka), SOURCE) as client:
        assert read_last_record(client, SOURCE, [topic()], [0]) is None


def test_a_group_that_somebody_else_uses_is_an_operators_matter_where_nothing_else_has_the_position(
    kafka, topic, commit
):
    name = topic(partitions=3)
    group = f"group-{name}"
    text = position_text(OTHER, LAST, "one", partitions=(2, 1))
    commit(group, f"id-{name}", PositionCommit(name, 1, 4, text), PositionCommit(name, 2, 4, text))
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "log_level": 0, "group.id": group})
    consumer.commit(offsets=[TopicPartition(name, 0, 7), TopicPartition(name, 1, 0)], asynchronous=False)
    consumer.close()
    routes = [SourceRoute(SOURCE, name, (0,)), SourceRoute(OTHER, name, (2, 1))]
    result = read(kafka, group, routes)
    assert isinstance(result, NeedsOperator)
    assert f"group {group} holds offsets that the bridge did not write" in result.message
    # what a bridge committed for the other partition is stored with it
    other = read(kafka, group, routes, OTHER)
    assert (other.position, other.offsets) == (LAST, {(name, 1): 0, (name, 2): 4})


def test_a_position_that_another_partition_still_holds_is_moved_once_the_foreign_offset_is_deleted(
    kafka, topic, commit, tmp_path
):
    name = topic(partitions=2)
    path = bridge_file(tmp_path, kafka.bootstrap, {SOURCE: [0, 1]}, topic=name)
    group = load(path, BridgeFile).group
    # as a release committed that named no order
    text = position_text(SOURCE, LAST, "one")
    commit(group, f"id-{name}", PositionCommit(name, 0, 4, text), PositionCommit(name, 1, 4, text))
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "log_level": 0, "group.id": group})
    consumer.commit(offsets=[TopicPartition(name, 1, 0)], asynchronous=False)
    code, _, said = headrace("move", "--config", path, SOURCE)
    assert code == NeedsOperator.exit_code
    assert f"--delete-offsets --group {group} --topic {name}:1'; then 'headrace bridge move {SOURCE}'" in " ".join(
        said.split()
    )
    # The client has no request to delete single offsets: all are, and the intact one is committed again.
    client = admin(at(kafka))
    client.delete_consumer_groups([group])[group].result(60)
    consumer.commit(offsets=[TopicPartition(name, 0, 4, metadata=text)], asynchronous=False)
    consumer.close()
    expected = f"source {SOURCE}: goes on after {LAST} in {name}[0, 1]\n"
    assert headrace("move", "--config", path, SOURCE)[:2] == (0, expected)
    result = read(kafka, group, [SourceRoute(SOURCE, name, (0, 1))])
    assert (result.position, result.order) == (LAST, (0, 1))


def at(kafka):
    return KafkaConnection(bootstrap=kafka.bootstrap)
