"""The committed position, written to a real Kafka and read back, from offsets or from records."""

import json

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from bridge.kafka.client import admin
from bridge.kafka.committer import Committer, SourceRoute
from bridge.kafka.positions import read_committed, read_last_record, reading
from headrace.configuration.kafka import KafkaConnection
from headrace.errors import NeedsOperator
from headrace.position import Position
from tests.source_log import cut, log
from tests.waiting import eventually

SOURCE = "positions/bank"


@pytest.fixture
def committer(kafka):
    """Make committers as bridges would."""
    made = []

    def make(topic, partitions=(0,), *, source=SOURCE, bridge="bridge-one"):
        made.append(Committer(at(kafka), admin(at(kafka)), SourceRoute(source, topic, partitions), bridge))
        return made[-1]

    yield make
    for each in made:
        each.abandon()


def test_position_and_offsets_are_committed_for_every_partition_of_the_source(kafka, topic, committer):
    name, source = topic(partitions=3), "positions/spread"
    (batch,) = cut(source, log(source, 50), lambda: 50)
    ours = committer(name, (0, 2), source=source)
    assert ours.take_over() is None
    ours.write(batch, 0)
    ours.commit(batch.last)
    with reading(at(kafka), source) as client:
        found = read_committed(client, source, name)
        assert (found.position, found.bridge) == (batch.last, "bridge-one")

        def ends():
            return {
                (name, partition): client.get_watermark_offsets(TopicPartition(name, partition), timeout=60)[1]
                for partition in (0, 2)
            }

        # The marker of the transaction is the one offset behind what is committed; it may come after the commit has returned.
        wanted = {place: offset + 1 for place, offset in found.offsets.items()}
        eventually(lambda: ends() == wanted, saying="the transaction is over")
    assert committer(name, (0, 2), source=source, bridge="bridge-two").take_over() == batch.last


def test_an_open_transaction_of_a_bridge_that_died_leaves_neither_records_nor_position(kafka, topic, committer):
    name, source = topic(), "positions/died"
    one, two = cut(source, log(source, 40), lambda: 20)
    former = committer(name, source=source)
    former.take_over()
    former.write(one, 0)
    former.commit(one.last)
    former.write(two, 0)
    assert committer(name, source=source, bridge="bridge-two").take_over() == one.last


def test_a_position_is_found_behind_records_that_are_not_the_sources(kafka, topic):
    name = topic(partitions=2)
    first, last = Position(1_700_000_000, 5, 0), Position(1_700_000_000, 9, 3)
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


def test_a_group_that_somebody_else_uses_is_an_operators_matter(kafka, topic, committer):
    name, source = topic(), "positions/taken"
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "log_level": 0, "group.id": f"headrace.{source}"})
    consumer.commit(offsets=[TopicPartition(name, 0, 7)], asynchronous=False)
    consumer.close()
    with pytest.raises(
        NeedsOperator, match=r"group headrace.positions/taken holds offsets that the bridge did not write"
    ):
        committer(name, source=source).take_over()


def at(kafka):
    return KafkaConnection(bootstrap=kafka.bootstrap)
