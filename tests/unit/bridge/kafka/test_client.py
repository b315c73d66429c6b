"""The administration client is made anew when it is of no use, and not more often than that takes; errors have words."""

from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException

from bridge.kafka import client, errors
from bridge.kafka import producer as producer_module
from bridge.kafka.producer import KafkaProducer
from bridge.model.ports import PartitionsFailed, Share
from headrace.configuration import kafka
from headrace.configuration.kafka import KafkaConnection
from headrace.errors import NotConnected, Retryable


def test_an_administration_client_is_made_anew_once_it_had_its_time(monkeypatch):
    shared = client.admin(KafkaConnection(bootstrap="127.0.0.1:1"))
    first = shared.list_topics.__self__
    shared.renew()
    assert shared.list_topics.__self__ is first
    monkeypatch.setattr(client, "PATIENCE", 0.0)
    shared.renew()
    assert shared.list_topics.__self__ is not first
    assert list(shared.refusals) == []


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError.COORDINATOR_NOT_AVAILABLE, NotConnected),
        (KafkaError.CONCURRENT_TRANSACTIONS, Retryable),
        (KafkaError.NOT_ENOUGH_REPLICAS, Retryable),
        (KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND, Retryable),
    ],
)
def test_a_cluster_with_too_few_brokers_is_told_from_others(code, kind):
    with pytest.raises(kind) as raised, errors.translated("commit a/b"):
        raise KafkaException(KafkaError(code))
    assert "too few brokers are up" in raised.value.hint


def test_any_other_trouble_passes_without_words():
    with pytest.raises(Retryable) as raised, errors.translated("commit a/b"):
        raise KafkaException(KafkaError(KafkaError.UNKNOWN))
    assert raised.value.hint == ""


def test_whatever_the_bridge_sets_itself_is_refused_in_the_file(monkeypatch):
    made = []
    for kind in ("Producer", "Consumer", "AdminClient"):
        monkeypatch.setattr(client, kind, lambda settings, **_more: made.append(settings))
    plain = KafkaConnection(bootstrap="127.0.0.1:1")
    client.producer(plain, "id", 1 << 20)
    client.consumer(plain, "group")
    client.uncommitted_consumer(plain, "group")
    client.member(plain, "group", "instance", 8.0, print)
    client.delivery_consumer(plain, "group", 8.0, print)
    client.request_consumer(plain, "group")
    client.record_producer(plain)
    client.admin(plain)
    names = {name for settings in made for name in settings} - {"on_commit"}
    assert len(made) == 8
    assert {name for name in names if not kafka.refused(name)} == set()


class Client:
    """As librdkafka: numbers the records of a request from the offset that the broker gives for the first."""

    def __init__(self, first):
        self.next = first

    def begin_transaction(self):
        pass

    def flush(self, _seconds):
        return 0

    init_transactions = poll = flush

    def produce(self, _topic, _value, _key, _partition, on_delivery=None, headers=None):
        offset, self.next = self.next, self.next + 1
        if on_delivery is not None:
            on_delivery(None, SimpleNamespace(offset=lambda: offset if offset >= 0 else None))


@pytest.mark.parametrize("many", [1, 2, 5])
@pytest.mark.parametrize(
    ("first", "is_taken"), [(-1, False), (-1001, False), ((1 << 63) - 1, False), (0, True), (7, True)]
)
def test_records_that_are_taken_at_no_offset_are_refused_however_many_they_are(monkeypatch, many, first, is_taken):
    """Two records from offset -1 on: the second one's is 0, and it alone is reported on."""
    monkeypatch.setattr(producer_module, "producer", lambda *_: Client(first))
    producer = KafkaProducer(None, "g.own.0", 1 << 20)
    producer.begin()
    producer.produce(Share("bank", 4, [b"k"] * many, [b"v"] * many))
    if is_taken:
        assert producer.flush(1) == {("bank", 4): first + many}
        return
    with pytest.raises(PartitionsFailed) as raised:
        producer.flush(1)
    assert raised.value.failed.keys() == {("bank", 4)}
