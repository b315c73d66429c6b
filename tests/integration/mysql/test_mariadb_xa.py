"""XA transactions of MariaDB: their rows arrive when they commit, whatever stops in between."""

from tests.edge.fix_edge import arrive, ids
from tests.rules.waiting import eventually


def prepared(maria, name, *rows):
    """Prepare an XA transaction, and leave it to others."""
    connection = maria.connect()
    with connection.cursor() as cursor:
        cursor.execute(f"xa start '{name}'")
        cursor.executemany("insert into t values (%s, %s)", rows)
        cursor.execute(f"xa end '{name}'")
        cursor.execute(f"xa prepare '{name}'")
    ended = connection.thread_id()
    connection.close()
    # The server lets go of what was prepared when it ends the connection, some time after the client did.
    left = f"select count(*) from information_schema.processlist where id = {ended}"
    eventually(lambda: maria.execute(left)[0][0] == 0, saying="the connection has ended at the server")


def test_prepared_transactions_arrive_when_they_commit_and_never_when_they_do_not(maria_edge, maria, interconnect):
    with maria_edge.running():
        prepared(maria, "a", (1, "a"), (2, "a"))
        prepared(maria, "b", (3, "b"))
        maria.execute("insert into t values (4, 'between')")
        maria.execute("xa rollback 'b'")
        maria.execute("xa commit 'a'")
        gtid = maria.execute("select @@gtid_binlog_pos")[0][0]
        maria.execute("xa start 'c'")
        maria.execute("insert into t values (5, 'c')")
        maria.execute("xa end 'c'")
        maria.execute("xa commit 'c' one phase")
        arrive(interconnect, 4)

    assert ids(interconnect) == [4, 1, 2, 5]
    assert [change["transaction"]["id"] for change in interconnect.changes[1:3]] == [gtid, gtid]
    assert [change["transaction"].get("last") for change in interconnect.changes] == [True, None, True, True]
    positions = [change["source"]["position"] for change in interconnect.changes]
    assert positions == sorted(set(positions))


def test_prepared_transactions_survive_edge_server_and_file(own_maria, own_mariadb, maria_edges, interconnect):
    edge = maria_edges(own_maria, interconnect.url)
    prepared(own_maria, "before", (1, "prepared before the source was made"))
    edge.init()
    edge.start()
    prepared(own_maria, "a", *((number, "x" * 200) for number in range(10, 20)))
    prepared(own_maria, "b", (2, "rolled back"))
    own_maria.execute("flush binary logs")
    own_maria.execute("insert into t values (3, 'between')")
    arrive(interconnect, 1)
    eventually(lambda: edge.checkpoint["file"] == "binlog.000002", saying="the checkpoint is behind what was prepared")
    edge.kill()
    own_maria.disconnect()
    own_mariadb.stop()
    own_mariadb.start()
    for decision in ("commit 'a'", "rollback 'b'", "commit 'before'"):
        own_maria.execute(f"xa {decision}")

    with edge.running():
        own_maria.execute("insert into t values (4, 'last')")
        arrive(interconnect, 13)

    assert ids(interconnect) == [3, *range(10, 20), 1, 4]
