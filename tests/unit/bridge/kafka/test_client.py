"""The administration client is made anew when it is of no use, and not more often than that takes; errors have words."""

import logging
from concurrent.futures import Future
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException

from bridge.kafka import client, errors
from bridge.kafka import producer as producer_module
from bridge.kafka.lifetime import Lifetime, cluster, other_addresses
from bridge.kafka.producer import KafkaProducer
from bridge.model.ports import PartitionsFailed, Share
from headrace import waiting
from headrace.configuration import kafka
from headrace.configuration.kafka import KafkaConnection
from headrace.errors import NeedsOperator, NotConnected, Retryable


@pytest.fixture
def book(request):
    made = cluster(f"{request.node.name}:1, b:1")
    made.note("c", [f"{request.node.name}:1", "b:1"])
    return made


def asked(book):
    return book.bootstrap.split(",")


def test_new_clients_ask_where_brokers_were_reported_last_and_what_the_file_names(book, caplog):
    first, second = asked(book)
    assert (first.endswith(":1"), second) == (True, "b:1")
    with caplog.at_level(logging.INFO):
        book.note("c", ["b:1", "a:2", "[fd00::1]:9092"])
    assert asked(book) == [first, second, "[fd00::1]:9092", "a:2"]
    assert "brokers are now at [fd00::1]:9092, a:2, b:1" in caplog.text
    # Where a broker answers that knows of none, that is no news.
    book.note("c", [])
    assert "a:2" in asked(book)
    book.note("c", ["a:3"])
    assert asked(book) == [first, second, "a:3"]


def test_what_no_broker_has_for_an_address_ends_no_client(book):
    before = asked(book)
    book.note("c", ["a,b:1", "\n:1", ":", "x" * 10, "a:123456", "z:1"])
    assert asked(book) == [*before, "z:1"]
    book.note("c", [f"host-{number}:1" for number in range(10_000)])
    assert len(asked(book)) == 2 + 50


def test_addresses_of_another_cluster_are_refused(book):
    before = asked(book)
    with pytest.raises(NeedsOperator, match="of the cluster d, and those before were of c"):
        book.note("d", ["other:1"])
    assert asked(book) == before


def test_those_of_a_changed_file_are_taken_where_they_prove_right(book):
    key, former = asked(book)[0] + ", b:1", asked(book)
    before = Lifetime(KafkaConnection(bootstrap=key))
    # when nobody answers there, or another cluster, then the former ones stay
    with pytest.raises(NotConnected), other_addresses(key, "n:1"):
        raise NotConnected("no answer")
    with pytest.raises(NeedsOperator), other_addresses(key, "n:1"):
        cluster("n:1").note("d", ["d:1"])
    assert asked(cluster(key)) == former
    assert not before.is_stale()
    # when they are right, connections of the former file go on with them alone, and with further ones later
    for named in ("n:1", "m:1", key):
        with other_addresses(key, named):
            cluster(named).note("c", ["c:1"])
        assert asked(cluster(key))[0] == asked(cluster(named))[0] == named.split(",")[0]
        # and all that were made before are made again
        assert before.is_stale()
    assert not before.is_stale()


def test_an_administration_client_is_made_anew_once_it_had_its_time(monkeypatch):
    clients = []
    monkeypatch.setattr(client, "AdminClient", lambda _settings, **_more: clients.append(1))
    shared = client.admin(KafkaConnection(bootstrap="127.0.0.1:1"))
    shared.renew()
    assert len(clients) == 1
    monkeypatch.setattr(client, "TIMEOUT", 0.0)
    shared.renew()
    assert len(clients) == 2
    assert list(shared.refusals) == []


class Silent:
    """An administration client that does not answer a request, whatever its time limit is, as librdkafka 2.16."""

    def describe_consumer_groups(self, names, request_timeout):
        return {name: Future() for name in names}

    def list_consumer_groups(self, request_timeout):
        return Future()

    def list_topics(self, timeout):
        return timeout

    def poll(self, timeout):
        return 0


def test_an_answer_that_never_comes_is_not_waited_for_without_end(monkeypatch):
    """The thread of the group's membership waited for one: after a crash of Kafka's the bridge served nothing more."""
    monkeypatch.setattr(waiting, "_BEYOND_SECONDS", 0.0)
    monkeypatch.setattr(client, "AdminClient", lambda _settings, **_more: Silent())
    shared = client.admin(KafkaConnection(bootstrap="127.0.0.1:1"))
    with pytest.raises(NotConnected), errors.translated("read the group", shared):
        shared.describe_consumer_groups(["g"], request_timeout=0.01)["g"].result()
    with pytest.raises(KafkaException):
        shared.list_consumer_groups(request_timeout=0.01).result()
    assert shared.list_topics(timeout=5) == 5


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
    producer = KafkaProducer(KafkaConnection(bootstrap="k:1"), "g.own.0", 1 << 20)
    producer.begin()
    producer.produce(Share("bank", 4, [b"k"] * many, [b"v"] * many))
    if is_taken:
        assert producer.flush(1) == {("bank", 4): first + many}
        return
    with pytest.raises(PartitionsFailed) as raised:
        producer.flush(1)
    assert raised.value.failed.keys() == {("bank", 4)}
