"""A stand-in for a managed server: an edge's user there has neither SUPER nor RELOAD, and may lock nothing."""

import shutil
import signal

import pymysql
import pytest

from edge.doctor.examine import examine
from tests.edge.fix_edge import arrive, ids
from tests.rules.waiting import eventually


@pytest.fixture
def managed(maria_edges, mysql97, interconnect):
    """Return what makes edges whose user has what managed servers grant, of one `server_id`."""
    user = f"u_{mysql97.name}"
    mysql97.execute(f"create user {user} identified by 'secret'")
    mysql97.execute(f"grant select, replication slave, replication client on *.* to {user}")

    def make(**changes):
        edge = maria_edges(mysql97, interconnect.url, **changes)
        (edge.folder / "secret").write_text("secret")
        given = f'user = "{user}"\npassword = "file:secret"\nsslmode = "require"'
        edge.path.write_text(edge.path.read_text().replace('user = "root"', given))
        return edge

    yield make
    mysql97.execute(f"drop user {user}")


def test_an_edge_needs_no_privilege_that_managed_servers_keep_back(managed, mysql97, interconnect):
    mysql97.execute("insert into t values (1, 'before')")
    edge = managed()
    edge.init()
    with pytest.raises(pymysql.err.OperationalError) as refused:
        locked(mysql97, f"u_{mysql97.name}")
    assert refused.value.args[0] == 1227
    with edge.running():
        mysql97.execute("insert into t values (2, 'followed')")
        arrive(interconnect, 1)
        # N2: the estimate of a condition's rows is the server's, of whatever form its plans are.
        done = edge.command("snapshot", f"{mysql97.name}.t", "--where", "id > 0")
        assert done.returncode == 0, done.stderr
        eventually(lambda: ids(interconnect, "r") == [1, 2], saying="the table is copied")
    assert ids(interconnect) == [2]
    wrong = [each for each in examine(edge.config) if each.level == "wrong" and each.check != "interconnect"]
    assert wrong == []


def locked(database, user):
    with (
        pymysql.connect(host="127.0.0.1", port=database.server.port, user=user, password="secret") as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute("flush tables with read lock")


def test_an_edge_ends_the_thread_of_one_whose_host_is_gone(managed, mysql97, interconnect):
    """M10: a user may end threads of its own."""
    first = managed()
    first.init()
    first.start()
    mysql97.execute("insert into t values (1, 'a')")
    arrive(interconnect, 1)
    first.process.send_signal(signal.SIGSTOP)
    second = managed(server_id=first.server_id)
    shutil.copytree(first.folder / "state", second.folder / "state")

    with second.running(timeout_seconds=0.5):
        mysql97.execute("insert into t values (2, 'b')")
        arrive(interconnect, 2)
        first.kill()
    assert ids(interconnect) == [1, 2]


def test_rows_that_a_foreign_key_changes_are_captured(mysql97_edge, mysql97, interconnect):
    """MySQL 9.7 runs CASCADE above its storage engine, so its log has those rows."""
    mysql97.execute("create table p (id int primary key)")
    mysql97.execute("create table c (id int primary key, p int, foreign key (p) references p (id) on delete cascade)")
    with mysql97_edge.running():
        mysql97.execute("insert into p values (1), (2)")
        mysql97.execute("insert into c values (1, 1), (2, 1), (3, 2)")
        mysql97.execute("delete from p where id = 1")
        arrive(interconnect, 8)
    deleted = [(each["source"]["table"], each["before"]["id"]) for each in interconnect.changes if each["op"] == "d"]
    assert sorted(deleted) == [("c", 1), ("c", 2), ("p", 1)]
    (keys,) = [each for each in examine(mysql97_edge.config) if each.check == "foreign keys"]
    assert (keys.level, keys.text) == ("ok", "rows that CASCADE or SET NULL changes are in the log")
