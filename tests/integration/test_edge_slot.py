"""What an edge does when slot, publication or server are not as it left them: it stops, and says what is lost and what to run."""

import threading
import time

import pytest

from edge.checkpoint import State
from edge.initialise import Adoption
from edge.postgres.checkpoint import PostgresCheckpoint
from edge.postgres.lsn import parse_lsn
from headrace.errors import NeedsOperator
from headrace.position import Position
from tests.fix_edge import arrive
from tests.fix_stack import Database
from tests.waiting import eventually


def refused(edge, **options):
    with edge.running(**options) as agent:
        error = agent.ended()
    assert isinstance(error, NeedsOperator)
    assert error.hint
    return error


# B3
def test_slot_dropped_while_the_edge_was_down_stops_it(edge, database, interconnect):
    with edge.running():
        database.execute("insert into t values (1)")
        arrive(interconnect, 1)
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


def test_slot_of_an_idle_database_moves_on_while_another_database_writes(edge, database, interconnect, postgres):
    busy = Database(postgres)
    busy.execute("create table u (id int)")
    with edge.running():
        eventually(edge.reading)
        before = parse_lsn(edge.slot()["restart_lsn"])
        busy.execute("insert into u select generate_series(1, 20000)")
        ((end,),) = busy.execute("select pg_current_wal_lsn()::text")

        eventually(lambda: edge.confirmed() >= parse_lsn(end), saying="the slot is confirmed past the other's log")

        def released():
            # What a busy server does by itself every fifteen seconds.
            busy.execute("select pg_log_standby_snapshot()")
            return parse_lsn(edge.slot()["restart_lsn"]) > max(before, parse_lsn(end))

        eventually(released, saying="the server may discard the other's log")
    busy.drop()

    assert interconnect.changes == []


def test_nothing_of_the_log_holds_the_slot_back(edge, database, interconnect):
    with edge.running():
        database.execute("insert into t values (1)")
        database.execute("truncate t")
        database.execute(
            "select pg_logical_emit_message(true, 'nobody', 'asked'), pg_logical_emit_message(false, 'nor', 'here')"
        )
        database.execute("create table u (id int); alter table t add more text; drop table u")
        database.execute("begin; insert into t values (2); rollback")
        ((end,),) = database.execute("select pg_current_wal_lsn()::text")

        eventually(lambda: edge.confirmed() >= parse_lsn(end), saying="the slot moves on")

    assert [change["op"] for change in interconnect.changes] == ["c", "t"]


def test_much_retained_log_is_a_warning_while_it_lasts(edges, database, interconnect, caplog):
    database.execute("create table t (id int primary key, note text)")
    edge = edges(database, interconnect.url)
    edge.path.write_text(edge.path.read_text() + "[limits]\nretained_wal_megabytes = 1\n")
    edge.init()
    interconnect.hold()
    with edge.running() as agent:
        database.execute("insert into t select i, repeat(md5(i::text), 10) from generate_series(1, 5000) i")
        warning = eventually(lambda: agent.figures.warned.get("retained"), saying="it warns")
        interconnect.let_go()

        def quiet():
            database.execute("select pg_log_standby_snapshot()")
            return "retained" not in agent.figures.warned

        eventually(quiet, saying="it warns no more")

    assert "more than [limits] retained_wal_megabytes = 1" in warning
    assert caplog.text.count("more than [limits]") == 1


# B4
def test_lost_slot_stops_the_edge_within_seconds(private_postgres, edges, interconnect):
    server = private_postgres(
        settings={"max_slot_wal_keep_size": "1MB", "min_wal_size": "32MB", "max_wal_size": "32MB", "wal_keep_size": "0"}
    )
    database = Database(server)
    database.execute("create table t (id int primary key, note text)")
    edge = edges(database, interconnect.url)
    edge.init()
    for _ in range(4):
        database.execute("select pg_switch_wal() from (select pg_logical_emit_message(false, 'x', 'y')) _")
    database.execute("checkpoint")
    eventually(lambda: edge.slot()["wal_status"] == "lost")

    began = time.monotonic()
    error = refused(edge)

    assert time.monotonic() - began < 10
    assert f"slot '{database.name}' is lost (wal_removed)" in error.message
    assert "max_slot_wal_keep_size" in error.hint


def test_slot_lost_while_the_edge_runs_stops_it(private_postgres, edges, interconnect):
    server = private_postgres(
        settings={"max_slot_wal_keep_size": "1MB", "min_wal_size": "32MB", "max_wal_size": "32MB", "wal_keep_size": "0"}
    )
    database = Database(server)
    database.execute("create table t (id int primary key, note text)")
    edge = edges(database, interconnect.url)
    edge.init()
    interconnect.hold()
    with edge.running() as agent:
        database.execute("insert into t values (1)")
        eventually(lambda: interconnect._holding)
        for _ in range(4):
            database.execute("select pg_switch_wal() from (select pg_logical_emit_message(false, 'x', 'y')) _")
        database.execute("checkpoint")
        error = agent.ended(15)

    assert "is lost" in error.message


def test_slot_that_another_process_reads_is_waited_for_and_then_named(edge, edges, database, interconnect):
    with edge.running():
        eventually(edge.reading)
        pid = edge.slot()["active_pid"]
        copy = edges(database, interconnect.url)
        copy.checkpoint_file.parent.mkdir()
        copy.checkpoint_file.write_text(edge.checkpoint_file.read_text())

        error = refused(copy, patience_seconds=0.5)

    assert f"slot '{database.name}' is taken by process {pid} of the server" in error.message


def test_second_edge_on_one_state_folder_is_refused(edge, interconnect):
    with edge.running():
        eventually(edge.reading)

        error = refused(edge)

    assert "in use by another edge" in error.message


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
        eventually(lambda: interconnect._holding)
        stopping = threading.Thread(target=server.stop)
        stopping.start()
        stopping.join(20)
        assert not stopping.is_alive()

        server.start()
        interconnect.let_go()
        eventually(lambda: agent.figures.database_connections == 2)
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


def test_lost_disk_is_adopted_at_the_position_of_the_far_side(edge, database, interconnect):
    with edge.running():
        database.execute("insert into t values (1)")
        arrive(interconnect, 1)
    edge.checkpoint_file.unlink()
    assert "not initialised" in refused(edge).message
    with pytest.raises(NeedsOperator, match="exists, and there is no checkpoint") as raised:
        edge.init()
    assert "--adopt" in raised.value.hint

    edge.init(Adoption(interconnect.tail))
    with edge.running():
        database.execute("insert into t values (2)")
        arrive(interconnect, 2)

    assert [change["after"]["id"] for change in interconnect.changes] == [1, 2]
    assert len({record[0].epoch for record in interconnect.records}) == 1


def test_adoption_within_a_transaction_that_the_far_side_has_in_part_goes_on_in_it(edges, database, interconnect):
    database.execute("create table t (id int primary key, note text)")
    edge = edges(database, interconnect.url, kilobytes=1)
    edge.init()
    interconnect.credit = 2
    with edge.running(stop_seconds=0):
        database.execute("insert into t select i, md5(i::text) from generate_series(1, 5000) i")
        arrive(interconnect, 1)
        interconnect.hold()
    assert len(interconnect.changes) < 5000
    edge.checkpoint_file.unlink()
    interconnect.let_go()

    edge.init(Adoption(interconnect.tail))
    with edge.running():
        arrive(interconnect, 5000)

    assert [change["after"]["id"] for change in interconnect.changes] == list(range(1, 5001))


def test_new_epoch_sends_again_what_the_slot_still_has(edge, database, interconnect):
    database.execute("insert into t values (1)")
    old = Position.parse(edge.checkpoint["acknowledged"]).epoch
    edge.checkpoint_file.unlink()
    # The new epoch has to be a later second.
    eventually(lambda: time.time() > old + 1)

    edge.init(Adoption(None))
    with edge.running():
        arrive(interconnect, 1)

    assert interconnect.tail.epoch > old
    assert State(edge.checkpoint_file.parent, PostgresCheckpoint).read("jakarta/bank").position.epoch > old
