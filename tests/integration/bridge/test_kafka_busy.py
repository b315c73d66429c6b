"""A transaction's records and a broker that is slow or frozen for a while: no partition is blamed for waiting behind others."""

import itertools
import os
import signal
import threading
import time

import pytest

from bridge.kafka import producer as producer_module
from bridge.kafka.producer import KafkaProducer
from bridge.model.ports import Share
from headrace.configuration.kafka import KafkaConnection

PARTITIONS = 60
#: Enough that Kafka has not all of them when it reports the first.
VALUE = os.urandom(400_000)


@pytest.fixture
def slowed(kafka):
    """Return what freezes the broker after some numbers of reports, each time for so many seconds."""
    timers = []

    def slow(producer, pauses):
        numbers, report = itertools.count(1), producer._reported

        def reported(*arguments):
            report(*arguments)
            if seconds := pauses.get(next(numbers)):
                os.kill(kafka.pid, signal.SIGSTOP)
                timers.append(threading.Timer(seconds, os.kill, (kafka.pid, signal.SIGCONT)))
                timers[-1].start()

        producer._reported = reported

    yield slow
    for timer in timers:
        timer.cancel()
    os.kill(kafka.pid, signal.SIGCONT)


@pytest.mark.parametrize(
    "pauses",
    [{1: 3.5}, dict.fromkeys(range(1, PARTITIONS, 6), 0.5)],
    ids=["frozen once", "slow for each"],
)
def test_a_broker_that_takes_partitions_slowly_takes_all_of_them(kafka, topic, slowed, pauses):
    name = topic(partitions=PARTITIONS)
    producer = KafkaProducer(KafkaConnection(bootstrap=kafka.bootstrap), f"busy-{name}", 1 << 20)
    slowed(producer, pauses)
    try:
        producer.begin()
        for number in range(PARTITIONS):
            producer.produce(Share(name, number, [b"k"], [VALUE]))
        ends = producer.flush(20)
        producer.abort(20)
    finally:
        producer.discard()
    assert ends == {(name, number): 1 for number in range(PARTITIONS)}


def test_a_client_that_still_waits_when_all_partitions_are_reported_is_waited_for(kafka, topic, monkeypatch):
    monkeypatch.setattr(producer_module, "_PARTIAL_SECONDS", 0.1)
    name = topic()
    producer = KafkaProducer(KafkaConnection(bootstrap=kafka.bootstrap), f"busy-{name}", 1 << 20)
    client, waits = producer._producer, iter([1] * 5)

    class Waiting:
        def __getattr__(self, called):
            return getattr(client, called)

        def flush(self, seconds):
            time.sleep(seconds)
            return client.flush(seconds) or next(waits, 0)

    try:
        producer.begin()
        producer.produce(Share(name, 0, [b"k"], [b"v"]))
        producer._producer = Waiting()
        assert producer.flush(20) == {(name, 0): 1}
        producer._producer = client
        producer.abort(20)
    finally:
        producer.discard()
