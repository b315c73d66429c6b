"""What of the log a slot holds back, and that it is let go or said."""

from edge.postgres.checkpoint import parse_lsn
from tests.rules.waiting import eventually
from tests.servers.fix_stack import Database


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
