"""XA transactions at MySQL 9.7."""

from tests.edge.fix_edge import arrive, ids
from tests.integration.mysql.test_mariadb_xa import prepared
from tests.rules.waiting import eventually


def test_prepared_transactions_arrive_when_they_commit_and_survive_the_edge(mysql97_edge, mysql97, interconnect):
    mysql97_edge.start()
    prepared(mysql97, "a", (1, "a"), (2, "a"))
    prepared(mysql97, "b", (3, "b"))
    mysql97.execute("flush binary logs")
    mysql97.execute("insert into t values (4, 'between')")
    arrive(interconnect, 1)
    eventually(lambda: mysql97_edge.checkpoint["acknowledged"] == interconnect.changes[-1]["source"]["position"])
    mysql97_edge.kill()
    mysql97.execute("xa rollback 'b'")
    mysql97.execute("xa commit 'a'")
    with mysql97_edge.running():
        for statement in ("start", "end"):
            mysql97.execute(f"xa {statement} 'c'")
            if statement == "start":
                mysql97.execute("insert into t values (5, 'c')")
        mysql97.execute("xa commit 'c' one phase")
        arrive(interconnect, 4)

    assert ids(interconnect) == [4, 1, 2, 5]
    assert [change["transaction"].get("last") for change in interconnect.changes] == [True, None, True, True]
    positions = [change["source"]["position"] for change in interconnect.changes]
    assert positions == sorted(set(positions))
