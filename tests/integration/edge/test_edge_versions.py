"""The oldest release that is captured, and the first with failover slots; everything else is tested with the newest."""

import pytest

from edge.postgres.checkpoint import parse_lsn
from headrace.errors import NeedsOperator
from tests.edge.fix_edge import arrive
from tests.rules.waiting import eventually
from tests.servers.fix_stack import Database
from tests.servers.jars import POSTGRES


@pytest.mark.parametrize("release", sorted(POSTGRES))
def test_older_release_is_captured(release, private_postgres, edges, interconnect):
    server = private_postgres(release=release)
    assert server.version.startswith(f"{release}.")
    database = Database(server)
    database.execute(
        "create table t (id int primary key, note text, at timestamptz, amount numeric(9, 2), tags text[])"
    )
    database.execute("alter table t replica identity full")
    edge = edges(database, interconnect.url)
    edge.init()

    with edge.running() as agent:
        database.execute("insert into t values (1, 'one', '2026-01-02 03:04:05.678901+02', 12.50, '{a,b}')")
        database.execute("update t set note = 'two' where id = 1")
        database.execute(
            "begin; insert into t (id) select generate_series(2, 1001); delete from t where id = 1; commit"
        )
        database.execute("truncate t")
        arrive(interconnect, 1004)
        # Nothing was read twice, and the session was never lost.
        assert agent.figures.database_connections == 1
        ((end,),) = database.execute("select pg_current_wal_lsn()::text")
        eventually(lambda: edge.confirmed() >= parse_lsn(end), saying="the slot moves on")

    changes = interconnect.changes
    assert [change["op"] for change in changes] == ["c", "u", *["c"] * 1000, "d", "t"]
    first = changes[0]["after"]
    assert (first["id"], first["amount"], first["at"]) == (1, "12.50", "2026-01-02T01:04:05.678901Z")
    assert (changes[1]["before"]["note"], changes[1]["after"]["note"]) == ("one", "two")


def test_failover_slot_is_made_where_the_release_has_them_and_refused_where_not(private_postgres, edges, interconnect):
    for release in sorted(POSTGRES):
        database = Database(private_postgres(release=release))
        database.execute("create table t (id int primary key)")
        edge = edges(database, interconnect.url, more="failover = true")
        if release < 17:
            with pytest.raises(NeedsOperator, match="failover slots came with 17"):
                edge.init()
        else:
            edge.init()
            assert edge.slot()["failover"] is True
