"""A server that was put back by PostgreSQL's own programs, a base backup and pg_rewind: the edge stops, and says what is lost."""

import contextlib
import os
import shutil

import psycopg2

from infra.local.server import run_as
from tests.edge.fix_edge import arrive
from tests.edge.under_test import refused
from tests.rules.waiting import eventually
from tests.servers.fix_stack import Database


def capture(server, edges, interconnect):
    """Make an edge of a new database of a server, and return both."""
    database = Database(server)
    database.execute("create table t (id int primary key, note text)")
    edge = edges(database, interconnect.url)
    edge.init()
    return database, edge


def confirmed(edge, interconnect):
    """Wait until the checkpoint has all that arrived."""
    eventually(lambda: edge.checkpoint["acknowledged"] == interconnect.changes[-1]["source"]["position"])


def run(server, program, *arguments):
    """Run one of PostgreSQL's programs as whoever owns the server's data."""
    done = run_as(
        server._account, [server.bin(program), *arguments], folder=server.data.parent, environment=dict(os.environ)
    )
    assert done.returncode == 0, done.stderr


def test_a_restored_base_backup_stops_the_edge_with_what_is_lost(private_postgres, edges, interconnect):
    server = private_postgres()
    database, edge = capture(server, edges, interconnect)
    backup = server.data.with_name("backup")
    with edge.running() as agent:
        database.execute("insert into t values (1)")
        arrive(interconnect, 1)
        run(server, "pg_basebackup", "-D", backup, "-d", server.dsn(), "--checkpoint=fast", "--no-sync")
        database.execute("insert into t select g from generate_series(2, 2000) g")
        arrive(interconnect, 2000)
        confirmed(edge, interconnect)
        server.stop()
        shutil.rmtree(server.data)
        backup.rename(server.data)
        server.start()
        error = agent.ended()

    # A base backup has no slots, but that its log ends below what was captured comes first.
    assert "was set back" in error.message
    assert edge.checkpoint["confirmed_lsn"] in error.message
    assert "--snapshot --replace" in error.hint
    assert "was set back" in refused(edge).message

    # It has grown beyond that by the time the edge is started.
    database._connection = None
    database.execute("insert into t select g, repeat('x', 100) from generate_series(3000, 9000) g")
    assert "is gone: changes after" in refused(edge).message
    assert len(interconnect.changes) == 2000


def test_a_former_primary_that_was_rewound_stops_the_edge(private_postgres, edges, interconnect):
    primary = private_postgres()
    database, edge = capture(primary, edges, interconnect)
    standby = private_postgres(primary=primary)
    with edge.running(stop_seconds=0):
        database.execute("insert into t values (1)")
        arrive(interconnect, 1)
        standby_has = f"select '{primary.psql('select pg_current_wal_lsn()')}' <= pg_last_wal_replay_lsn()"
        eventually(lambda: standby.psql(standby_has) == "t", saying="the standby has the row")
        standby.promote()
        # What the new primary never had.
        database.execute("insert into t values (2)")
        arrive(interconnect, 2)
        confirmed(edge, interconnect)
        primary.stop()
    with contextlib.closing(psycopg2.connect(standby.dsn(database.name))) as connection, connection.cursor() as cursor:
        cursor.execute("insert into t values (3)")
        connection.commit()
    standby.psql("checkpoint")

    # Its settings are not its own account's.
    settings = primary.data / "headrace.conf"
    own = settings.read_bytes()
    settings.unlink()
    run(primary, "pg_rewind", "-D", primary.data, f"--source-server={standby.dsn()}", "--no-sync")
    settings.unlink()
    settings.write_bytes(own)
    primary.start()

    assert primary.psql("select id from t order by 1", database.name).split() == ["1", "3"]
    error = refused(edge)
    assert "the server is on timeline 2, the checkpoint was made on 1" in error.message
    assert [change["after"]["id"] for change in interconnect.changes] == [1, 2]
