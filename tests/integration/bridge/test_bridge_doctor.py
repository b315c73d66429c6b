"""`headrace bridge doctor` finds what would keep a bridge from its work, and changes nothing."""

import json
import subprocess
import sys

from confluent_kafka.admin import AdminClient

from bridge.doctor import examine
from headrace.configuration.bridge import BridgeFile
from headrace.configuration.load import load
from infra.local.server import free_port
from tests.amqp.edge_double import message, send
from tests.bridge.bridge_file import bridge_file
from tests.edge.source_log import cut, log

pytest_plugins = ["tests.bridge.fix_bridge"]


def found(path, *levels):
    return [
        (each.check, each.level, each.text)
        for each in examine(load(path, BridgeFile))
        if not levels or each.level in levels
    ]


def test_a_bridge_that_is_ready_to_run_has_nothing_wrong(kafka, topic, tmp_path):
    name = topic()
    path = bridge_file(tmp_path, kafka.bootstrap, {"doctor/bank": [0]}, topic=name, port=free_port())
    assert found(path, "wrong") == []
    # One broker, as on any machine for trials.
    assert found(path, "warning") == [("topic", "warning", f"{name}: 1 replica: it is lost with a broker's disk")]
    said = " ".join(said for _, _, said in found(path, "ok"))
    assert "1 brokers at" in said
    assert "doctor/bank: none yet" in said
    assert "'headrace bridge run' will" in said


def test_topics_of_requests_that_are_missing_are_wrong(kafka, topic, tmp_path):
    name, requests = topic(), topic()
    more = f'\n[requests]\ntopic = "{requests}"\n'
    path = bridge_file(tmp_path, kafka.bootstrap, {"doctor/bank": [0]}, topic=name, port=free_port(), more=more)
    assert found(path, "wrong") == [("requests", "wrong", f"topic 'headrace.{name}.answers' is not in Kafka")]
    topic(name=f"headrace.{name}.answers")
    assert found(path, "wrong") == []
    assert ("requests", "ok", f"{requests} and headrace.{name}.answers are there") in found(path)


def test_what_run_would_refuse_is_wrong_topic_by_topic_and_source_by_source(kafka, topic, inside, tmp_path):
    name, source = topic(partitions=2), "doctor/moved"
    (batch,) = cut(source, log(source, 20), lambda: 20)
    bridge = inside(kafka.bootstrap, {source: [0]}, topic=name)
    assert send(bridge.port, f"cdc/{source}", [message(batch)])[0].state == "accepted"
    settings = {"topic": name, "url": f"amqp://127.0.0.1:{free_port()}"}
    path = bridge_file(tmp_path, kafka.bootstrap, {source: [1], "doctor/other": [5]}, **settings)
    wrong = found(path, "wrong")
    assert [check for check, _, _ in wrong] == ["topic", "position", "interconnect"]
    assert "has 2 partitions, its sources own 6" in wrong[0][2]
    assert f"owned {name}[0] until now" in wrong[1][2]
    assert "refused" in wrong[2][2]
    # Nothing was made.
    assert (
        len(
            AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
            .list_topics(name)
            .topics[name]
            .partitions
        )
        == 2
    )


def test_the_command_ends_with_3_when_something_is_wrong(kafka, tmp_path):
    path = bridge_file(tmp_path, kafka.bootstrap, {"doctor/none": [0]}, topic="doctor-never-made", port=free_port())
    done = subprocess.run(
        [sys.executable, "-m", "headrace", "bridge", "doctor", "--json", "--config", str(path)],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 3, done.stderr
    (topic,) = [each for each in json.loads(done.stdout) if each["check"] == "topic"]
    assert topic["fix"] == "Run 'headrace bridge init' to make it."


def test_a_kafka_that_is_away_is_one_finding_and_the_rest_is_looked_at(tmp_path, monkeypatch):
    monkeypatch.setattr("bridge.doctor.TIMEOUT", 1.0)
    path = bridge_file(tmp_path, f"127.0.0.1:{free_port()}", {"doctor/away": [0]}, topic="away", port=free_port())
    assert [check for check, _, _ in found(path, "wrong")] == ["kafka"]
    assert [check for check, _, _ in found(path, "ok")] == ["open files", "interconnect"]
