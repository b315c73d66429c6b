"""The embedded PostgreSQL: what it keeps, and what it leaves behind."""

import os
import socket
import subprocess
from contextlib import closing

import psutil
import psycopg2
import pytest

from headrace.errors import NeedsOperator
from infra.local.postgres import Postgres
from tests.rules.waiting import eventually


def family(server):
    postmaster = psutil.Process(server.pid)
    return [postmaster, *postmaster.children(recursive=True)]


def gone(process):
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def test_committed_rows_survive_a_crash_and_the_port_stays(private_postgres):
    # Given a cluster with a committed row.
    server = private_postgres()
    port, first = server.port, server.pid
    server.psql("CREATE TABLE t (a int); INSERT INTO t VALUES (42)")
    everything = family(server)

    # When all of it is killed and it starts again.
    server.kill()
    assert all(gone(process) for process in everything)
    assert not server.running
    server.start()

    # Then the row is there, at the same address.
    assert server.psql("SELECT a FROM t") == "42"
    assert (server.port, server.running) == (port, True)
    assert server.pid != first


def test_restart_keeps_rows_and_port(private_postgres):
    server = private_postgres()
    port = server.port
    server.psql("CREATE TABLE t AS SELECT 42 AS a")

    server.restart()

    assert server.psql("SELECT a FROM t") == "42"
    assert server.port == port


def test_two_clusters_run_side_by_side(postgres, private_postgres):
    other = private_postgres()

    assert other.port != postgres.port
    assert other.psql("SHOW data_directory") != postgres.psql("SHOW data_directory")


def test_start_of_a_running_cluster_changes_nothing(private_postgres):
    server = private_postgres()
    pid = server.pid

    server.start()

    assert server.pid == pid


def test_cluster_is_fit_for_change_data_capture_and_durable(postgres):
    assert postgres.psql("SHOW wal_level") == "logical"
    assert postgres.psql("SHOW fsync") == "on"
    assert postgres.psql("SHOW server_encoding") == "UTF8"
    assert int(postgres.psql("SHOW max_replication_slots")) >= 10
    assert int(postgres.psql("SHOW max_wal_senders")) >= 10
    assert postgres.version == postgres.psql("SHOW server_version")


def test_settings_go_over_the_defaults(private_postgres):
    server = private_postgres(settings={"fsync": "off", "search_path": "it's, public", "max_wal_senders": 11})

    assert server.psql("SHOW fsync") == "off"
    assert server.psql("SHOW max_wal_senders") == "11"
    assert server.psql("SHOW search_path") == "it's, public"


def test_database_with_an_odd_name_is_reached_by_its_connection_string(private_postgres):
    dsn = private_postgres().create_database('it\'s "odd" \\')

    with closing(psycopg2.connect(dsn)) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT current_database()")
        assert cursor.fetchone() == ('it\'s "odd" \\',)


def test_cluster_works_in_a_folder_too_long_for_a_socket_and_leaves_nothing(tmp_path):
    server = Postgres(tmp_path / ("x" * 120))
    try:
        server.start()
        with closing(psycopg2.connect(f"host={server.socket_folder} port={server.port} user=postgres")) as connection:
            assert connection.info.host == str(server.socket_folder)
        home = server.socket_folder
    finally:
        server.delete()

    assert not home.exists()
    assert not server.folder.exists()


@pytest.mark.parametrize("environment", [{"PGPORT": "1", "PGHOST": "nowhere", "PGUSER": "me", "PGDATA": "/nowhere"}])
def test_variables_of_the_caller_for_other_servers_do_not_matter(private_postgres, monkeypatch, environment):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    assert private_postgres().psql("SELECT 1") == "1"


def test_port_that_another_process_has_is_named(private_postgres):
    server = private_postgres()
    server.stop()

    with closing(socket.create_server(("127.0.0.1", server.port))):
        with pytest.raises(NeedsOperator, match=f"port {server.port}: another process has it"):
            server.start()
        assert not server.running

    server.start()
    assert server.running


def test_setting_that_postgresql_refuses_is_told_in_its_own_words(tmp_path):
    server = Postgres(tmp_path, settings={"wal_level": "most"})
    try:
        with pytest.raises(NeedsOperator, match='invalid value for parameter "wal_level"') as caught:
            server.start()
        assert str(server.log) in caught.value.hint
    finally:
        server.delete()


def test_lock_file_with_a_number_that_is_anothers_by_now_does_not_stop_the_start(private_postgres):
    # Given a crashed cluster whose postmaster's number the kernel gave to another process of the same account.
    server = private_postgres()
    server.kill()
    lock = server.data / "postmaster.pid"
    owner = server.data.stat()
    as_account = {"user": owner.st_uid, "group": owner.st_gid, "extra_groups": []} if os.geteuid() == 0 else {}
    with subprocess.Popen(["sleep", "600"], cwd="/", **as_account) as stranger:
        try:
            lock.write_text("\n".join([str(stranger.pid), *lock.read_text().splitlines()[1:]]) + "\n")

            # When it starts, then it runs, and so does the stranger.
            server.start()
            assert server.psql("SELECT 1") == "1"
            assert stranger.poll() is None
        finally:
            stranger.kill()


def test_cluster_that_runs_without_our_record_is_not_started_twice(private_postgres):
    # Given a running cluster whose record was lost.
    server = private_postgres()
    pid = server.pid
    record = server.folder / "process.json"
    content = record.read_text()
    record.unlink()
    try:
        # When it is started, then the process is named and left alone.
        with pytest.raises(NeedsOperator, match=f"Process {pid} already runs"):
            Postgres(server.folder).start()
    finally:
        record.write_text(content)
    assert server.psql("SELECT 1") == "1"


def test_crash_leaves_no_shared_memory(private_postgres):
    server = private_postgres()
    segment = (server.data / "postmaster.pid").read_text().splitlines()[6].split()[1]

    def segments():
        listing = subprocess.run(["ipcs", "-m"], capture_output=True, text=True, check=True).stdout
        return {line.split()[1] for line in listing.splitlines() if line.startswith("0x")}

    assert segment in segments()

    server.kill()

    assert segment not in segments()


def test_complaint_names_database_and_reason_but_no_row(postgres):
    postgres.psql("DROP TABLE IF EXISTS secrets; CREATE TABLE secrets (a text PRIMARY KEY)")

    with pytest.raises(NeedsOperator, match="duplicate key") as caught:
        postgres.psql("INSERT INTO secrets VALUES ('hush'), ('hush')")

    assert "hush" not in caught.value.message + caught.value.hint


def test_dropped_database_takes_its_slots_and_connections_along(postgres, database):
    # Given a database with a slot that is being read.
    database.execute("SELECT pg_create_logical_replication_slot('busy', 'pgoutput')")
    program = [
        postgres.bin("pg_recvlogical"),
        "-d",
        database.dsn,
        "-S",
        "busy",
        "--start",
        "-f",
        "/dev/null",
        "--no-loop",
    ]
    options = ["-o", "proto_version=1", "-o", "publication_names=p"]
    reader = subprocess.Popen([*program, *options], stderr=subprocess.DEVNULL)
    try:
        active = "SELECT active FROM pg_replication_slots WHERE slot_name = 'busy'"
        eventually(lambda: database.execute(active)[0][0], saying="the slot is read")

        # When it is dropped.
        database.drop()

        # Then neither is there.
        assert postgres.psql(f"SELECT count(*) FROM pg_database WHERE datname = '{database.name}'") == "0"
        assert postgres.psql("SELECT count(*) FROM pg_replication_slots WHERE slot_name = 'busy'") == "0"
    finally:
        reader.kill()
        reader.wait()
    # For the fixture, which drops it too.
    postgres.create_database(database.name)
