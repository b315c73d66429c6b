"""Deliveries while bridges and the receiver are killed: by id each record once at the receiver, in order, none missed."""

import random
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from infra.local.server import free_port
from tests.bridge.bridge_file import bridge_file
from tests.integration.requests.deliveries import is_all_committed, produce, section
from tests.rules.waiting import eventually

RECEIVER = Path(__file__).parents[3] / "examples" / "receiver" / "receiver.py"
KEYS = [f"jakarta/{branch}" for branch in range(12)]
ROUNDS, EACH = 10, 15


class Example:
    """The receiver of examples/, as a process."""

    def __init__(self, ports, database, log):
        self._command = [sys.executable, str(RECEIVER), "--address", "alerts/jakarta", "--database", str(database)]
        for port in ports:
            self._command += ["--connect", f"amqp://127.0.0.1:{port}"]
        self._database, self._log = database, log
        self.start()

    def start(self):
        with self._log.open("ab") as out:
            self._process = subprocess.Popen(self._command, stdout=out, stderr=out)

    def kill(self):
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(60)

    def rows(self):
        """Return id, key and number of each row, in the order in which they were written."""
        with closing(sqlite3.connect(self._database)) as database:
            return database.execute("SELECT id, key, CAST(body AS INTEGER) FROM alerts ORDER BY rowid").fetchall()


@pytest.fixture
def example(tmp_path):
    examples = []

    def start(ports):
        examples.append(Example(ports, tmp_path / "alerts.sqlite", tmp_path / "receiver.log"))
        return examples[-1]

    yield start
    for each in examples:
        each.kill()


def test_each_alert_counts_once_in_order_while_two_bridges_and_the_receiver_are_killed(
    kafka, topic, outside, example, tmp_path
):
    alerts, stream = topic(4), topic()
    topic(name=f"{alerts}.dead-letters")
    ports = [free_port(), free_port()]
    files = [
        bridge_file(
            tmp_path,
            kafka.bootstrap,
            {"jakarta/bank": [0]},
            topic=stream,
            port=port,
            sharing=f"sharing.{stream}",
            more=section(alerts),
        )
        for port in ports
    ]
    bridges = [outside(path=file) for file in files]
    receiver = example(ports)
    chance = random.Random(7)

    for number in range(ROUNDS):
        produce(
            kafka.bootstrap,
            alerts,
            [(key.encode(), EACH * number + each) for each in range(EACH) for key in KEYS],
        )
        # Somewhere in the middle of what was just written.
        least = len(KEYS) * EACH * number + chance.randrange(len(KEYS) * EACH)
        eventually(lambda least=least: len(receiver.rows()) >= least // 2, 120, saying="records arrive")
        if number % 4 == 1:
            which = number // 4 % 2
            bridges[which].kill()
            bridges[which] = outside(path=files[which])
        elif number % 2 == 0:
            receiver.kill()
            receiver.start()

    expected = len(KEYS) * EACH * ROUNDS
    eventually(lambda: len(receiver.rows()) >= expected, 120, saying="none is missed")
    rows = receiver.rows()
    assert len(rows) == len({number for number, *_ in rows}) == expected
    for key in KEYS:
        assert [number for _, each, number in rows if each == key] == list(range(EACH * ROUNDS))
    eventually(lambda: is_all_committed(kafka.bootstrap, f"headrace.{stream}.deliveries.alerts", alerts), 60)
    assert [bridge.terminate() for bridge in bridges] == [0, 0]
