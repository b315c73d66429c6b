"""How long Kafka keeps what bronze lacks, as the console reads it from a real broker."""

import time

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from headrace import retention as kafka_retention
from headrace.console.lake import Retention

HOUR = 3600.0


def test_headroom_goes_down_from_the_first_record_that_lacks_and_is_nothing_once_it_is_removed(feed, lake_file, kafka):
    # given
    source = feed(retention_ms=int(HOUR * 1000), partitions=2)
    lake = lake_file(bank=source.topic)
    loaded = {"bank": {}}
    retention = Retention(lake, lambda: loaded)

    def stream():
        retention.look()
        assert retention.view().problem == ""
        return retention.view().streams["bank"]

    # when there is nothing yet, then a whole hour is left
    assert (stream().removal_at, stream().headroom(time.time())) == (None, HOUR)
    # when a record is committed that no load has taken
    began = time.time()
    source.commit(source.schema(), source.insert(id=1, name="a", balance="1.00"))
    first = stream()
    # then it is kept for an hour
    assert began - 1 <= first.removal_at - HOUR <= time.time()
    assert first.headroom(first.removal_at - 60) == 60
    # a newer one changes nothing
    source.commit(source.insert(id=2, name="a", balance="1.00"))
    assert stream() == first
    # when a load took both, markers of transactions included
    end = _end(kafka, source.topic)
    loaded["bank"] = {(source.topic, 0): end}
    assert stream().removal_at is None
    # when it took all but a marker
    loaded["bank"] = {(source.topic, 0): end - 1}
    assert stream().removal_at is None
    # when Kafka has removed what it had not taken
    loaded["bank"] = {(source.topic, 0): 1}
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    (removed,) = admin.delete_records([TopicPartition(source.topic, 0, end - 1)]).values()
    removed.result(30)
    assert stream().headroom(time.time()) == 0


def test_a_topic_that_keeps_all_has_no_headroom(feed, lake_file):
    source = feed(retention_ms=-1)
    source.commit(source.schema(), source.insert(id=1, name="a", balance="1.00"))
    retention = Retention(lake_file(bank=source.topic), lambda: {"bank": {}})
    retention.look()
    assert retention.view().streams["bank"].retention is None


def test_without_kafka_the_time_goes_on_from_what_was_known(private_kafka, lake_file, monkeypatch):
    server = private_kafka()
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    admin.create_topics([NewTopic("bank", 1, 1, config={"retention.ms": "3600000"})])["bank"].result(60)
    retention = Retention(lake_file(bank="bank", bootstrap=server.bootstrap), lambda: {"bank": {}})
    retention.look()
    streams = retention.view().streams
    assert streams["bank"].retention == HOUR
    server.stop()
    monkeypatch.setattr(kafka_retention, "_TIMEOUT", 1.0)
    retention.look()
    assert "does not answer" in retention.view().problem
    assert retention.view().streams == streams


def _end(kafka, name):
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "end"})
    try:
        return consumer.get_watermark_offsets(TopicPartition(name, 0), timeout=30)[1]
    finally:
        consumer.close()
