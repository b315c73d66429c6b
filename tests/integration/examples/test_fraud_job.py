"""What finds frauds in the fraud example, as a process on real Kafka: the Spark job and the consumer without Spark."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.integration.requests.deliveries import produce
from tests.kafka.reading import read_committed
from tests.rules.waiting import eventually

EXAMPLE = Path(__file__).parents[3] / "examples" / "fraud"
TEST = {"kind": "payment", "merchant": "surveys.example", "place": "Jakarta", "amount": "1.00"}
LARGE = {"kind": "withdrawal", "merchant": None, "place": "Bedok", "amount": "400.00"}


def change(number, card, *, op="c", source="jakarta/cards", minute=0, branch="jakarta/branch-1", **row):
    """Return a record as an edge writes it."""
    made_at = f"2026-01-31T09:{minute:02}:00.25Z"
    after = {"id": number, "card": card, "branch": branch} | row | {"made_at": made_at}
    position = f"692010c0/{number:016x}/00000000"
    about = {"name": source, "schema": "public", "table": "transactions", "position": position}
    return None, {"before": None, "after": after, "source": about, "op": op}


class Finder:
    """The job, or the consumer without Spark."""

    def __init__(self, name, bootstrap, topic, alerts, folder):
        self._command = [sys.executable, str(EXAMPLE / f"{name}.py"), "--bootstrap", bootstrap]
        self._command += ["--topic", topic, "--alerts", alerts]
        if name == "job":
            self._command += ["--checkpoint", str(folder / "checkpoint")]
        self._bootstrap, self._alerts = bootstrap, alerts
        self._log = folder / "finder.log"
        self._environment = os.environ | {"TMPDIR": str(folder)}
        self._process = None

    def start(self, *more):
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._command, *more], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._environment
            )

    def kill(self):
        if self._process is not None:
            self._process.kill()
            self._process.wait(60)

    def ends(self, seconds=180):
        """Wait until it has ended by itself, and return its output."""
        assert self._process.wait(seconds) != 0
        return self._log.read_text()

    def alerts(self):
        """Return key and body of each alert by its id; copies have to be equal."""
        results = {}
        for record in read_committed(self._bootstrap, self._alerts):
            number = json.loads(record.value)["id"]
            assert results.setdefault(number, (record.key, record.value)) == (record.key, record.value)
        return results

    def wait_for(self, *ids):
        def there():
            assert self._process.poll() is None
            return self.alerts().keys() >= set(ids)

        try:
            eventually(there, 180, saying="alerts")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.alerts().keys()}\n{self._log.read_text()[-3000:]}") from None


@pytest.fixture
def finder(kafka, topic, tmp_path):
    finders = []

    def make(name, records):
        finders.append(Finder(name, kafka.bootstrap, records, topic(2), tmp_path))
        return finders[-1]

    yield make
    for each in finders:
        each.kill()


def pair(card, test, withdrawal, other="jakarta/cards"):
    return f"jakarta/cards:{test}+{other}:{withdrawal}"


@pytest.mark.parametrize("name", [pytest.param("job", marks=pytest.mark.long), "plain"])
def test_each_fraud_is_found_among_other_records_and_again_after_a_kill(name, kafka, topic, finder):
    records = topic(2)
    result = finder(name, records)
    # Given frauds by insert, by a snapshot's rows, across sources and in the wrong order; and what is none.
    produce(
        kafka.bootstrap,
        records,
        [
            (None, b'{"source":{"name":"jakarta/cards","table":"transactions"},"tableChanges":[]}'),
            (None, b"no JSON"),
            (None, {"op": "c", "source": {"name": "jakarta/cards", "table": "transactions"}, "after": {"id": 99}}),
            change(1, "a", **TEST),
            change(2, "a", minute=10, **LARGE),
            change(3, "b", op="r", **TEST),
            change(4, "b", op="r", minute=1, **LARGE),
            change(6, "c", minute=1, source="singapore/cards", **LARGE),
            change(5, "c", **TEST),
            change(7, "without a branch", branch=None, **TEST),
            change(8, "without a branch", branch=None, minute=1, **LARGE),
            change(11, "too late", **TEST),
            change(12, "too late", minute=11, **LARGE),
            change(13, "an update", **TEST),
            change(14, "an update", op="u", minute=1, **LARGE),
            change(21, "d", **TEST),
        ],
    )
    aborted(kafka.bootstrap, records, change(22, "d", minute=2, **LARGE))
    first = [
        pair("a", 1, 2),
        pair("b", 3, 4),
        pair("c", 5, 6, "singapore/cards"),
        pair("without a branch", 7, 8),
    ]
    # When it runs, is killed and started again, and the second half of a fraud comes after that; others come again.
    result.start()
    result.wait_for(*first)
    result.kill()
    produce(
        kafka.bootstrap,
        records,
        [
            change(2, "a", op="r", minute=10, **LARGE),
            change(3, "b", **TEST),
            change(23, "d", minute=3, **LARGE),
        ],
    )
    result.start()
    result.wait_for(pair("d", 21, 23))

    alerts = result.alerts()
    assert sorted(alerts) == sorted([*first, pair("d", 21, 23)])
    assert {key for key, _ in alerts.values()} == {b"jakarta/branch-1", None}
    assert alerts[pair("", 7, 8)][0] is None
    assert json.loads(alerts[first[0]][1]) == {
        "id": "jakarta/cards:1+jakarta/cards:2",
        "card": "a",
        "test": {"id": "jakarta/cards:1", "place": "Jakarta", "amount": "1.00", "at_ms": 1769850000250},
        "withdrawal": {"id": "jakarta/cards:2", "place": "Bedok", "amount": "400.00", "at_ms": 1769850600250},
    }


@pytest.mark.long
def test_spark_refuses_state_in_real_time_mode(topic, finder):
    """When this fails, Spark supports it: then the example can have a second mode."""
    result = finder("job", topic(2))

    result.start("--real-time")

    assert "[STREAM_FAILED]" in result.ends()
    assert "[STDS_FAILED_TO_READ_OPERATOR_METADATA]" in result.ends()


def aborted(bootstrap, topic, record):
    """Write a record in a transaction that is aborted."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"aborted-{topic}"})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, json.dumps(record[1]).encode())
    producer.flush(60)
    producer.abort_transaction(60)
