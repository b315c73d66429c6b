"""A transaction's records and a broker that is slow or frozen for a while: no partition is blamed for waiting behind others."""

import itertools
import os
import signal
import threading

import pytest

from bridge.kafka.ports import Share
from bridge.kafka.producer import KafkaProducer
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
