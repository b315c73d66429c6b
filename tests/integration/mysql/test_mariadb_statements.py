"""Statements that empty tables, as a real server writes them to its binlog: with comments, in other character sets, and with
names in the case in which they were typed (E8)."""

from collections import Counter

import pymysql
import pytest

from infra.local.mariadb import Mariadb
from tests.edge.fix_edge import arrive
from tests.servers.fix_mariadb import QUICK, MariadbDatabase

_TABLES = ("Orders", "größe", "Été")


@pytest.fixture
def shop(tmp_path_factory):
    """Yield a database of a server that keeps the names of tables in lower case, as on Windows."""
    server = Mariadb(tmp_path_factory.mktemp("mariadb"), settings=QUICK | {"lower-case-table-names": 1})
    server.start()
    mariadb_database = MariadbDatabase(server)
    yield mariadb_database
    mariadb_database.disconnect()
    server.delete()


def test_every_statement_that_empties_a_table_addresses_the_table_that_the_server_emptied(
    shop, maria_edges, interconnect
):
    edge = maria_edges(shop, interconnect.url)
    edge.init()

    with edge.running():
        for table in _TABLES:
            shop.execute(f"create table {table} (id int primary key)")
            shop.execute(f"insert into {table} values (1)")
        shop.execute("TRUNCATE /* app */ TABLE Orders")
        shop.execute("truncate /*!50000 TABLE */ORDERS")
        shop.execute("truncate /*!99999 never */ table/**/oRders")
        shop.execute("set statement max_statement_time = 60 for truncate -- c\n Orders")
        shop.execute("create or replace /* c */ table Orders (id int primary key)")
        shop.execute("create table Other like Orders")
        latin1 = pymysql.connect(
            host="127.0.0.1", port=shop.server.port, user="root", database=shop.name.upper(), charset="latin1",
            autocommit=True, ssl_disabled=True,
        )  # fmt: skip
        with latin1.cursor() as cursor:
            cursor.execute("truncate table größe")
            cursor.execute("set sql_mode = 'ANSI_QUOTES'")
            cursor.execute(f'drop table "{shop.name.upper()}"."Été", größe')
        latin1.close()
        shop.execute("insert into Orders values (9)")
        arrive(interconnect, 12)

    changes = [(change["op"], change["source"]["table"]) for change in interconnect.changes[3:]]
    assert Counter(changes) == {("t", "orders"): 5, ("t", "größe"): 2, ("t", "été"): 1, ("c", "orders"): 1}
