"""The embedded Kafka: what it keeps, and when it is ready."""

import socket
from contextlib import closing

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.errors import NeedsOperator
from infra.local.kafka import Kafka


def commit(server, topic, values, codec="none"):
    producer = Producer(
        {
            "bootstrap.servers": server.bootstrap,
            "transactional.id": f"{topic}-{codec}",
            "compression.type": codec,
            "log_level": 2,
        }
    )
    producer.init_transactions(60)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value)
    producer.commit_transaction(60)


def read(server, topic, count):
    consumer = Consumer(
        {
            "bootstrap.servers": server.bootstrap,
            "group.id": "nobody",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "log_level": 2,
        }
    )
    with closing(consumer):
        consumer.assign([TopicPartition(topic, 0, 0)])
        return [record.value() for record in consumer.consume(count, 60)]


def test_committed_records_survive_a_crash_and_a_stop_and_the_port_stays(private_kafka):
    # Given a broker with a committed transaction.
    server = private_kafka()
    bootstrap = server.bootstrap
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    admin.create_topics([NewTopic("t", 1, 1)])["t"].result(60)
    commit(server, "t", [b"1", b"2"])

    # When it is killed at once, its markers perhaps unwritten, and started again.
    server.kill()
    assert not server.running
    server.start()

    # Then the records are there at the same address, and it takes more, also after a stop.
    assert server.bootstrap == bootstrap
    assert read(server, "t", 2) == [b"1", b"2"]
    commit(server, "t", [b"3"])
    server.restart()
    assert read(server, "t", 3) == [b"1", b"2", b"3"]


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_broker_takes_records_in_every_codec(kafka, topic, codec):
    name = topic()

    commit(kafka, name, [b"x" * 1000], codec)

    assert read(kafka, name, 1) == [b"x" * 1000]


def test_topic_has_the_partitions_and_settings_that_were_asked_for(kafka, topic):
    name = topic(3, max_message_bytes=12345)

    admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    assert len(admin.list_topics(name, 60).topics[name].partitions) == 3


def test_topics_are_not_created_by_themselves(kafka):
    # Asking for a topic's metadata as a producer does is what would make it.
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "allow.auto.create.topics": True, "log_level": 2})

    answer = producer.list_topics("nobody-made-this", 60).topics["nobody-made-this"]

    assert answer.error.name() == "UNKNOWN_TOPIC_OR_PART"
    assert "nobody-made-this" not in producer.list_topics(timeout=60).topics


def test_port_that_another_process_has_is_named(tmp_path):
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        port = listener.getsockname()[1]
        server = Kafka(tmp_path, port=port)
        try:
            with pytest.raises(NeedsOperator, match=f"port {port}: another process has it"):
                server.start()
            assert not server.running
        finally:
            server.delete()


def test_setting_that_kafka_refuses_is_told_in_its_own_words(tmp_path):
    server = Kafka(tmp_path, settings={"log.segment.bytes": "many"})
    try:
        with pytest.raises(NeedsOperator, match=r"log\.segment\.bytes"):
            server.start()
    finally:
        server.delete()
