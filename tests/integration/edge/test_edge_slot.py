"""What an edge does when its slot is not as it left it: it stops, and says what is lost and what to run."""

import shutil
import signal
import urllib.error
import urllib.request

import pytest

from edge.postgres.errors import SlotTaken
from infra.local.server import free_port
from tests.edge.fix_edge import arrive
from tests.edge.under_test import refused
from tests.rules.waiting import eventually
from tests.servers.fix_stack import Database


# B3
def test_slot_dropped_while_the_edge_was_down_stops_it(edge, database, interconnect):
    with edge.running():
        database.execute("insert into t values (1)")
        arrive(interconnect, 1)
    edge.let_go()
    database.execute("select pg_drop_replication_slot(%s)", [database.name])

    error = refused(edge)

    assert f"slot '{database.name}' is gone: changes after {edge.checkpoint['confirmed_lsn']}" in error.message
    assert database.execute("select count(*) from pg_replication_slots where database = %s", [database.name]) == [(0,)]


def test_slot_moved_by_somebody_else_names_the_lost_range(edge, database, interconnect):
    database.execute("insert into t values (1)")
    ((moved,),) = database.execute(
        "select end_lsn::text from pg_replication_slot_advance(%s, pg_current_wal_lsn())", [database.name]
    )

    error = refused(edge)

    assert f"changes from {edge.checkpoint['confirmed_lsn']} to {moved} are lost" in error.message


def test_slot_dropped_and_made_again_by_somebody_stops_the_edge(edge, database, interconnect):
    with edge.running():
        database.execute("insert into t values (1)")
        arrive(interconnect, 1)
    edge.let_go()
    database.execute("select pg_drop_replication_slot(%s)", [database.name])
    database.execute("insert into t values (2)")
    database.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", [database.name])

    error = refused(edge)

    assert "was moved by somebody else" in error.message
    assert len(interconnect.changes) == 1


def test_slot_loss_asks_for_a_copy_and_for_what_a_copy_cannot_show(edge, database):
    database.execute("select pg_drop_replication_slot(%s)", [database.name])

    error = refused(edge)

    assert "init --snapshot" in error.hint
    assert "rows that were deleted meanwhile included" in error.hint


def test_an_edge_that_is_held_is_not_ready_and_shows_why_until_it_is_stopped_o6_o7(edges, database, interconnect):
    at = f"127.0.0.1:{free_port()}"
    edge = edges(database, interconnect.url, rest=f'[metrics]\nlisten = "{at}"')
    edge.init()
    database.execute("select pg_drop_replication_slot(%s)", [database.name])
    edge.start("--hold")

    def answer():
        with urllib.request.urlopen(f"http://{at}/metrics", timeout=5) as found:
            text = found.read().decode()
        return text if "headrace_edge_held" in text else ""

    metrics = eventually(answer, saying="the edge is held")
    assert 'headrace_edge_held{exit_code="3",reason="needs-operator"} 1.0' in metrics
    assert 'headrace_edge_state{source="jakarta/bank",state="needs an operator"} 1.0' in metrics
    with urllib.request.urlopen(f"http://{at}/health/live", timeout=5) as live:
        assert live.status == 200
    with pytest.raises(urllib.error.HTTPError) as refused_health:
        urllib.request.urlopen(f"http://{at}/health/ready", timeout=5)
    assert refused_health.value.code == 503
    assert f"slot '{database.name}' is gone" in refused_health.value.read().decode()
    # Headquarters hears it from the edge itself, which has been connected for nothing else.
    heard = eventually(lambda: interconnect.arrived, saying="the far side hears of it")[-1][0].figures
    assert heard["state"] == "needs an operator"
    assert heard["reason"].startswith(f"slot '{database.name}' is gone")
    # An operator can work on its state meanwhile.
    assert "is in use" not in edge.command("init").stderr
    # then it ends as it would have ended
    assert edge.terminate() == 3


def test_slot_invalidated_because_nobody_read_it_says_so(private_postgres, edges, interconnect):
    database = Database(private_postgres(settings={"idle_replication_slot_timeout": "1s"}))
    database.execute("create table t (id int primary key, note text)")
    edge = edges(database, interconnect.url)
    edge.init()

    def invalidated():
        database.execute("insert into t select coalesce(max(id), 0) + 1 from t")
        database.execute("checkpoint")
        return edge.slot()["invalidation_reason"] == "idle_timeout"

    eventually(invalidated)
    error = refused(edge)

    assert f"slot '{database.name}' is lost (idle_timeout)" in error.message
    assert "idle_replication_slot_timeout" in error.hint


def small(private_postgres, edges, interconnect):
    """Return an edge of a server whose slots may keep next to nothing."""
    server = private_postgres(
        settings={"max_slot_wal_keep_size": "1MB", "min_wal_size": "32MB", "max_wal_size": "32MB", "wal_keep_size": "0"}
    )
    database = Database(server)
    database.execute("create table t (id int primary key, note text)")
    edge = edges(database, interconnect.url)
    edge.init()
    return edge


def outgrow(database):
    """Write more log than its slots may keep."""
    for _ in range(4):
        database.execute("select pg_switch_wal() from (select pg_logical_emit_message(false, 'x', 'y')) _")
    database.execute("checkpoint")


# B4
def test_lost_slot_stops_the_edge_at_once(private_postgres, edges, interconnect, caplog):
    edge = small(private_postgres, edges, interconnect)
    database = edge.database
    outgrow(database)
    eventually(lambda: edge.slot()["wal_status"] == "lost")

    error = refused(edge)

    assert "trying again" not in caplog.text
    assert f"slot '{database.name}' is lost (wal_removed)" in error.message
    assert "max_slot_wal_keep_size" in error.hint


def test_slot_lost_while_the_edge_runs_stops_it(private_postgres, edges, interconnect):
    edge = small(private_postgres, edges, interconnect)
    database = edge.database
    interconnect.hold()
    with edge.running() as agent:
        database.execute("insert into t values (1)")
        eventually(lambda: interconnect.withheld)
        outgrow(database)
        error = agent.ended()

    assert "is lost" in error.message


@pytest.mark.parametrize("moves", [False, True], ids=["stands", "moves"])
def test_slot_that_another_process_reads_is_waited_for_and_then_named(edge, edges, database, interconnect, moves):
    copy = edges(database, interconnect.url)
    copy.checkpoint_file.parent.mkdir()
    copy.checkpoint_file.write_text(edge.checkpoint_file.read_text())
    with edge.running():
        eventually(edge.reading)
        pid, confirmed = edge.slot()["active_pid"], edge.confirmed()
        if moves:
            database.execute("insert into t values (1)")
            eventually(lambda: edge.confirmed() > confirmed)

        error = refused(copy, timeout_seconds=0.5)

    assert f"slot '{database.name}' is taken by process {pid} of the server" in error.message


def test_a_walsender_that_a_dead_edge_left_is_ended_by_the_next_process(edge, edges, database, interconnect):
    """G9: the server keeps it for wal_sender_timeout, and the edge gave up after 15 seconds."""
    edge.start()
    eventually(edge.reading)
    # Its machine is gone: the connection is there, and nobody answers.
    edge.process.send_signal(signal.SIGSTOP)
    pid = edge.slot()["active_pid"]
    successor = edges(database, interconnect.url)
    shutil.copytree(edge.folder / "state", successor.folder / "state")
    with successor.running():
        database.execute("insert into t values (1)")
        arrive(interconnect, 1)
        assert edge.slot()["active_pid"] not in {None, pid}
    edge.kill()


def test_how_long_a_taken_slot_is_waited_for_follows_the_server():
    """G9."""
    taken = SlotTaken("taken", "headrace", 7)
    assert taken.may_last == 15
    assert taken.held_for(60.0).may_last > 120
    assert taken.held_for(0.0).may_last >= 600


def test_second_edge_on_one_state_folder_is_refused(edge, interconnect):
    with edge.running():
        eventually(edge.reading)

        error = refused(edge)

    assert "in use by another edge" in error.message
