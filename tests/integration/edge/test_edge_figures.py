"""What an edge says of itself is so: lag, health and metrics while idle, stuck, cut off, and at its end (B14)."""

import json
import urllib.error
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from edge.answers.handlers import PREFIX
from edge.observability.figures import Figures
from headrace import __version__
from headrace.metrics.collector import names
from tests.rules.waiting import eventually

LISTEN = '[metrics]\nlisten = "127.0.0.1:0"'


def ask(agent, path):
    """Return code and answer of a running agent's endpoint."""
    endpoint = eventually(lambda: agent.agent.endpoint, saying="the endpoint listens")
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{endpoint.port}{path}", timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.read().decode()


def health(agent, which="ready"):
    code, said = ask(agent, f"/health/{which}")
    said = json.loads(said)
    assert said["well"] == (code == 200)
    return code, said["reason"]


def scraped(agent):
    code, text = ask(agent, "/metrics")
    assert code == 200
    return {sample.name: sample.value for family in text_string_to_metric_families(text) for sample in family.samples}


def look(figures):
    """Wait until the server was looked at once more."""
    before = figures.log_clock._looked_at
    eventually(lambda: figures.log_clock._looked_at > before, saying="a look at the server")


def is_idle(figures):
    return figures.captured_lag == 0 and figures.accepted_lag == 0 and figures.state == "capturing"


@pytest.fixture
def watched(edges, database, interconnects):
    """Return an initialised edge with an endpoint, and its far side."""
    database.execute("create table t (id int primary key, note text)")
    far = interconnects()
    edge = edges(database, far.url, rest=LISTEN)
    edge.init()
    return edge, far


def test_an_idle_source_lags_by_nothing_and_is_ready(watched):
    edge, _ = watched
    with edge.running() as agent:
        edge.database.execute("insert into t values (1, 'a')")
        eventually(lambda: agent.figures.captured and is_idle(agent.figures))
        for _ in range(4):
            look(agent.figures)
            eventually(lambda: is_idle(agent.figures))
        # The server may have written something by itself between two looks.
        eventually(lambda: agent.figures.server_lsn <= agent.figures.read_lsn)
        assert health(agent) == (200, "capturing")
        assert health(agent, "live")[0] == 200


def test_log_of_other_databases_is_not_lag(watched):
    edge, _ = watched
    with edge.running() as agent:
        eventually(lambda: is_idle(agent.figures))
        before = agent.figures.read_lsn
        edge.database.postgres.psql("create table if not exists elsewhere (id int); insert into elsewhere values (1)")
        eventually(lambda: agent.figures.read_lsn > before and is_idle(agent.figures))
        edge.database.postgres.psql("drop table elsewhere")


def test_with_the_interconnect_away_lag_grows_and_ends_when_it_is_back(edges, database, interconnect, proxies):
    database.execute("create table t (id int primary key, note text)")
    wire = proxies("127.0.0.1", interconnect.port)
    edge = edges(database, f"amqp://127.0.0.1:{wire.port}", rest=LISTEN)
    edge.init()
    with edge.running() as agent:
        eventually(lambda: is_idle(agent.figures))
        wire.stop()
        database.execute("insert into t values (1, 'a')")
        eventually(lambda: agent.figures.accepted_lag > 1.0, saying="the accepted lag grows")
        # What is read is not behind.
        eventually(lambda: agent.figures.captured_lag == 0)
        assert agent.figures.unacknowledged_batches >= 1
        code, reason = health(agent)
        assert code == 503
        assert reason.startswith("interconnect down: ")
        assert health(agent, "live")[0] == 200
        assert scraped(agent)["headrace_edge_interconnect_connected"] == 0
        wire.start()
        eventually(lambda: interconnect.changes and is_idle(agent.figures), saying="no lag any more")
        assert health(agent) == (200, "capturing")


def test_a_far_side_that_takes_batches_and_accepts_none_makes_lag_grow(watched):
    edge, far = watched
    with edge.running() as agent:
        eventually(lambda: is_idle(agent.figures))
        far.hold()
        edge.database.execute("insert into t values (1, 'a')")
        eventually(lambda: agent.figures.accepted_lag > 1.0, saying="the accepted lag grows")
        eventually(lambda: agent.figures.captured_lag == 0)
        # It is connected all the same, and soon it counts as stuck.
        assert agent.figures.interconnect_connected
        assert agent.figures.stuck > 0.5
        agent.figures.accepted_at -= 40
        code, reason = health(agent)
        assert code == 503
        assert "none accepted for" in reason
        far.let_go()
        eventually(lambda: is_idle(agent.figures), saying="no lag any more")


def test_with_the_database_away_lag_grows_and_the_far_side_hears_why(edges, database, interconnect, proxies, postgres):
    database.execute("create table t (id int primary key, note text)")
    wire = proxies("127.0.0.1", postgres.port)
    edge = edges(database, interconnect.url, rest=LISTEN, port=wire.port)
    edge.init()
    with edge.running() as agent:
        eventually(lambda: is_idle(agent.figures))
        wire.stop()
        database.execute("insert into t values (1, 'a')")
        eventually(lambda: agent.figures.captured_lag > 2.0, saying="the captured lag grows")
        code, reason = health(agent)
        assert code == 503
        assert reason.startswith("database down: ")

        def heard():
            figures = interconnect.arrived[-1][0].figures
            return figures.get("state") == "database down" and figures["captured_lag_seconds"] > 2.0

        eventually(heard, saying="the far side hears of it")
        wire.start()
        eventually(lambda: interconnect.changes and is_idle(agent.figures), saying="no lag any more")


def test_the_last_batch_of_an_edge_that_needs_an_operator_says_so(watched):
    edge, far = watched
    with edge.running() as agent:
        eventually(lambda: is_idle(agent.figures))
        edge.database.execute(f"drop publication {edge.database.name}")
        error = agent.ended()

    def said():
        return far.arrived[-1][0].figures

    eventually(lambda: said()["state"] == "needs an operator", saying="the far side hears of it")
    assert said()["reason"] == error.message[:300]


def late(far, first):
    """Return the figures of the batches that arrived from one on."""
    return [batch.figures for batch, _ in far.arrived[first:]]


def test_every_batch_s_figures_tell_version_lag_and_state(watched):
    edge, far = watched
    with edge.running() as agent:
        eventually(lambda: is_idle(agent.figures))
        before = len(far.arrived)
        said = eventually(
            lambda: next(
                (reported for reported in late(far, before + 1) if reported["captured_lag_seconds"] == 0), None
            )
        )
    assert said["version"] == __version__
    assert said["state"] == "capturing"
    assert said["captured_lag_seconds"] == 0
    assert said["heartbeat_seconds"] == 0.3
    assert said["retained_wal_bytes"] >= 0


def test_metrics_have_their_names_and_tell_what_is_so(watched):
    edge, far = watched
    with edge.running() as agent:
        edge.database.execute("insert into t select i, 'x' from generate_series(1, 500) i")
        eventually(lambda: len(far.changes) == 500 and is_idle(agent.figures))
        look(agent.figures)
        result = eventually(lambda: (now := scraped(agent))["headrace_edge_captured_lag_seconds"] == 0 and now)
        code, status = eventually(
            lambda: (
                (it := ask(agent, "/status")) and json.loads(it[1])["sources"][0]["captured_lag_seconds"] == 0 and it
            )
        )
        assert ask(agent, "/nothing")[0] == 404
    # The slot's room is unlimited, and there is no spool while it is empty.
    missing = {f"{PREFIX}_safe_wal_bytes", f"{PREFIX}_spool_bytes", f"{PREFIX}_spool_limit_bytes", f"{PREFIX}_held"}
    # Only a binary log is kept for a time.
    missing.add(f"{PREFIX}_log_retention_seconds")
    # Nor does it use a certificate.
    missing.add(f"{PREFIX}_certificate_expiry_time_seconds")
    assert names(PREFIX, Figures) - missing <= set(result)
    # 500 rows and a schema record.
    assert result["headrace_edge_captured_records_total"] == 501
    assert result["headrace_edge_captured_transactions_total"] >= 1
    assert result["headrace_edge_accepted_batches_total"] >= 1
    assert result["headrace_edge_captured_lag_seconds"] == 0
    assert result["headrace_edge_ready"] == 1
    assert code == 200
    (row,) = json.loads(status)["sources"]
    assert (row["source"], row["state"], row["captured_lag_seconds"]) == ("jakarta/bank", "capturing", 0)
    assert row["position"] == edge.checkpoint["acknowledged"] or row["position"] < edge.checkpoint["acknowledged"]
    assert row["records_per_second"] > 0
