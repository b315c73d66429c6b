"""K1: clients of Kafka are made again when what they read at their making has changed."""

import logging

import pytest

from bridge.kafka import client, producer
from bridge.kafka.lifetime import Lifetime, Renewal, cluster
from bridge.kafka.producer import KafkaProducer, RecordWriter
from bridge.positions.read import Positions
from bridge.withheld.releaser import KafkaReader
from headrace.certificates.command import Authority
from headrace.configuration.kafka import KafkaConnection
from headrace.configuration.secret import Secret


@pytest.fixture
def watched(tmp_path):
    """Return a renewal over a certificate and a password, how often it renewed, and what moves its clock."""
    authority = Authority(tmp_path)
    certificate = authority.client("bridge")
    password = tmp_path / "password"
    password.write_text("one")
    connection = KafkaConnection(
        bootstrap="localhost:1",
        security_protocol="SASL_SSL",
        user="bridge",
        password=Secret(f"file:{password}"),
        authority=authority.certificate_file,
        certificate=certificate,
        key=certificate.with_suffix(".key"),
    )
    now, lifetime, renewals = [0.0], Lifetime(connection), []
    renewal = Renewal(connection, lambda: now[0])

    def look(times=3):
        for _ in range(times):
            now[0] += 3
            renewal.look()
            renewals.extend([1] * lifetime.is_stale())
        return len(renewals)

    return authority, password, look


def test_clients_are_renewed_once_after_each_change_of_certificate_or_password(watched):
    authority, password, look = watched
    assert look(5) == 0
    authority.client("bridge")
    assert look() == 1
    assert look(5) == 1
    password.write_text("another")
    assert look() == 2
    assert look(5) == 2


def test_files_that_do_not_fit_each_other_are_not_used_and_those_that_do_are_used_later(watched, caplog):
    authority, _, look = watched
    certificate, key = authority.folder / "bridge.pem", authority.folder / "bridge.key"
    former = key.read_bytes()
    authority.client("bridge")
    fresh = key.read_bytes()
    key.write_bytes(former)
    with caplog.at_level(logging.WARNING):
        assert look() == 0
    assert "is not the key of the certificate" in caplog.text
    assert str(certificate) in caplog.text
    key.write_bytes(fresh)
    assert look() == 1


class Producer:
    def __init__(self):
        self.waiting = []
        self.error = None

    def produce(self, _topic, value, _key, headers, on_delivery):
        self.waiting.append(on_delivery)

    def poll(self, _seconds):
        if self.error is None:
            self._report()

    def flush(self, seconds):
        self.poll(seconds)

    def purge(self):
        self.error = None

    def __len__(self):
        return len(self.waiting)

    def _report(self):
        waiting, self.waiting = self.waiting, []
        for report in waiting:
            report(None, None)


def test_a_writer_that_writes_nothing_for_long_goes_on_with_a_new_client(monkeypatch):
    """K1: the writers of answers and dead letters were never made again."""
    producers, now = [], [0.0]
    monkeypatch.setattr("bridge.kafka.lifetime.time.monotonic", lambda: now[0])
    monkeypatch.setattr(producer, "record_producer", lambda _connection: producers.append(Producer()) or producers[-1])
    writer = RecordWriter(KafkaConnection(bootstrap="w:1"), "answers")
    now[0] = 1000.0
    writer.poll()
    assert len(producers) == 1
    producers[0].error = "not reached"
    reported = []
    writer.write(None, b"", reported.append)
    for _ in range(100):
        now[0] += 1
        writer.poll()
    assert len(producers) == 2
    # what was on its way is reported, so that its owner writes it again where it was not taken
    assert len(reported) == 1
    cluster("w:1").generation += 1
    writer.poll()
    assert len(producers) == 3


def test_every_client_is_made_again_once_files_have_changed(monkeypatch):
    """Each kind is made in bridge/kafka/client.py, and its owner asks whether its time is over before it uses it."""
    connection, clients = KafkaConnection(bootstrap="renewed:1"), []
    for kind in ("Producer", "Consumer", "AdminClient"):
        monkeypatch.setattr(client, kind, lambda settings, **_more: clients.append(Consumer(settings)) or clients[-1])
    admin, positions, reader = (
        client.admin(connection),
        Positions(connection, None, "g", {}),
        KafkaReader(connection, "g", None),
    )
    writer, producer = RecordWriter(connection, "answers"), KafkaProducer(connection, "b.0", 1 << 20)
    lifetime = Lifetime(connection)
    uses = [
        lambda: admin.poll(0),
        positions._client.get,
        reader._client.get,
        writer.poll,
        producer.is_stale,
        lifetime.is_over,
    ]
    for again in (False, True):
        first = [bool(use()) for use in uses]
        many = len(clients)
        # nothing is made twice for one change
        second = [bool(use()) for use in uses]
        assert (len(clients), first[-2:], second[-2:]) == (many, [again, again], [False, False])
        assert many == (5 if not again else 9)
        cluster(connection.bootstrap).generation += 1


class Consumer:
    """Any of librdkafka's clients."""

    def __init__(self, settings):
        self.settings = settings

    def __len__(self):
        return 0

    def poll(self, _seconds):
        return 0

    flush = init_transactions = poll

    def purge(self):
        pass

    close = purge
