"""What an edge does when publication or server are not as it left them."""

import shutil
import subprocess
import threading

import pytest

from edge import agent as agent_module
from edge.doctor.examine import examine
from edge.postgres.checkpoint import parse_lsn
from headrace.errors import NeedsOperator
from tests.edge.fix_edge import arrive
from tests.edge.under_test import refused
from tests.rules.waiting import eventually
from tests.servers.fix_stack import Database


def test_publication_dropped_while_the_edge_runs_stops_it_before_anything_is_confirmed_past_it(
    edge, database, interconnect
):
    with edge.running() as agent:
        database.execute("insert into t values (1)")
        arrive(interconnect, 1)
        database.execute(f"drop publication {database.name}")
        ((dropped,),) = database.execute("select pg_current_wal_lsn() - '0/0'::pg_lsn")
        database.execute("insert into t values (2)")
        ((lost,),) = database.execute("select pg_current_wal_lsn() - '0/0'::pg_lsn")
        error = agent.ended()

    assert "publi" in error.message
    assert edge.confirmed() < lost
    assert dropped


def test_publication_dropped_and_made_again_while_the_edge_was_down_stops_it(edge, database, interconnect):
    database.execute(f"drop publication {database.name}")
    database.execute("insert into t values (1)")
    database.execute(f"create publication {database.name} for all tables")

    assert "was dropped and made again" in refused(edge).message


def test_another_server_stops_the_edge(edge, database, interconnect):
    text = edge.checkpoint_file.read_text()
    edge.checkpoint_file.write_text(text.replace(edge.checkpoint["system_identifier"], "7000000000000000001"))

    assert "the server is another one" in refused(edge).message


def test_another_timeline_stops_the_edge(edge, database, interconnect):
    edge.checkpoint_file.write_text(edge.checkpoint_file.read_text().replace('"timeline": 1', '"timeline": 2'))

    error = refused(edge)

    assert "the server is on timeline 1, the checkpoint was made on 2" in error.message


def test_server_that_shuts_down_is_not_held_up_by_what_the_far_side_has_not_accepted(
    private_postgres, edges, interconnect
):
    server = private_postgres()
    database = Database(server)
    database.execute("create table t (id int primary key, note text)")
    edge = edges(database, interconnect.url)
    edge.init()
    interconnect.hold()
    with edge.running() as agent:
        database.execute("insert into t values (1)")
        eventually(lambda: interconnect.withheld)
        stopping = threading.Thread(target=server.stop)
        stopping.start()
        stopping.join(45)
        assert not stopping.is_alive()

        server.start()
        interconnect.let_go()
        eventually(lambda: agent.figures.database_connections >= 2)
        arrive(interconnect, 1)

    assert len(interconnect.changes) == 1


def test_killed_server_is_waited_for_and_read_on(private_postgres, edges, interconnect):
    server = private_postgres()
    database = Database(server)
    database.execute("create table t (id int primary key, note text)")
    edge = edges(database, interconnect.url)
    edge.init()
    with edge.running():
        for number in range(1, 4):
            with database.connect() as connection, connection.cursor() as cursor:
                cursor.execute("insert into t values (%s)", [number])
            arrive(interconnect, number)
            server.kill()
            server.start()
        database._connection = None
        database.execute("insert into t values (4)")
        arrive(interconnect, 4)

    assert [change["after"]["id"] for change in interconnect.changes] == [1, 2, 3, 4]


def test_an_ordinary_connection_that_is_lost_is_made_again_with_the_session(edge, database, interconnect):
    """G2: transactions that readers may not see were kept until a restart, all of them."""
    with edge.running() as agent:
        database.execute("insert into t values (1)")
        arrive(interconnect, 1)
        ended = database.execute(
            "select count(pg_terminate_backend(pid)) from pg_stat_activity where datname = current_database() "
            "and application_name = 'headrace jakarta/bank' and backend_type = 'client backend'"
        )
        assert ended[0][0] >= 1
        database.execute("insert into t values (2)")
        eventually(lambda: agent.figures.database_connections == 2, saying="a session with another connection begins")
        database.execute("insert into t values (3)")
        arrive(interconnect, 3)
        eventually(lambda: edge.checkpoint["acknowledged"] == interconnect.changes[-1]["source"]["position"])
        eventually(lambda: "unseen" not in edge.checkpoint)


def test_a_log_that_the_server_cannot_decode_is_an_operators_matter_after_a_while(
    edges, database, interconnect, monkeypatch, caplog
):
    """G5: decoded again and again, without a pause, for ever."""
    monkeypatch.setattr(agent_module, "_EQUAL_FAILURES", 3)
    database.execute("create table t (id int primary key, note text)")
    filtered = 'tables = ["public.t"]\nrow_filters = { "public.t" = "10 / id > 1" }'
    edge = edges(database, interconnect.url, more=filtered)
    edge.init()
    database.execute("insert into t values (0, 'ani@example.com')")
    error = refused(edge)
    assert "SQLSTATE 22012" in error.message
    # The server's own words, which may hold values.
    assert "division" not in error.message + caplog.text
    assert interconnect.changes == []


def test_a_server_set_back_on_the_same_timeline_stops_the_edge_running_and_started(
    private_postgres, edges, interconnect
):
    """G1: a volume's snapshot was restored: the log ends below what is confirmed, and a slot skips commits up to there."""
    server = private_postgres()
    database = Database(server)
    database.execute("create table t (id int primary key, note text)")
    edge = edges(database, interconnect.url)
    edge.init()
    with edge.running() as agent:
        database.execute("insert into t values (1)")
        arrive(interconnect, 1)
        server.stop()
        # With its owner, which is another one where root runs the test.
        subprocess.run(["cp", "-a", server.data, server.data.with_name("before")], check=True)
        server.start()
        database._connection = None
        database.execute("insert into t select g from generate_series(2, 2000) g")
        arrive(interconnect, 2000)
        eventually(lambda: edge.checkpoint["acknowledged"] == interconnect.changes[-1]["source"]["position"])
        server.stop()
        shutil.rmtree(server.data)
        server.data.with_name("before").rename(server.data)
        server.start()
        error = agent.ended()

    assert isinstance(error, NeedsOperator)
    assert "was set back" in error.message
    assert edge.checkpoint["confirmed_lsn"] in error.message
    assert "--snapshot --replace" in error.hint
    assert "was set back" in refused(edge).message
    (line,) = [each for each in examine(edge.config) if each.check == "slot"]
    assert "was set back" in line.text


def set_back(server, change):
    """Let the server forget what a function changes, as if a snapshot of its volume was restored."""
    before = server.data.with_name("before")
    server.stop()
    # With its owner, which is another one where root runs the test.
    subprocess.run(["cp", "-a", server.data, before], check=True)
    server.start()
    change()
    server.stop()
    shutil.rmtree(server.data)
    before.rename(server.data)
    server.start()


def grow_beyond(database, edge, statement):
    """Run a statement until the server's log is longer than what the edge has of it."""
    database._connection = None

    def beyond():
        database.execute(statement)
        ((reached,),) = database.execute(
            "select pg_current_wal_flush_lsn() > %s::pg_lsn", [edge.checkpoint["confirmed_lsn"]]
        )
        return reached

    eventually(beyond, saying="the log has grown")


@pytest.mark.parametrize(
    ("case", "release"),
    [("rows", {}), ("nothing", {}), ("the same rows", {"release": 14}), ("rows after idle hours", {})],
)
def test_a_server_that_was_set_back_is_noticed_although_its_log_has_grown_again(
    private_postgres, edges, interconnect, case, release
):
    """A slot skips commits up to the checkpoint's place: they were missing without a word."""
    server = private_postgres(**release)
    database = Database(server)
    database.execute("create table t (id serial primary key, note text)")
    edge = edges(database, interconnect.url)
    edge.init()
    write, unpublished = (
        "insert into t (note) values ('{}')",
        "select pg_logical_emit_message(false, 'other', repeat('x', 999))",
    )

    def capture(statement, count=20):
        database._connection = None
        with edge.running():
            arrived = len(interconnect.changes)
            for _ in range(count):
                database.execute(statement)
            if "into t" in statement:
                arrive(interconnect, arrived + count)
            # A message does not wait for its flush: with the flushed position the edge may have confirmed none of them.
            ((end,),) = database.execute("select pg_current_wal_insert_lsn()::text")
            eventually(lambda: parse_lsn(edge.checkpoint["confirmed_lsn"]) >= parse_lsn(end), saying="all is confirmed")

    capture(write.format("captured"))
    set_back(server, lambda: capture(unpublished if case == "rows after idle hours" else write.format("captured")))
    rows = write.format("captured" if case == "the same rows" else "after")
    grow_beyond(database, edge, unpublished if case == "nothing" else rows)
    database.execute(unpublished)

    error = refused(edge)
    assert "was set back" in error.message
    assert edge.checkpoint["confirmed_lsn"] in error.message
    assert "--snapshot --replace" in error.hint


@pytest.mark.parametrize(("edge_is_killed", "release"), [(False, {"release": 14}), (True, {})])
def test_a_server_that_is_killed_again_and_again_is_none_that_was_set_back(
    private_postgres, edges, interconnect, caplog, edge_is_killed, release
):
    """After a crash the slot is behind the checkpoint too."""
    caplog.set_level("INFO")
    server = private_postgres(**release)
    database = Database(server)
    database.execute("create table t (id int primary key, note text)")
    database.execute("create table other (id int)")
    edge = edges(database, interconnect.url, more='tables = ["public.t"]')
    edge.init()

    def capture(first):
        database._connection = None
        for number in range(first, first + 5):
            database.execute("insert into t values (%s)", [number])
            database.execute("insert into other values (%s)", [number])
        arrive(interconnect, first + 5)
        database.execute("select pg_logical_emit_message(false, 'other', repeat('x', 100))")
        ((end,),) = database.execute("select pg_current_wal_flush_lsn()::text")
        eventually(lambda: parse_lsn(edge.checkpoint["confirmed_lsn"]) >= parse_lsn(end), saying="all is confirmed")
        server.kill()

    for first in range(0, 30, 5):
        if edge_is_killed:
            edge.start()
            capture(first)
            edge.kill()
        else:
            with edge.running():
                capture(first)
        server.start()
    with edge.running():
        database._connection = None
        database.execute("insert into t values (30)")
        arrive(interconnect, 31)

    assert [change["after"]["id"] for change in interconnect.changes] == list(range(31))
    assert "the log has what was captured from there on" in caplog.text
