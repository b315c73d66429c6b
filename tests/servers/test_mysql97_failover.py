"""A source of MySQL 9.7 fails over to its replica, by GTID."""

from contextlib import closing

import pymysql
import pytest

from edge.commands.lifecycle import Adoption
from headrace.errors import NeedsOperator
from tests.edge.fix_edge import arrive, ids
from tests.edge.under_test import refused
from tests.rules.waiting import eventually
from tests.servers.debian import Mysql97
from tests.servers.fix_mariadb import QUICK, with_table
from tests.servers.fix_stack import served

_FOLLOW = (
    "change replication source to source_host = '127.0.0.1', source_port = {port}, source_user = 'root', "
    "source_auto_position = 1, get_source_public_key = 1, source_connect_retry = 1"
)
_EXECUTED = "select @@global.gtid_executed"


def sql(server, *statements):
    """Run statements, and return the rows of the last one."""
    with (
        closing(pymysql.connect(host="127.0.0.1", port=server.port, user="root", autocommit=True)) as connection,
        connection.cursor() as cursor,
    ):
        for statement in statements:
            cursor.execute(statement)
        return list(cursor.fetchall())


@pytest.fixture
def replica(mysql97_server, tmp_path):
    """Yield a replica of the shared server, of what is written there from now on."""
    for server in served(Mysql97(tmp_path / "replica", settings=QUICK | {"server-id": 2})):
        ((purged,),) = sql(mysql97_server, _EXECUTED)
        follow = _FOLLOW.format(port=mysql97_server.port)
        sql(server, "reset binary logs and gtids", f"set global gtid_purged = '{purged}'", follow, "start replica")
        yield server


@pytest.fixture
def primary(replica, mysql97_server):
    """Yield a fresh database of the shared server, which the replica has too, with a table `t`."""
    yield from with_table(mysql97_server)


def catch_up(primary, replica):
    wanted = primary.execute(_EXECUTED)[0][0]
    missing = f"select gtid_subtract('{wanted}', @@global.gtid_executed)"
    eventually(lambda: sql(replica, missing) == [("",)], saying="the replica has everything")


@pytest.mark.parametrize("lacks_some", [False, True])
def test_a_promoted_replica_goes_on_in_a_new_epoch_unless_it_lacks_what_was_captured(
    primary, replica, maria_edges, interconnect, lacks_some
):
    edge = maria_edges(primary, interconnect.url)
    edge.init()
    with edge.running():
        primary.execute("insert into t values (1, 'a')")
        catch_up(primary, replica)
        if lacks_some:
            sql(replica, "stop replica")
        primary.execute("insert into t values (2, 'b')")
        arrive(interconnect, 2)
        eventually(lambda: edge.checkpoint["acknowledged"] == interconnect.changes[-1]["source"]["position"])
    if not lacks_some:
        primary.execute("insert into t values (3, 'c')")
        catch_up(primary, replica)
    sql(replica, "stop replica", "reset replica all", "flush binary logs")
    edge.path.write_text(edge.path.read_text().replace(f"port = {primary.server.port}", f"port = {replica.port}"))
    assert "the server is another one" in refused(edge).message

    if lacks_some:
        with pytest.raises(NeedsOperator, match="it lacks GTID"):
            edge.init(Adoption(None))
        return
    edge.init(Adoption(None))
    for number in (4, 5):
        with edge.running():
            sql(replica, f"insert into {primary.name}.t values ({number}, 'd')")
            arrive(interconnect, number)
    assert ids(interconnect) == [1, 2, 3, 4, 5]
    assert interconnect.changes[-1]["source"]["server_id"] == 2
