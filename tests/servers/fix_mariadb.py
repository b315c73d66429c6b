"""Fixtures: a MariaDB server shared by the session, fresh databases in it, and edges that capture them."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest

from infra.local.mariadb import BinlogServer, Mariadb
from tests.amqp.fix_interconnect import Interconnect
from tests.edge.under_test import EdgeUnderTest, made_in
from tests.servers.fix_stack import served

_numbers = itertools.count(1)
#: Replicas of one server need different numbers.
_server_ids = itertools.count(1001)
#: Makes a server quick where a test does not crash it.
QUICK = {"sync-binlog": 0, "innodb-flush-log-at-trx-commit": 0}
#: The settings of a second server, which may be a replica.
SECOND = QUICK | {"server-id": 2, "log-slave-updates": "ON", "slave-connections-needed-for-purge": 0}


class MariadbDatabase:
    """A fresh database of a server."""

    def __init__(self, server: BinlogServer) -> None:
        self.server = server
        self.name = f"d{next(_numbers)}"
        self._connection: Any = None
        self.execute(f"create database {self.name}", database=None)

    def connect(self, database: str | None = "") -> Any:
        """Return a new connection that commits by itself; the caller closes it."""
        return pymysql.connect(
            host="127.0.0.1",
            port=self.server.port,
            user="root",
            database=self.name if database == "" else database,
            charset="utf8mb4",
            autocommit=True,
            ssl_disabled=True,
        )

    def execute(self, sql: str, parameters: Any = None, *, database: str | None = "") -> list[tuple[Any, ...]]:
        """Run a statement, which commits by itself, and return its rows if it has any."""
        kept = self._connection if database is not None else None
        connection = kept or self.connect(database)
        with connection.cursor() as cursor:
            cursor.execute(sql, parameters)
            rows = list(cursor.fetchall())
        if database is None:
            connection.close()
        else:
            self._connection = connection
        return rows

    def disconnect(self) -> None:
        """Let go of the connection that `execute` keeps."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def drop(self) -> None:
        self.disconnect()
        self.execute(f"drop database if exists {self.name}", database=None)


_MARIADB = """
[source.{kind}]
host = "127.0.0.1"
port = {port}
user = "{user}"
server_id = {server_id}
databases = {databases}
"""


class MariadbEdge(EdgeUnderTest):
    """An edge of one database of a MariaDB or MySQL server."""

    def __init__(self, folder: Path, database: MariadbDatabase, url: str, **changes: Any) -> None:
        self.server_id = changes.pop("server_id", None) or next(_server_ids)
        own = {"kind": database.server.kind, "port": database.server.port, "user": "root"}
        own |= {"databases": f'["{database.name}"]'}
        own |= {name: changes.pop(name) for name in own.keys() & changes.keys()}
        super().__init__(folder, _MARIADB.format(server_id=self.server_id, **own), url, **changes)


@pytest.fixture(scope="session")
def mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mariadb]:
    """Yield a running server, shared by the session: do not stop it."""
    yield from served(Mariadb(tmp_path_factory.mktemp("mariadb"), settings=QUICK))


@pytest.fixture(scope="session")
def _second_mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mariadb]:
    server = Mariadb(tmp_path_factory.mktemp("mariadb"), settings=SECOND)
    yield server
    server.delete()


@pytest.fixture
def own_mariadb(_second_mariadb: Mariadb) -> Iterator[Mariadb]:
    """Yield a running server that the test may stop, reset and set otherwise: its settings and its binlog are new each time."""
    server = _second_mariadb
    if not server.running:
        server.start()
    server.sql("reset master")
    kept = dict(row.split("\t") for row in server.sql(_SETTINGS).splitlines())
    yield server
    if server.running:
        server.sql("".join(f"set global {name} = '{value}';" for name, value in kept.items()))


_SETTINGS = """
    show global variables where variable_name in ('binlog_format', 'binlog_row_image', 'binlog_row_metadata', 'log_bin_compress')
"""


@pytest.fixture
def own_maria(own_mariadb: Mariadb) -> Iterator[MariadbDatabase]:
    """Yield a fresh database of that server, with a table `t`."""
    yield from with_table(own_mariadb)


@pytest.fixture
def maria(mariadb: Mariadb) -> Iterator[MariadbDatabase]:
    """Yield a fresh database of the shared server, with a table `t`."""
    yield from with_table(mariadb)


def with_table(server: BinlogServer) -> Iterator[MariadbDatabase]:
    """Yield a fresh database of a server, with a table `t`, and drop it."""
    mariadb_database = MariadbDatabase(server)
    mariadb_database.execute("create table t (id int primary key, note text)")
    yield mariadb_database
    mariadb_database.disconnect()
    if server.running:
        mariadb_database.drop()


@pytest.fixture
def maria_edges(tmp_path: Path) -> Iterator[Callable[..., MariadbEdge]]:
    """Return what makes edges; their processes end with the test."""
    with made_in(tmp_path, MariadbEdge) as make:
        yield make


@pytest.fixture
def maria_edge(
    maria_edges: Callable[..., MariadbEdge], maria: MariadbDatabase, interconnect: Interconnect
) -> MariadbEdge:
    """Return an initialised edge of a fresh database, towards a far side that accepts."""
    made = maria_edges(maria, interconnect.url)
    made.init()
    return made
