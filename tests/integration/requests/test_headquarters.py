"""Headquarters sees every region in what the edges send: idle and stuck differ, whoever is stuck (B14)."""

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from prometheus_client.parser import text_string_to_metric_families

from bridge.metrics import SourceMetrics
from bridge.service import PREFIX
from headrace.metrics.collector import names
from infra.local.server import free_port
from tests.bridge.bridge_file import bridge_file
from tests.rules.waiting import eventually

pytest_plugins = ["tests.bridge.fix_bridge"]


class Pipeline:
    """A database, its edge's file, and a bridge in this process; the bridge's file stays for the command."""

    def __init__(self, source, edge, bridge, path):
        self.source, self.edge, self.bridge, self.path = source, edge, bridge, path

    @property
    def figures(self):
        return self.bridge.bridge.registry.states[self.source].figures

    def ask(self, path):
        port = self.bridge.bridge.endpoint.port
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as refused:
            with refused:
                return refused.code, refused.read().decode()

    def row(self):
        """Return what the endpoint tells of the source."""
        (row,) = json.loads(self.ask("/status")[1])["sources"]
        return row

    def idle(self):
        """Whether no hop lags, by what is known at headquarters."""
        row = self.row()
        lags = [row[f"{hop}_lag_seconds"] for hop in ("captured", "accepted", "committed")]
        return row["state"] == "serving" and row["edge_state"] == "capturing" and lags == [0, 0, 0]


@pytest.fixture
def pipelines(edges, database, inside, tmp_path):
    """Return what makes a pipeline over a broker and a topic."""

    def make(bootstrap, topic, source):
        database.execute("create table t (id int primary key, note text)")
        settings = {"topic": topic, "metrics": f"127.0.0.1:{free_port()}", "port": free_port()}
        bridge = inside(bootstrap, {source: [0]}, **settings)
        path = bridge_file(tmp_path, bootstrap, {source: [0]}, **settings)
        edge = edges(database, f"amqp://127.0.0.1:{bridge.port}", source=source)
        edge.init()
        return Pipeline(source, edge, bridge, path)

    return make


def status(*arguments, columns=80):
    """Run `headrace status`; return exit code and output."""
    done = subprocess.run(
        [sys.executable, "-m", "headrace", "status", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
        env=os.environ | {"COLUMNS": str(columns)},
    )
    assert not done.stderr, done.stderr
    return done.returncode, done.stdout


@pytest.mark.long
def test_an_idle_region_lags_by_nothing_and_one_that_is_silent_does(pipelines, kafka, topic):
    here = pipelines(kafka.bootstrap, topic(), "hq/idle")
    with here.edge.running():
        here.edge.database.execute("insert into t select i, 'x' from generate_series(1, 100) i")
        eventually(lambda: here.figures.records and here.idle(), saying="an idle source lags by nothing")
        # Idle for many heartbeats, it still does.
        before = here.figures.batches
        eventually(lambda: here.figures.batches > before + 5 and here.idle())
        code, said = status("--config", here.path)
        assert code == 0
        assert "ready" in said
        assert f"{here.source} serving" in " ".join(said.split())
        # What it costs: edge and bridge are in this process.
        eventually(lambda: here.row()["edge_cpu_cores"], saying="the processor's share is a mean of ten seconds")
        answer = json.loads(status("--config", here.path, "--json")[1])
        (row,) = answer["sources"]
        assert answer["cpu_cores"] > 0
        assert min(answer["memory_bytes"], row["edge_memory_bytes"]) > 10 << 20
        assert row["kafka_bytes_per_second"] > row["wan_bytes_per_second"] > 0
        assert 0 <= row["in_flight_ratio"] <= 1
        assert any(line.split()[:1] == [here.source] and "%" in line for line in said.splitlines())
        assert max(map(len, said.splitlines())) <= 80
        values = {
            sample.name: sample.value
            for family in text_string_to_metric_families(here.ask("/metrics")[1])
            for sample in family.samples
        }
        missing = {
            "edge_safe_wal_bytes",
            "edge_spool_bytes",
            "edge_spool_limit_bytes",
            "commit_seconds",
            "stalled_seconds",
            "held",
            "edge_certificate_expiry_time_seconds",
            "edge_log_retention_seconds",
        }
        assert names(PREFIX, SourceMetrics) - {f"{PREFIX}_{name}" for name in missing} <= set(values)
        assert values["headrace_bridge_committed_records_total"] == 101
        assert values["headrace_bridge_committed_bytes_total"] > 101 * 20
        assert values["process_resident_memory_bytes"] > 10 << 20
        assert values["headrace_bridge_commit_seconds_count"] == values["headrace_bridge_transactions_total"]
        assert values["headrace_bridge_edge_heard"] == 1
    # It said that it was stopped; then only its silence tells.
    eventually(lambda: here.row()["edge_state"] == "stopped")
    eventually(lambda: here.row()["committed_lag_seconds"] > 2, saying="silence counts as lag")
    assert "has not been heard" in here.row()["warnings"][0]
    assert here.ask("/health/ready")[0] == 200


def test_with_the_bridge_stopped_lag_grows_at_the_edge_and_status_shows_what_is_durable(pipelines, kafka, topic):
    here = pipelines(kafka.bootstrap, topic(), "hq/stopped")
    with here.edge.running() as agent:
        here.edge.database.execute("insert into t values (1, 'a')")
        eventually(lambda: here.figures.records and here.idle())
        position = here.row()["position"]
        here.bridge.stop()
        here.edge.database.execute("insert into t values (2, 'b')")
        eventually(lambda: agent.figures.accepted_lag > 1, saying="lag grows while the bridge is stopped")
        assert agent.figures.state == "interconnect down"
        code, said = status("--config", here.path, "--json")
    assert code == 1
    answer = json.loads(said)
    assert answer["running"] is False
    assert "nobody answers" in answer["reason"]
    (row,) = answer["sources"]
    assert row["position"] == position
    assert row["committed_at"]
    # The same in the region, without an endpoint.
    code, said = status("--config", here.edge.path, columns=120)
    assert code == 1
    assert here.edge.checkpoint["acknowledged"] in said
    assert "not running" in said


@pytest.mark.long
def test_with_kafka_away_lag_grows_at_both_ends(pipelines, private_kafka):
    kafka = private_kafka()
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic("away", 1, 1)])["away"].result(30)
    here = pipelines(kafka.bootstrap, "away", "hq/away")
    with here.edge.running() as agent:
        here.edge.database.execute("insert into t values (1, 'a')")
        eventually(lambda: here.figures.records and here.idle())
        kafka.stop()
        here.edge.database.execute("insert into t values (2, 'b')")
        eventually(lambda: agent.figures.accepted_lag > 2, saying="lag grows at the edge")
        eventually(lambda: here.row()["committed_lag_seconds"] > 2, saying="lag grows at headquarters")


def test_a_bridge_that_never_met_kafka_lives_and_is_not_ready(inside):
    port = free_port()
    bridge = inside(f"127.0.0.1:{port}", {"hq/early": [0]}, topic="early", metrics=f"127.0.0.1:{free_port()}")
    here = Pipeline("hq/early", None, bridge, None)
    eventually(lambda: bridge.bridge.endpoint, saying="the endpoint listens")

    def refused():
        code, said = here.ask("/health/ready")
        return code == 503 and f"Kafka at 127.0.0.1:{port} does not answer" in json.loads(said)["reason"]

    eventually(refused, saying="it says what it waits for")
    assert here.ask("/health/live")[0] == 200
    assert here.row()["state"] == "starting"
