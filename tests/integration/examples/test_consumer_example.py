"""A user's own consumer beside ours: killed and started again, it counts each change once, from the offsets of its own group."""

import sqlite3
import subprocess
import sys
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from headrace.configuration.kafka import KafkaConnection
from spark_jobs.bronze import load as bronze
from spark_jobs.kafka import topics
from spark_jobs.kafka.client import Place
from tests.rules.waiting import eventually

EXAMPLE = Path(__file__).parents[3] / "examples" / "consumer" / "consumer.py"


class Batch:
    """The example, run on one topic."""

    def __init__(self, bootstrap, topic, folder):
        self.database = folder / "count.sqlite"
        self.group = f"count-{topic}"
        self._bootstrap = bootstrap
        self._command = [
            *(sys.executable, EXAMPLE, "--bootstrap", bootstrap, "--topic", topic),
            *("--group", self.group, "--database", self.database),
        ]

    def run(self) -> str:
        return subprocess.run(self._command, capture_output=True, text=True, timeout=180, check=True).stdout

    @contextmanager
    def follow(self):
        """Yield the example as it follows, which is killed at the latest in the end."""
        with subprocess.Popen([*self._command, "--follow"], stdout=subprocess.DEVNULL) as running:
            try:
                yield running
            finally:
                running.kill()

    def go_back(self, topic, offset):
        """Commit an offset in the batch's place, as if it had not come further."""
        member = {"bootstrap.servers": self._bootstrap, "group.id": self.group, "group.instance.id": self.group}
        with closing(Consumer(member | {"enable.auto.commit": False})) as consumer:
            consumer.subscribe([topic])
            eventually(lambda: consumer.poll(0.1) or consumer.assignment(), saying="it has the group's place")
            consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)

    def counts(self):
        with closing(sqlite3.connect(f"file:{self.database}?mode=ro", uri=True, timeout=60)) as database:
            return dict(database.execute("SELECT name || ' ' || op, changes FROM counts").fetchall())


@pytest.fixture
def source(feed):
    return feed("jakarta/bank")


@pytest.fixture
def batch(kafka, source, tmp_path):
    return Batch(kafka.bootstrap, source.topic, tmp_path)


def test_it_goes_on_from_its_last_offset_and_sees_nothing_that_was_taken_back(source, batch):
    source.commit(source.schema(), source.insert(id=1, name="Ana", balance="1"), source.insert(id=2))
    first = batch.run()
    source.commit(source.insert(id=3), abort=True)
    source.commit(source.update(id=1, name="Eve", balance="2"), source.delete(id=2))

    second = batch.run()

    assert first == "partition 0: from the beginning\n"
    # Behind the last record, or behind its transaction's marker.
    assert second in {"partition 0: from 3\n", "partition 0: from 4\n"}
    assert batch.counts() == {"public.accounts c": 2, "public.accounts u": 1, "public.accounts d": 1}


def test_killed_at_work_it_counts_each_change_once(source, batch):
    source.commit(source.schema(), source.insert(id=0))
    with batch.follow() as running:
        for number in range(1, 40):
            source.commit(source.insert(id=number), source.insert(id=-number))
            if number == 20:
                eventually(batch.counts, saying="it counts")
                running.kill()

    batch.run()

    assert batch.counts() == {"public.accounts c": 79}


def test_what_is_read_again_is_not_counted_again_and_our_group_is_none_of_its_business(kafka, source, batch):
    # Given a batch that died after its result was safe and before its offsets were; and the lake's own place.
    topics.mirror(KafkaConnection(bootstrap=kafka.bootstrap), bronze.group("bank"), {Place(source.topic, 0): 1})
    source.commit(source.schema(), *(source.insert(id=number) for number in range(10)))
    batch.run()
    batch.go_back(source.topic, 4)

    said = batch.run()

    assert said == "partition 0: from 4\n"
    assert batch.counts() == {"public.accounts c": 10}
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    asked = [ConsumerGroupTopicPartitions(bronze.group("bank"), [TopicPartition(source.topic, 0)])]
    (place,) = admin.list_consumer_group_offsets(asked)[bronze.group("bank")].result(60).topic_partitions
    assert place.offset == 1
