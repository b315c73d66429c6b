"""Fixtures: a MySQL server shared by the session, and fresh databases in it. Used where the make target fetches the server."""

from collections.abc import Iterator

import pytest

from tests.servers.fix_mariadb import QUICK, MariadbDatabase, with_table
from tests.servers.fix_stack import served
from tests.servers.mysql import Mysql


@pytest.fixture(scope="session")
def mysql_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mysql]:
    """Yield a running server, shared by the session: do not stop it."""
    yield from served(Mysql(tmp_path_factory.mktemp("mysql"), settings=QUICK))


@pytest.fixture
def mysql(mysql_server: Mysql) -> Iterator[MariadbDatabase]:
    """Yield a fresh database of that server, with a table `t`."""
    yield from with_table(mysql_server)
