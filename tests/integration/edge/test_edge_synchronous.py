"""Commits that wait for a synchronous standby: in the log, streamed and acknowledged, while no reader sees them yet."""

import contextlib
import threading

import psycopg2
import pytest

from edge.commands.lifecycle import Adoption
from headrace.verify.postgres.database import SourceDatabase
from tests.edge.fix_edge import arrive
from tests.integration.edge.snapshots import ask, ended, held, records, stored
from tests.lake.verify_sides import address
from tests.rules.waiting import eventually
from tests.servers.fix_stack import Database

#: No standby is there; only who asks for it waits.
_SETTINGS = {"synchronous_standby_names": "absent", "synchronous_commit": "local", "max_prepared_transactions": 1}
#: More transactions than an edge would keep in mind.
_MANY = "do $$ begin for i in 1..6000 loop insert into other values (i); commit; end loop; end $$"


@contextlib.contextmanager
def hidden_commit(database, statement):
    """Have a statement commit and wait for the standby; let it end with the block, or when what is yielded is called."""

    def run():
        with contextlib.closing(database.connect()) as connection, connection.cursor() as cursor:
            pids.append(connection.get_backend_pid())
            cursor.execute("set synchronous_commit = on")
            with contextlib.suppress(psycopg2.Error):
                cursor.execute(statement)

    def release():
        if not released:
            released.append(True)
            database.execute("select pg_cancel_backend(%s)", [pids[0]])
            thread.join(60)

    pids, released = [], []
    thread = threading.Thread(target=run, name="hidden commit", daemon=True)
    thread.start()
    waits = "select count(*) from pg_stat_activity where wait_event = 'SyncRep'"
    eventually(lambda: database.execute(waits) == [(1,)], saying="the commit waits for the standby")
    try:
        yield release
    finally:
        release()


@pytest.mark.parametrize("meanwhile", ["restarted", "adopted", "reconnected", "after many others"])
def test_a_copied_row_is_not_older_than_a_change_that_was_sent_before_readers_saw_it(
    private_postgres, edges, interconnect, meanwhile, caplog
):
    database = Database(private_postgres(settings=_SETTINGS))
    database.execute("create table t (id int primary key, note text); create table other (id int primary key)")
    edge = edges(database, interconnect.url)
    edge.init()

    def copied(release):
        ask(edge, "public.t")
        eventually(lambda: "readers do not see" in caplog.text or records(interconnect, "t", "r"), saying="it is read")
        release()
        ended(edge, "public.t")

    with contextlib.ExitStack() as until_the_end:
        with edge.running():
            database.execute("insert into t values (1, 'old'), (2, 'same')")
            release = until_the_end.enter_context(hidden_commit(database, "update t set note = 'new' where id = 1"))
            arrive(interconnect, 3)
            if meanwhile == "after many others":
                database.execute(_MANY)
                arrive(interconnect, 6003)
                copied(release)
            elif meanwhile == "reconnected":
                eventually(lambda: edge.confirmed() > interconnect.tail.commit, saying="it is confirmed")
                database.execute("select pg_terminate_backend(%s)", [edge.slot()["active_pid"]])
                copied(release)
            else:
                eventually(lambda: edge.confirmed() > interconnect.tail.commit, saying="it is confirmed")
        if meanwhile == "adopted":
            # What is never finished in another database is nobody's business.
            database.postgres.psql("begin; create table x (); prepare transaction 'elsewhere'")
            edge.let_go()
            edge.checkpoint_file.unlink()
            edge.init(Adoption(interconnect.tail))
        if meanwhile in {"restarted", "adopted"}:
            with edge.running():
                copied(release)

    wanted = stored(database, "t")
    assert {row["note"] for row in wanted.values()} == {"new", "same"}
    assert held(interconnect, "t") == wanted


def test_a_verification_has_its_place_in_the_log_while_no_standby_answers(private_postgres):
    """Its marker would wait for one without limit, and hold the snapshot for as long."""
    database = Database(private_postgres(settings=_SETTINGS))
    database.execute("create table t (id int primary key)")
    database.execute(f"alter database {database.name} set synchronous_commit = on")
    placed = []

    def connect():
        with SourceDatabase.connect("jakarta/bank", address(database.dsn), placed=True) as found:
            placed.append(found.place)

    threading.Thread(target=connect, name="verification", daemon=True).start()
    eventually(lambda: placed, 30, saying="it has a place")
